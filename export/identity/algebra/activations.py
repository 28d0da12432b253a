"""Activation functions of terms."""

from __future__ import annotations

import math

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Value

# the constants of SELU, and those that ONNX has by default
SELU_ALPHA, SELU_SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)
SQRT_HALF = np.float32(math.sqrt(0.5))


def relu(algebra: Algebra, a: Value) -> Value:
    return algebra.maximum(a, 0)


def leaky_relu(algebra: Algebra, a: Value, slope: Value) -> Value:
    positive = relu(algebra, a)
    return algebra.add(positive, algebra.multiply(slope, algebra.subtract(a, positive)))


def silu(algebra: Algebra, a: Value) -> Value:
    return algebra.multiply(a, algebra.sigmoid(a))


def softplus(algebra: Algebra, a: Value) -> Value:
    return algebra.log(algebra.add(1, algebra.exp(a)))


def elu(algebra: Algebra, a: Value, alpha: Value = 1, scale: Value = 1, input_scale: Value = 1) -> Value:
    """scale * (max(a, 0) + alpha * (exp(input_scale * min(a, 0)) - 1))."""
    exponent = algebra.multiply(input_scale, algebra.minimum(a, 0))
    negative = algebra.multiply(alpha, algebra.subtract(algebra.exp(exponent), 1))
    return algebra.multiply(scale, algebra.add(relu(algebra, a), negative))


def selu(algebra: Algebra, a: Value, alpha: Value = SELU_ALPHA, scale: Value = SELU_SCALE) -> Value:
    return elu(algebra, a, alpha, scale)


def celu(algebra: Algebra, a: Value, alpha: Value) -> Value:
    """max(a, 0) + alpha * (exp(min(a, 0) / alpha) - 1)."""
    power = algebra.exp(algebra.divide(algebra.minimum(a, 0), alpha))
    negative = algebra.multiply(alpha, algebra.subtract(power, 1))
    return algebra.add(relu(algebra, a), negative)


def gelu(algebra: Algebra, a: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        cube = algebra.multiply(np.float32(0.044715), algebra.power(a, 3))
        gate = algebra.tanh(algebra.multiply(np.float32(math.sqrt(2 / math.pi)), algebra.add(a, cube)))
    else:
        gate = algebra.odd_function("erf", algebra.multiply(SQRT_HALF, a))
    return algebra.scale(algebra.multiply(a, algebra.add(1, gate)), 1, 2)


def hard_sigmoid(algebra: Algebra, a: Value) -> Value:
    """clip(a + 3, 0, 6) / 6, as PyTorch has it."""
    return algebra.scale(algebra.clip(algebra.add(a, 3), 0, 6), 1, 6)


def mish(algebra: Algebra, a: Value) -> Value:
    return algebra.multiply(a, algebra.tanh(softplus(algebra, a)))
