"""Layers of ONNX: products, convolutions, pooling, normalizations, recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import (
    convolutions,
    joining,
    normalizations,
    products,
    recurrent,
    resizing,
)
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError, Value, kind_of, known, shape_of
from turnpike.export.identity.algebra.reductions import softmax
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable, integers

table = OperatorTable()


@table.operators("MatMul")
def matrix_product(call: NodeCall, a: Value, b: Value) -> Value:
    return products.matrix_product(call.algebra, a, b)


@table.operators("Gemm")
def gemm(call: NodeCall, a: Value, b: Value, c: Value | None = None) -> Value:
    algebra = call.algebra
    if call.get("transA", 0):
        a = algebra.move(a, lambda data: data.T)
    if call.get("transB", 0):
        b = algebra.move(b, lambda data: data.T)
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    result = products.matrix_product(algebra, a, b)
    if alpha != 1:
        result = algebra.multiply(result, alpha)
    if c is None:
        return result
    return algebra.add(result, c if beta == 1 else algebra.multiply(c, beta))


@table.operators("Einsum")
def einsum(call: NodeCall, *operands: Value) -> Value:
    return products.einsum(call.algebra, call.get("equation"), operands)


def _windows(call: NodeCall, x: Value, kernel: Sequence[int]) -> convolutions.Windows:
    ones = [1] * len(kernel)
    strides, dilations = call.get("strides", ones), call.get("dilations", ones)
    pads = _pads(call, shape_of(x)[2:], kernel, strides, dilations)
    return convolutions.Windows(kernel, strides, pads, dilations, bool(call.get("ceil_mode", 0)))


def _pads(
    call: NodeCall,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    rank, mode = len(kernel), call.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        numbers = call.get("pads", [0] * 2 * rank)
        return list(zip(numbers[:rank], numbers[rank:], strict=True))
    if mode == "VALID":
        return [(0, 0)] * rank
    pads = []
    for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        # as many windows as the size divided by the stride, rounded up
        total = max(0, (-(-size // stride) - 1) * stride + dilation * (length - 1) + 1 - size)
        low = total // 2 if mode == "SAME_UPPER" else total - total // 2
        pads.append((low, total - low))
    return pads


@table.operators("Conv")
def convolution(call: NodeCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    windows = _windows(call, x, shape_of(weight)[2:])
    return convolutions.convolve(call.algebra, x, weight, bias, windows, call.get("group", 1))


@table.operators("ConvTranspose")
def transposed_convolution(call: NodeCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if call.has("output_shape") or call.get("auto_pad", "NOTSET") != "NOTSET":
        raise UndecidedError("ConvTranspose with output_shape or auto_pad")
    kernel = shape_of(weight)[2:]
    extra = call.get("output_padding", [0] * len(kernel))
    windows = _windows(call, x, kernel)
    return convolutions.convolve_transposed(
        call.algebra, x, weight, bias, windows, call.get("group", 1), extra
    )


@table.operators("MaxPool")
def max_pool(call: NodeCall, x: Value) -> Value:
    return convolutions.max_pool(call.algebra, x, _windows(call, x, call.get("kernel_shape")))


@table.operators("AveragePool")
def average_pool(call: NodeCall, x: Value) -> Value:
    windows = _windows(call, x, call.get("kernel_shape"))
    if any(dilation != 1 for dilation in windows.dilations):
        raise UndecidedError("AveragePool with dilations")
    count_padding = bool(call.get("count_include_pad", 0))
    return convolutions.average_pool(call.algebra, x, windows, count_padding=count_padding)


def _axes(call: NodeCall, x: Value) -> range:
    rank = len(shape_of(x))
    return range(call.get("axis", -1) % rank, rank)


@table.operators("LayerNormalization")
def layer_norm(call: NodeCall, x: Value, scale: Value, bias: Value | None = None) -> Value:
    epsilon = call.get("epsilon", 1e-5)
    return normalizations.layer_norm(call.algebra, x, _axes(call, x), scale, bias, epsilon)


@table.operators("RMSNormalization")
def rms_norm(call: NodeCall, x: Value, scale: Value) -> Value:
    return normalizations.rms_norm(call.algebra, x, _axes(call, x), scale, call.get("epsilon", 1e-5))


@table.operators("BatchNormalization")
def batch_norm(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
    if call.get("training_mode", 0):
        raise UndecidedError("BatchNormalization in training mode")
    epsilon = call.get("epsilon", 1e-5)
    return normalizations.batch_norm(call.algebra, x, scale, bias, mean, variance, epsilon)


@table.operators("GroupNormalization")
def group_norm(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    if call.opset < 21:
        raise UndecidedError("GroupNormalization before opset 21, which scales groups")
    epsilon = call.get("epsilon", 1e-5)
    return normalizations.group_norm(call.algebra, x, call.get("num_groups"), scale, bias, epsilon)


@table.operators("InstanceNormalization")
def instance_norm(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    epsilon = call.get("epsilon", 1e-5)
    return normalizations.group_norm(call.algebra, x, shape_of(x)[1], scale, bias, epsilon)


UNUSUAL = ("clip", "input_forget", "layout", "activation_alpha", "activation_beta")


@table.operators("GRU", "LSTM")
def recurrent_layer(
    call: NodeCall,
    x: Value,
    weights: Value,
    state_weights: Value,
    biases: Value | None = None,
    lengths: Value | None = None,
    states: Value | None = None,
    cells: Value | None = None,
    peepholes: Value | None = None,
) -> Any:
    algebra, is_gru = call.algebra, call.operator == "GRU"
    direction = call.get("direction", "forward")
    directions = [False, True] if direction == "bidirectional" else [direction == "reverse"]
    usual = (["sigmoid", "tanh"] if is_gru else ["sigmoid", "tanh", "tanh"]) * len(directions)
    unusual = [name for name in UNUSUAL if call.get(name)]
    if [name.lower() for name in call.get("activations", usual)] != usual:
        unusual.append("activations")
    if unusual or lengths is not None or peepholes is not None:
        raise UndecidedError(f"{call.operator} with {', '.join(unusual) or 'lengths or peepholes'}")

    units, gates = shape_of(state_weights)[-1], 3 if is_gru else 4
    zeros = np.zeros((len(directions), shape_of(x)[1], units), np.float32)
    biases = np.zeros((len(directions), 2 * gates * units), np.float32) if biases is None else biases
    results = []
    for number, backwards in enumerate(directions):

        def of_direction(value: Value, number: int = number) -> Value:
            return algebra.move(value, lambda data: data[number])

        state, cell = (of_direction(zeros if value is None else value) for value in (states, cells))
        bias = of_direction(biases)
        parts = [
            of_direction(weights),
            of_direction(state_weights),
            algebra.move(bias, lambda data: data[: gates * units]),
            algebra.move(bias, lambda data: data[gates * units :]),
        ]
        result: tuple[Value, ...]
        if is_gru:
            reset_after = bool(call.get("linear_before_reset", 0))
            layer = recurrent.Weights(*parts)
            result = recurrent.gru(algebra, x, state, layer, reset_after=reset_after, backwards=backwards)
        else:
            # ONNX has the gates in the order i, o, f, c
            order = [*range(units), *range(2 * units, 4 * units), *range(units, 2 * units)]
            layer = recurrent.Weights(
                *(algebra.move(part, lambda data, at=order: data[at]) for part in parts)
            )
            result = recurrent.lstm(algebra, x, state, cell, layer, backwards=backwards)
        results.append(result)
    last = [joining.stack(algebra, list(values), 0) for values in list(zip(*results, strict=True))[1:]]
    return [joining.stack(algebra, [result[0] for result in results], 1), *last]


@table.operators("Resize")
def resize(
    call: NodeCall,
    x: Value,
    region: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
) -> Value:
    mode, coordinates = call.get("mode", "nearest"), call.get("coordinate_transformation_mode", "half_pixel")
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    if call.has("axes") or call.get("antialias", 0) or call.get("exclude_outside", 0) or policy != "stretch":
        raise UndecidedError("Resize with axes, antialias, exclude_outside or keep_aspect_ratio_policy")
    old = shape_of(x)
    if scales is not None and np.size(known(scales, "the scales of Resize")):
        factors = [float(number) for number in known(scales, "the scales of Resize")]
        wanted = [int(size * factor) for size, factor in zip(old, factors, strict=True)]
    elif sizes is not None:
        wanted = integers(sizes, "the sizes of Resize")
        factors = [size / before for size, before in zip(wanted, old, strict=True)]
    else:
        raise UndecidedError("Resize without scales or sizes")
    # of one scale, whether the sizes or the factor were given
    form = resizing.Resizing(
        mode,
        coordinates,
        call.get("nearest_mode", "round_prefer_floor") if mode == "nearest" else "floor",
        call.get("cubic_coeff_a", -0.75),
    )
    return resizing.resize(call.algebra, x, wanted, factors, form)


@table.operators("Attention")
def attention(
    call: NodeCall, query: Value, key: Value, value: Value, mask: Value | None = None, *past: Value | None
) -> Value:
    algebra = call.algebra
    if (
        len(shape_of(query)) != 4
        or shape_of(query)[1] != shape_of(key)[1]
        or any(part is not None for part in past)
    ):
        raise UndecidedError("Attention of joined or shared heads, or with a cache")
    if call.get("softcap", 0.0) or call.get("is_causal", 0) or (mask is not None and kind_of(mask) == "b"):
        raise UndecidedError("Attention with softcap, is_causal or a mask of booleans")
    scale = call.get("scale", None)
    width = shape_of(query)[-1]
    factor = algebra.inverse_square_root(width) if scale is None else algebra.root_of_scale(scale)
    keys = algebra.move(key, lambda data: data.swapaxes(-1, -2))
    logits = algebra.multiply(products.matrix_product(algebra, query, keys), factor)
    if mask is not None:
        logits = algebra.add(logits, mask)
    return products.matrix_product(algebra, softmax(algebra, logits, -1), value)
