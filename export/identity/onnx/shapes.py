"""Operators of ONNX that move, join, repeat or make numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import chosen_rows, joining, positions
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    UndecidedError,
    Value,
    kind_of,
    known,
    shape_of,
)
from turnpike.export.identity.onnx import chosen_places
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable, expect_memory, integers

table = OperatorTable()

CONSTANTS: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@table.operators("Constant")
def constant(call: NodeCall) -> Value:
    if call.has("value"):
        return np.asarray(call.get("value"))
    for name, dtype in CONSTANTS.items():
        if call.has(name):
            return np.array(call.get(name), dtype)
    raise UndecidedError("a Constant without numbers")


@table.operators("ConstantOfShape")
def constant_of_shape(call: NodeCall, shape: Value) -> Value:
    value = call.get("value", np.zeros(1, np.float32))
    sizes = integers(shape, "a shape")
    expect_memory(math.prod(sizes))
    return np.full(sizes, value.reshape(-1)[0], value.dtype)


@table.operators("Range")
def count_up(call: NodeCall, start: Value, limit: Value, delta: Value) -> Value:
    kinds = {kind_of(value) for value in (start, limit, delta)}
    counted = positions.count_up(call.algebra, start, limit, delta)
    return call.algebra.cast(counted, np.float32 if "f" in kinds else np.int64)


@table.operators("EyeLike")
def unit_matrix(call: NodeCall, like: Value) -> Value:
    if call.has("dtype"):
        raise UndecidedError("EyeLike with another dtype")
    rows, columns = shape_of(like)
    call.algebra.sizes.use_reach(call.get("k", 0), max(rows, columns))
    return np.eye(rows, columns, call.get("k", 0), dtype=np.float32 if kind_of(like) == "f" else np.int64)


@table.operators("Shape")
def shape(call: NodeCall, x: Value) -> Value:
    sizes = call.algebra.sizes_of(x)
    return call.algebra.move(sizes, lambda data: data[call.get("start", 0) : call.get("end")])


@table.operators("Reshape")
def reshape(call: NodeCall, x: Value, sizes: Value) -> Value:
    old = shape_of(x)
    wanted = [
        old[axis] if size == 0 and not call.get("allowzero", 0) else size
        for axis, size in enumerate(integers(sizes, "a shape") if np.size(known(sizes, "a shape")) else [])
    ]
    return call.algebra.move(x, lambda data: data.reshape(wanted))


@table.operators("Flatten")
def flatten(call: NodeCall, x: Value) -> Value:
    old = shape_of(x)
    axis = call.get("axis", 1)
    rows = math.prod(old[: axis if axis >= 0 else axis + len(old)])
    return call.algebra.move(x, lambda data: data.reshape(rows, -1))


@table.operators("Transpose")
def transpose(call: NodeCall, x: Value) -> Value:
    return call.algebra.move(x, lambda data: data.transpose(call.get("perm")))


@table.operators("Squeeze")
def squeeze(call: NodeCall, x: Value, axes: Value | None = None) -> Value:
    chosen = call.get("axes") if axes is None else integers(axes, "axes")
    places = None if chosen is None else tuple(chosen)
    return call.algebra.move(x, lambda data: np.asarray(data.squeeze(places)))


@table.operators("Unsqueeze")
def unsqueeze(call: NodeCall, x: Value, axes: Value | None = None) -> Value:
    chosen = tuple(call.get("axes") if axes is None else integers(axes, "axes"))
    return call.algebra.move(x, lambda data: np.expand_dims(data, chosen))


@table.operators("Expand")
def expand(call: NodeCall, x: Value, sizes: Value) -> Any:
    counted = chosen_places.counted_shape(call, sizes)
    if counted is not None:
        return chosen_places.expand(call, x, counted)
    wanted = integers(sizes, "a shape") if np.size(known(sizes, "a shape")) else []
    shape = np.broadcast_shapes(shape_of(x), tuple(wanted))
    expect_memory(math.prod(shape))
    return call.algebra.move(x, lambda data: np.ascontiguousarray(np.broadcast_to(data, shape)))


@table.operators("Tile")
def tile(call: NodeCall, x: Value, repeats: Value) -> Value:
    counts = integers(repeats, "repeats")
    expect_memory(math.prod((*counts, *shape_of(x))))
    return call.algebra.move(x, lambda data: np.tile(data, counts))


@table.operators("NonZero")
def places(call: NodeCall, x: Value) -> Any:
    return chosen_rows.places_of(call.algebra, x, "columns")


@table.operators("Concat")
def concatenate(call: NodeCall, *values: Value) -> Any:
    if {user.op_type for user in call.node.outputs[0].consumers()} == {"Expand"}:
        counted = chosen_places.counted_shape(call, *values)
        if counted is not None:
            return counted
    return joining.concatenate(call.algebra, values, call.get("axis"))


@table.operators("Slice")
def slice_axes(
    call: NodeCall,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    # before opset 10, these were attributes
    first = call.get("starts") if starts is None else integers(starts, "a start")
    last = call.get("ends") if ends is None else integers(ends, "an end")
    places = call.get("axes", list(range(len(first)))) if axes is None else integers(axes, "an axis")
    widths = [1] * len(first) if steps is None else integers(steps, "a step")
    key = [slice(None)] * len(shape_of(x))
    for start, end, axis, step in zip(first, last, places, widths, strict=True):
        for bound in (start, end):
            call.algebra.sizes.use_bound(bound, shape_of(x)[axis])
        joining.use_table(call.algebra, x, starts, ends)
        key[axis] = slice(start, end, step)
    return call.algebra.move(x, lambda data: data[tuple(key)])


@table.operators("Split")
def split(call: NodeCall, x: Value, sizes: Value | None = None) -> list[Value]:
    axis, count = call.get("axis", 0), len(call.node.outputs)
    length = shape_of(x)[axis]
    wanted = call.get("split") if sizes is None else integers(sizes, "the sizes of Split")
    if wanted is None:
        # the last part may be smaller
        part = -(-length // count)
        ends = [min(length, part * (number + 1)) for number in range(count)]
    else:
        joining.use_table(call.algebra, x, sizes)
        ends = np.cumsum(wanted).tolist()
    starts = [0, *ends[:-1]]
    return [
        call.algebra.move(x, lambda data, places=range(start, end): data.take(places, axis))
        for start, end in zip(starts, ends, strict=True)
    ]


@table.operators("Gather")
def gather(call: NodeCall, x: Value, ids: Value) -> Value:
    return joining.take(call.algebra, x, ids, call.get("axis", 0))


@table.operators("GatherElements")
def gather_elements(call: NodeCall, x: Value, ids: Value) -> Value:
    return joining.elements_along(call.algebra, x, ids, call.get("axis", 0))


@table.operators("GatherND")
def gather_places(call: NodeCall, x: Value, ids: Value) -> Value:
    if call.get("batch_dims", 0):
        raise UndecidedError("GatherND with batch_dims")
    columns = [
        call.algebra.move(ids, lambda data, at=at: np.asarray(data[..., at]))
        for at in range(shape_of(ids)[-1])
    ]
    if len(columns) == 1:
        return joining.take(call.algebra, x, columns[0], 0)
    return joining.elements_at(call.algebra, x, columns)


@table.operators("Pad")
def pad(
    call: NodeCall, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None
) -> Value:
    numbers = integers(pads, "the sizes of Pad")
    half = len(numbers) // 2
    widths = [(0, 0)] * len(shape_of(x))
    for place, axis in enumerate(range(half) if axes is None else integers(axes, "an axis")):
        widths[axis] = (numbers[place], numbers[half + place])
    return joining.pad(call.algebra, x, widths, call.get("mode", "constant"), 0 if value is None else value)


@table.operators("Trilu")
def triangle(call: NodeCall, x: Value, diagonal: Value | None = None) -> Value:
    (number,) = [0] if diagonal is None else integers(diagonal, "a diagonal")
    call.algebra.sizes.use_reach(number, max(shape_of(x)[-2:]))
    function = np.triu if call.get("upper", 1) else np.tril
    return call.algebra.move(x, lambda data: function(data, number))


@table.operators("DepthToSpace")
def depth_to_space(call: NodeCall, x: Value) -> Value:
    rows, channels, height, width = shape_of(x)
    block = call.get("blocksize")
    maps = channels // block**2
    if call.get("mode", "DCR") == "DCR":
        split_shape, order = (rows, block, block, maps, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split_shape, order = (rows, maps, block, block, height, width), (0, 1, 4, 2, 5, 3)

    def move(data: Array) -> Array:
        joined = (rows, maps, height * block, width * block)
        return data.reshape(split_shape).transpose(order).reshape(joined)

    return call.algebra.move(x, move)
