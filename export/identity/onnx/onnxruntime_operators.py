"""Operators into which onnxruntime's optimizer joins those of ONNX, in the graphs that it dumps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import activations, normalizations, products
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError, Value
from turnpike.export.identity.onnx import elementwise, layers
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable

table = OperatorTable()
DOMAIN = "com.microsoft."
# the parameters of an activation that FusedGemm has joined
PARAMETERS = {
    "LeakyRelu": ("activation_alpha",),
    "Elu": ("activation_alpha",),
    "HardSigmoid": ("activation_alpha", "activation_beta"),
    "Selu": ("activation_alpha", "activation_gamma"),
}


@table.operators(f"{DOMAIN}FusedMatMul")
def matrix_product(call: NodeCall, a: Value, b: Value) -> Value:
    algebra = call.algebra
    a, b = (_transposed(call, value, name) for value, name in ((a, "A"), (b, "B")))
    product = products.matrix_product(algebra, a, b)
    alpha = call.number("alpha", 1.0)
    return product if alpha == 1 else algebra.multiply(product, alpha)


def _transposed(call: NodeCall, a: Value, name: str) -> Value:
    """An operand of FusedMatMul in the order of a matrix product."""
    if call.get(f"transBatch{name}", 0):
        # its first axis comes behind those of the stack
        a = call.algebra.move(a, lambda data: np.moveaxis(data, 0, -2))
    if call.get(f"trans{name}", 0):
        a = call.algebra.move(a, lambda data: data.swapaxes(-1, -2))
    return a


def _activated(algebra: Algebra, name: str | None, parameters: Sequence[float], x: Value) -> Value:
    numbers = [np.float32(number) for number in parameters]
    match name:
        case None | "":
            return x
        case "Relu":
            return activations.relu(algebra, x)
        case "Sigmoid":
            return algebra.sigmoid(x)
        case "Tanh":
            return algebra.tanh(x)
        case "Softplus":
            return activations.softplus(algebra, x)
        case "LeakyRelu":
            return activations.leaky_relu(algebra, x, numbers[0])
        case "Clip":
            return algebra.clip(x, *numbers[:2])
        case "HardSigmoid":
            return elementwise.hard_sigmoid_of(algebra, x, *numbers)
        case "HardSwish":
            return algebra.multiply(x, activations.hard_sigmoid(algebra, x))
        case "Elu":
            return activations.elu(algebra, x, numbers[0])
        case "Selu":
            return activations.selu(algebra, x, *numbers)
        case "Softsign":
            return elementwise.softsign(algebra, x)
    raise UndecidedError(f"the activation {name}")


@table.operators(f"{DOMAIN}FusedGemm")
def gemm(call: NodeCall, a: Value, b: Value, c: Value | None = None) -> Value:
    activation = call.get("activation")
    # the names of the parameters, in the order of FusedConv
    names = PARAMETERS.get(activation, ())
    if any(not call.has(name) for name in names):
        raise UndecidedError(f"FusedGemm with {activation} without its parameters")
    parameters = [call.get(name) for name in names]
    return _activated(call.algebra, activation, parameters, layers.gemm(call, a, b, c))


@table.operators(f"{DOMAIN}FusedConv")
def convolution(
    call: NodeCall, x: Value, weight: Value, bias: Value | None = None, added: Value | None = None
) -> Value:
    result = layers.convolution(call, x, weight, bias)
    result = result if added is None else call.algebra.add(result, added)
    return _activated(call.algebra, call.get("activation"), call.get("activation_params", []), result)


@table.operators(f"{DOMAIN}QuickGelu")
def quick_gelu(call: NodeCall, x: Value) -> Value:
    alpha = call.number("alpha", 1.702)
    scaled = x if alpha == 1 else call.algebra.multiply(alpha, x)
    return call.algebra.multiply(x, call.algebra.sigmoid(scaled))


@table.operators(f"{DOMAIN}Gelu", f"{DOMAIN}BiasGelu", f"{DOMAIN}FastGelu")
def gelu(call: NodeCall, x: Value, bias: Value | None = None) -> Value:
    shifted = x if bias is None else call.algebra.add(x, bias)
    return activations.gelu(call.algebra, shifted, "tanh" if call.operator == "FastGelu" else "none")


@table.operators(f"{DOMAIN}SkipLayerNormalization")
def layer_norm_of_sum(
    call: NodeCall,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
) -> Any:
    algebra = call.algebra
    total = algebra.add(x, skip)
    total = total if bias is None else algebra.add(total, bias)
    epsilon = call.get("epsilon", 1e-12)
    return [normalizations.layer_norm(algebra, total, [-1], gamma, beta, epsilon), None, None, total]
