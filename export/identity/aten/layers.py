"""Layers of ATen: products, convolutions, normalizations, attention, recurrent layers, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import (
    chosen_rows,
    convolutions,
    joining,
    normalizations,
    positions,
    products,
    recurrent,
    resizing,
)
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Term,
    UndecidedError,
    Value,
    kind_of,
    known,
    shape_of,
)
from turnpike.export.identity.algebra.reductions import maximum_of, softmax, sum_of
from turnpike.export.identity.aten.operator_table import Call, OperatorTable
from turnpike.export.identity.aten.writes import columns_of, mask_of

table = OperatorTable()


@table.operators("mm", "bmm", "matmul", "mv", "dot")
def matrix_product(call: Call, self_: Value, **other: Value) -> Value:
    (second,) = other.values()
    return products.matrix_product(call.algebra, self_, second)


@table.operators("addmm", "baddbmm")
def add_product(call: Call, self_: Value, beta: Value = 1, alpha: Value = 1, **factors: Value) -> Value:
    a, b = factors.values()
    algebra = call.algebra
    product = products.matrix_product(algebra, a, b)
    return algebra.add(
        self_ if beta == 1 else algebra.multiply(self_, beta),
        product if alpha == 1 else algebra.multiply(product, alpha),
    )


@table.operators("addbmm")
def add_products(
    call: Call, self_: Value, batch1: Value, batch2: Value, beta: Value = 1, alpha: Value = 1
) -> Value:
    algebra = call.algebra
    total = sum_of(algebra, products.matrix_product(algebra, batch1, batch2), 0)
    return algebra.add(algebra.multiply(self_, beta), algebra.multiply(total, alpha))


# `input` is the name in the schema, here and below
@table.operators("linear")
def linear(call: Call, input: Value, weight: Value, bias: Value | None = None) -> Value:  # noqa: A002
    transposed = call.algebra.move(weight, lambda data: data.swapaxes(-1, -2) if data.ndim > 1 else data)
    product = products.matrix_product(call.algebra, input, transposed)
    return normalizations.affine(call.algebra, product, None, bias)


@table.operators("einsum")
def einsum(call: Call, equation: str, tensors: Sequence[Value], path: Any = None) -> Value:
    return products.einsum(call.algebra, equation, tensors)


@table.operators("bilinear")
def bilinear(call: Call, input1: Value, input2: Value, weight: Value, bias: Value | None = None) -> Value:
    rows = "pqrstuvw"[: len(shape_of(input1)) - 1]
    equation = f"{rows}i,oij,{rows}j->{rows}o"
    product = products.einsum(call.algebra, equation, [input1, weight, input2])
    return normalizations.affine(call.algebra, product, None, bias)


@table.operators("scaled_dot_product_attention")
def attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Value:
    if enable_gqa:
        raise UndecidedError("attention with enable_gqa")
    algebra = call.algebra
    if scale is None:
        factor = algebra.inverse_square_root(shape_of(query)[-1])
    else:
        factor = algebra.root_of_scale(float(scale))
    keys = algebra.move(key, lambda data: data.swapaxes(-1, -2))
    logits = algebra.multiply(products.matrix_product(algebra, query, keys), factor)
    if is_causal:
        # torch.onnx has the smallest number here; no row is masked completely, so both give the same weights
        allowed = np.tril(np.ones(shape_of(logits)[-2:], bool))
        attn_mask = np.where(allowed, np.float32(0), np.finfo(np.float32).min)
    if attn_mask is not None:
        if kind_of(attn_mask) == "b":
            # torch.onnx adds infinities too; where the mask is known, they absorb the logits
            attn_mask = algebra.where(attn_mask, np.float32(0), np.float32(-np.inf))
        logits = algebra.add(logits, attn_mask)
    weights = softmax(algebra, logits, -1)
    if attn_mask is not None and not is_causal:
        # a row that is masked completely has no weights
        largest = maximum_of(algebra, attn_mask, (-1,), keepdims=True)
        weights = algebra.where(algebra.compare(largest, np.float32(-np.inf), "eq"), 0, weights)
    return products.matrix_product(algebra, weights, value)


def _per_axis(value: Any, count: int) -> list[int]:
    """An entry for each spatial axis; PyTorch repeats a single one."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def _batched(call: Call, x: Value, rank: int, run: Callable[[Value], Value]) -> Value:
    """Run a layer on (rows, channels, ...), also if the input has no rows."""
    if len(shape_of(x)) == rank + 2:
        return run(x)
    result = run(call.algebra.move(x, lambda data: data[None]))
    return call.algebra.move(result, lambda data: data[0])


@table.operators("convolution", "conv1d", "conv2d", "conv3d")
def convolution(
    call: Call,
    input: Value,  # noqa: A002
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    transposed: bool = False,
    output_padding: Any = 0,
) -> Value:
    kernel = shape_of(weight)[2:]
    rank = len(kernel)
    dilations = _per_axis(dilation, rank)
    if padding == "same":
        # an odd one is added at the end
        totals = [step * (size - 1) for size, step in zip(kernel, dilations, strict=True)]
        pads = [(total // 2, total - total // 2) for total in totals]
    else:
        pads = [(size, size) for size in _per_axis(0 if padding == "valid" else padding, rank)]
    windows = convolutions.Windows(kernel, _per_axis(stride, rank), pads, dilations)

    def run(x: Value) -> Value:
        if not transposed:
            return convolutions.convolve(call.algebra, x, weight, bias, windows, groups)
        extra = _per_axis(output_padding, rank)
        return convolutions.convolve_transposed(call.algebra, x, weight, bias, windows, groups, extra)

    return _batched(call, input, rank, run)


MAX_POOLS = [f"max_pool{rank}d{suffix}" for rank in (1, 2, 3) for suffix in ("", "_with_indices")]


@table.operators(*MAX_POOLS)
def max_pool(
    call: Call,
    self_: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    rank = int(call.operator[len("max_pool")])
    kernel = _per_axis(kernel_size, rank)
    pads = [(size, size) for size in _per_axis(padding, rank)]
    strides = _per_axis(stride, rank) if stride else kernel
    windows = convolutions.Windows(kernel, strides, pads, _per_axis(dilation, rank), ceil_mode)
    result = _batched(call, self_, rank, lambda x: convolutions.max_pool(call.algebra, x, windows))
    return (result, None) if call.operator.endswith("indices") else result


@table.operators("avg_pool1d", "avg_pool2d", "avg_pool3d")
def average_pool(
    call: Call,
    self_: Value,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    rank = int(call.operator[len("avg_pool")])
    kernel = _per_axis(kernel_size, rank)
    pads = [(size, size) for size in _per_axis(padding, rank)]
    strides = _per_axis(stride, rank) if stride else kernel
    windows = convolutions.Windows(kernel, strides, pads, [1] * rank, ceil_mode)

    def run(x: Value) -> Value:
        return convolutions.average_pool(
            call.algebra, x, windows, count_padding=count_include_pad, divisor=divisor_override
        )

    return _batched(call, self_, rank, run)


@table.operators("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_average_pool(call: Call, self_: Value, output_size: Any) -> Value:
    rank = len(output_size)
    sizes = shape_of(self_)[-rank:]
    if any(size % wanted for size, wanted in zip(sizes, output_size, strict=True)):
        raise UndecidedError("adaptive pooling into unequal windows")
    kernel = [size // wanted for size, wanted in zip(sizes, output_size, strict=True)]
    windows = convolutions.Windows(kernel, kernel, [(0, 0)] * rank, [1] * rank)

    def run(x: Value) -> Value:
        return convolutions.average_pool(call.algebra, x, windows, count_padding=True)

    return _batched(call, self_, rank, run)


@table.operators("native_layer_norm", "layer_norm")
def layer_norm(
    call: Call,
    input: Value,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    axes = range(-len(normalized_shape), 0)
    result = normalizations.layer_norm(call.algebra, input, axes, weight, bias, eps)
    return (result, None, None) if call.operator == "native_layer_norm" else result


@table.operators("rms_norm", "_fused_rms_norm")
def rms_norm(
    call: Call,
    input: Value,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    eps: float | None = None,
) -> Any:
    """Without an epsilon, it is that of the tensor's dtype."""
    epsilon = float(np.finfo(np.float32).eps) if eps is None else eps
    axes = range(-len(normalized_shape), 0)
    result = normalizations.rms_norm(call.algebra, input, axes, weight, epsilon)
    return (result, None) if call.operator == "_fused_rms_norm" else result


@table.operators("_native_batch_norm_legit_no_training", "native_batch_norm", "batch_norm")
def batch_norm(
    call: Call,
    input: Value,  # noqa: A002
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    eps: float,
    training: bool = False,
    **_: Any,
) -> Any:
    if training:
        raise UndecidedError("batch norm with the statistics of the batch")
    result = normalizations.batch_norm(call.algebra, input, weight, bias, running_mean, running_var, eps)
    return result if call.operator == "batch_norm" else (result, None, None)


@table.operators("group_norm", "native_group_norm")
def group_norm(
    call: Call,
    input: Value,  # noqa: A002
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    **sizes: Any,
) -> Any:
    groups = sizes["num_groups" if call.operator == "group_norm" else "group"]
    result = normalizations.group_norm(call.algebra, input, groups, weight, bias, eps)
    return result if call.operator == "group_norm" else (result, None, None)


@table.operators("instance_norm")
def instance_norm(
    call: Call,
    input: Value,  # noqa: A002
    weight: Value | None,
    bias: Value | None,
    eps: float,
    use_input_stats: bool,
    **_: Any,
) -> Value:
    if not use_input_stats:
        raise UndecidedError("instance norm with running statistics")
    return normalizations.group_norm(call.algebra, input, shape_of(input)[1], weight, bias, eps)


@table.operators("embedding")
def embedding(call: Call, weight: Value, indices: Value, **_: Any) -> Value:
    return joining.take(call.algebra, weight, indices, 0)


@table.operators("index_select")
def index_select(call: Call, self_: Value, dim: int, index: Value) -> Value:
    return joining.take(call.algebra, self_, index, dim)


def _layers(
    call: Call,
    x: Value,
    params: Sequence[Value],
    run: Callable[[Value, int, recurrent.Weights, bool], Value],
    **options: Any,
) -> Value:
    """Run the layers of a recurrent network; `run` is called for each of their directions."""

    def swapped(value: Value) -> Value:
        return call.algebra.move(value, lambda data: data.swapaxes(0, 1))

    x = swapped(x) if options["batch_first"] else x
    per, directions = 4 if options["has_biases"] else 2, 2 if options["bidirectional"] else 1
    if len(params) != per * directions * options["num_layers"]:
        raise UndecidedError("a recurrent layer with projections")
    for layer in range(options["num_layers"]):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            inputs, states, *biases = params[number * per : (number + 1) * per]
            none = np.zeros(shape_of(inputs)[0], np.float32)
            input_bias, state_bias = biases or (none, none)
            weights = recurrent.Weights(inputs, states, input_bias, state_bias)
            outputs.append(run(x, number, weights, direction == 1))
        x = joining.concatenate(call.algebra, outputs, -1) if directions == 2 else outputs[0]
    return swapped(x) if options["batch_first"] else x


def _in_onnx_order(call: Call, weights: recurrent.Weights) -> recurrent.Weights:
    """The weights of a GRU: PyTorch has its gates in the order r, z, n."""
    units = weights.units
    order = [*range(units, 2 * units), *range(units), *range(2 * units, 3 * units)]
    parts = (weights.inputs, weights.states, weights.input_bias, weights.state_bias)
    return recurrent.Weights(*(call.algebra.move(part, lambda data: data[order]) for part in parts))


@table.operators("gru_cell", "lstm_cell")
def cell(
    call: Call,
    input: Value,  # noqa: A002
    hx: Any,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Any:
    """One step of a layer."""
    algebra = call.algebra
    x = algebra.move(input, lambda data: data[None])
    none = np.zeros(shape_of(w_ih)[0], np.float32)
    weights = recurrent.Weights(w_ih, w_hh, none if b_ih is None else b_ih, none if b_hh is None else b_hh)
    if call.operator == "gru_cell":
        ordered = _in_onnx_order(call, weights)
        return recurrent.gru(algebra, x, hx, ordered, reset_after=True, backwards=False)[1]
    state, memory = hx
    return recurrent.lstm(algebra, x, state, memory, weights, backwards=False)[1:]


@table.operators("gru.input")
def gru(call: Call, input: Value, hx: Value, params: Sequence[Value], **options: Any) -> Any:  # noqa: A002
    algebra = call.algebra
    last: list[Value] = []

    def run(x: Value, number: int, weights: recurrent.Weights, backwards: bool) -> Value:
        ordered = _in_onnx_order(call, weights)
        state = algebra.move(hx, lambda data: data[number])
        states, end = recurrent.gru(algebra, x, state, ordered, reset_after=True, backwards=backwards)
        last.append(end)
        return states

    result = _layers(call, input, params, run, **options)
    return result, joining.stack(algebra, last, 0)


@table.operators("lstm.input")
def lstm(
    call: Call,
    input: Value,  # noqa: A002
    hx: Sequence[Value],
    params: Sequence[Value],
    **options: Any,
) -> Any:
    algebra = call.algebra
    last_states: list[Value] = []
    last_cells: list[Value] = []

    def run(x: Value, number: int, weights: recurrent.Weights, backwards: bool) -> Value:
        state, cell = (algebra.move(value, lambda data: data[number]) for value in hx)
        states, end, end_cell = recurrent.lstm(algebra, x, state, cell, weights, backwards=backwards)
        last_states.append(end)
        last_cells.append(end_cell)
        return states

    result = _layers(call, input, params, run, **options)
    return result, joining.stack(algebra, last_states, 0), joining.stack(algebra, last_cells, 0)


UPSAMPLINGS = {
    "nearest": resizing.Resizing("nearest", "asymmetric"),
    "_nearest_exact": resizing.Resizing("nearest", "half_pixel", "round_prefer_ceil"),
    "linear": resizing.Resizing("linear", "half_pixel"),
    "bilinear": resizing.Resizing("linear", "half_pixel"),
    "trilinear": resizing.Resizing("linear", "half_pixel"),
    "bicubic": resizing.Resizing("cubic", "half_pixel"),
}
UPSAMPLING_NAMES = {
    f"upsample_{mode}{rank}d": mode
    for mode, ranks in {
        "nearest": "123",
        "linear": "1",
        "bilinear": "2",
        "trilinear": "3",
        "bicubic": "2",
    }.items()
    for rank in ranks
} | {f"_upsample_nearest_exact{rank}d": "_nearest_exact" for rank in "123"}


@table.operators(*UPSAMPLING_NAMES)
def upsample(
    call: Call,
    input: Value | None = None,  # noqa: A002
    output_size: Sequence[Any] | None = None,
    scale_factors: Sequence[float] | None = None,
    align_corners: bool = False,
    self_: Value | None = None,
    **scales: Any,
) -> Value:
    x = self_ if input is None else input
    if x is None:
        raise UndecidedError(f"{call.operator} without an image")
    old = shape_of(x)
    given = [scales.get(name) for name in ("scales_d", "scales_h", "scales_w", "scales") if name in scales]
    if scale_factors is None and given and None not in given:
        scale_factors = [float(factor) for factor in given if factor is not None]
    if output_size is not None:
        sizes = [int(size) for size in output_size]
    else:
        factors = scale_factors or ()
        sizes = [int(size * float(factor)) for size, factor in zip(old[2:], factors, strict=True)]
    if scale_factors is None:
        scale_factors = [size / before for size, before in zip(sizes, old[2:], strict=True)]
    chosen = UPSAMPLINGS[UPSAMPLING_NAMES[call.operator]]
    if align_corners:
        chosen = replace(chosen, coordinates="align_corners")
    factors = [float(factor) for factor in scale_factors]
    return resizing.resize(call.algebra, x, [*old[:2], *sizes], [1, 1, *factors], chosen)


@table.operators("im2col")
def image_to_columns(
    call: Call, self_: Value, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Value:
    pads = [(size, size) for size in padding]
    windows = convolutions.Windows(kernel_size, stride, pads, dilation)
    channels = call.algebra.move(call.algebra.sizes_of(self_), lambda data: np.asarray(data[1]))
    # torch.onnx computes this size, too
    int(call.algebra.multiply(channels, math.prod(kernel_size)))  # type: ignore[arg-type]
    # and gathers at these places
    for axis, (width, step, gap, low) in enumerate(zip(kernel_size, stride, dilation, padding, strict=True)):
        length = call.algebra.move(
            call.algebra.sizes_of(self_), lambda data, at=axis - 2: np.asarray(data[at])
        )
        end = call.algebra.add(length, 2 * low - gap * (width - 1))
        starts = positions.count_up(call.algebra, 0, end, step)
        known(call.algebra.add(starts, np.arange(0, width * gap, gap)[:, None]), "the places of windows")

    def cut(data: Array) -> Array:
        rows, channels = data.shape[:2]
        columns = np.moveaxis(windows.cut(data), (-2, -1), (2, 3))
        return np.ascontiguousarray(columns).reshape(rows, channels * math.prod(kernel_size), -1)

    return call.algebra.move(self_, cut)


@table.operators("index")
def index(call: Call, self_: Value, indices: Sequence[Value | None]) -> Any:
    mask = mask_of(indices)
    if mask is not None:
        return chosen_rows.select(call.algebra, self_, mask)
    chosen = [(axis, ids) for axis, ids in enumerate(indices) if ids is not None]
    if any(isinstance(ids, Term) for _, ids in chosen):
        if len(chosen) == 1:
            ((axis, ids),) = chosen
            return joining.take(call.algebra, self_, ids, axis)
        axes = [axis for axis, _ in chosen]
        first = axes[0]
        if axes != list(range(first, first + len(axes))):
            raise UndecidedError("an index by tensors that depend on the input, in axes that are apart")
        places = np.broadcast_shapes(*(shape_of(ids) for _, ids in chosen))
        front = call.algebra.move(self_, lambda data: np.moveaxis(data, axes, range(len(axes))))
        found = joining.elements_at(call.algebra, front, [ids for _, ids in chosen])
        moved = range(first, first + len(places))
        return call.algebra.move(found, lambda data: np.moveaxis(data, range(len(places)), moved))
    columns = columns_of(call, indices, len(shape_of(self_)))
    joining.use_table(call.algebra, self_, *columns)
    key = tuple(slice(None) if ids is None else known(ids, "ids") for ids in columns)
    return call.algebra.move(self_, lambda data: data[key])


@table.operators("gather")
def gather(call: Call, self_: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    return joining.elements_along(call.algebra, self_, index, dim)
