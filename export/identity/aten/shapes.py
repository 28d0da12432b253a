"""Operators of ATen that move, join, repeat or make numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import joining, positions
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    UndecidedError,
    Value,
    shape_of,
)
from turnpike.export.identity.aten.operator_table import Call, OperatorTable

table = OperatorTable()

UNCHANGED = ("clone", "alias", "detach", "detach_", "contiguous", "lift_fresh_copy")
DROPOUTS = ("dropout", "native_dropout", "alpha_dropout", "feature_dropout")
CHECKS = ("_assert_scalar", "_assert_async", "_assert_tensor_metadata")


@table.operators(*UNCHANGED)
def unchanged(call: Call, self_: Value, **_: Any) -> Value:
    return self_


@table.operators(*DROPOUTS)
def dropout(call: Call, input: Value, train: bool | None = False, **_: Any) -> Any:  # noqa: A002
    if train:
        raise UndecidedError("dropout in training mode")
    return (input, None) if call.operator == "native_dropout" else input


@table.operators(*CHECKS)
def check(call: Call, **_: Any) -> None:
    """Nothing that has an effect on a result."""


@table.operators("sym_size")
def size(call: Call, self_: Value, dim: int) -> Value:
    return call.algebra.move(call.algebra.sizes_of(self_), lambda data: np.asarray(data[dim]))


@table.operators("view", "reshape", "_unsafe_view", "view_copy")
def reshape(call: Call, self_: Value, **shape: Any) -> Value:
    (wanted,) = shape.values()
    sizes = [int(number) for number in wanted]
    return call.algebra.move(self_, lambda data: data.reshape(sizes))


@table.operators("flatten")
def flatten(call: Call, self_: Value, start_dim: int, end_dim: int) -> Value:
    shape = shape_of(self_)
    rank = max(len(shape), 1)
    start, end = start_dim % rank, end_dim % rank
    return call.algebra.move(self_, lambda data: data.reshape(*shape[:start], -1, *shape[end + 1 :]))


@table.operators("unflatten")
def unflatten(call: Call, self_: Value, dim: int, sizes: Sequence[int]) -> Value:
    shape = shape_of(self_)
    axis = dim % len(shape)
    return call.algebra.move(self_, lambda data: data.reshape(*shape[:axis], *sizes, *shape[axis + 1 :]))


@table.operators("permute", "permute_copy")
def permute(call: Call, self_: Value, dims: Sequence[int]) -> Value:
    return call.algebra.move(self_, lambda data: data.transpose(dims))


@table.operators("transpose", "transpose_copy", "t", "numpy_T")
def transpose(call: Call, self_: Value, dim0: int = 0, dim1: int = 1) -> Value:
    return call.algebra.move(self_, lambda data: data.swapaxes(dim0, dim1) if data.ndim > 1 else data)


@table.operators("unsqueeze", "unsqueeze_copy")
def unsqueeze(call: Call, self_: Value, dim: int) -> Value:
    return call.algebra.move(self_, lambda data: np.expand_dims(data, dim))


@table.operators("squeeze", "squeeze_copy")
def squeeze(call: Call, self_: Value, dim: Any = None) -> Value:
    shape = shape_of(self_)
    dims = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    ones = tuple(axis % len(shape) for axis in dims if shape[axis] == 1)
    return call.algebra.move(self_, lambda data: data.squeeze(ones))


@table.operators("expand", "expand_copy", "broadcast_to")
def expand(call: Call, self_: Value, size: Sequence[Any], implicit: bool = False) -> Value:
    shape = shape_of(self_)
    old = (1,) * (len(size) - len(shape)) + tuple(shape)
    sizes = [before if int(wanted) == -1 else int(wanted) for wanted, before in zip(size, old, strict=True)]
    return call.algebra.move(self_, lambda data: np.ascontiguousarray(np.broadcast_to(data, sizes)))


@table.operators("expand_as")
def expand_as(call: Call, self_: Value, other: Value) -> Value:
    shape = shape_of(other)
    return call.algebra.move(self_, lambda data: np.ascontiguousarray(np.broadcast_to(data, shape)))


@table.operators("broadcast_in_dim")
def broadcast_in_dim(
    call: Call, a: Value, shape: Sequence[Any], broadcast_dimensions: Sequence[int]
) -> Value:
    places, old = list(broadcast_dimensions), shape_of(a)
    sizes = [old[places.index(axis)] if axis in places else 1 for axis in range(len(shape))]
    wanted = [int(number) for number in shape]
    return call.algebra.move(
        a, lambda data: np.ascontiguousarray(np.broadcast_to(data.reshape(sizes), wanted))
    )


@table.operators("repeat")
def repeat(call: Call, self_: Value, repeats: Sequence[int]) -> Value:
    counts = [int(number) for number in repeats]

    def tiled(data: Array) -> Array:
        return np.tile(data.reshape((1,) * (len(counts) - data.ndim) + data.shape), counts)

    return call.algebra.move(self_, tiled)


@table.operators("repeat_interleave.self_int")
def repeat_each(
    call: Call, self_: Value, repeats: int, dim: int | None = None, output_size: Any = None
) -> Value:
    return call.algebra.move(self_, lambda data: np.repeat(data, repeats, dim))


@table.operators("slice", "slice_copy")
def slice_axis(
    call: Call, self_: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    key = [slice(None)] * len(shape_of(self_))
    for bound in (start, end):
        call.algebra.sizes.use_bound(bound, shape_of(self_)[dim])
    joining.use_table(call.algebra, self_, start, end)
    key[dim] = slice(start, end, step)
    return call.algebra.move(self_, lambda data: data[tuple(key)])


@table.operators("narrow")
def narrow(call: Call, self_: Value, dim: int, start: int, length: int) -> Value:
    return slice_axis(call, self_, dim, start, start + length)


@table.operators("select", "select_copy")
def select(call: Call, self_: Value, dim: int, index: int) -> Value:
    return call.algebra.move(self_, lambda data: np.asarray(data.take(int(index), dim)))


@table.operators("split", "split_copy", "split_with_sizes", "split_with_sizes_copy", "chunk")
def split(call: Call, self_: Value, dim: int = 0, **sizes: Any) -> list[Value]:
    (wanted,) = sizes.values()
    total = shape_of(self_)[dim]
    if call.operator == "chunk":
        wanted = -(-total // wanted)
    ends = [*range(wanted, total, wanted), total] if isinstance(wanted, int) else np.cumsum(wanted).tolist()
    starts = [0, *ends[:-1]]
    return [slice_axis(call, self_, dim, start, end) for start, end in zip(starts, ends, strict=True)]


@table.operators("unbind", "unbind_copy")
def unbind(call: Call, self_: Value, dim: int = 0) -> list[Value]:
    return [select(call, self_, dim, number) for number in range(shape_of(self_)[dim])]


@table.operators("cat", "concat")
def concatenate(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    # PyTorch ignores an empty vector among other tensors
    return joining.concatenate(call.algebra, [value for value in tensors if shape_of(value) != (0,)], dim)


@table.operators("stack")
def stack(call: Call, tensors: Sequence[Value], dim: int = 0) -> Value:
    return joining.stack(call.algebra, tensors, dim)


@table.operators("flip")
def flip(call: Call, self_: Value, dims: Sequence[int]) -> Value:
    return call.algebra.move(self_, lambda data: np.flip(data, tuple(dims)))


@table.operators("roll")
def roll(call: Call, self_: Value, shifts: Any, dims: Any = ()) -> Value:
    return call.algebra.move(self_, lambda data: np.roll(data, shifts, dims or None))


@table.operators("tril", "triu")
def triangle(call: Call, self_: Value, diagonal: int = 0) -> Value:
    call.algebra.sizes.use_reach(diagonal, max(shape_of(self_)[-2:]))
    function = np.tril if call.operator == "tril" else np.triu
    return call.algebra.move(self_, lambda data: function(data, diagonal))


@table.operators("constant_pad_nd", "pad")
def pad(
    call: Call, self_: Value, pad: Sequence[Any], value: Value | None = 0, mode: str = "constant"
) -> Value:
    pairs = [(int(low), int(high)) for low, high in zip(pad[::2], pad[1::2], strict=True)][::-1]
    widths = [(0, 0)] * (len(shape_of(self_)) - len(pairs)) + pairs
    numpy_mode = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    return joining.pad(call.algebra, self_, widths, numpy_mode, 0 if value is None else value)


@table.operators("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d")
def pad_with_values(call: Call, self_: Value, padding: Sequence[Any]) -> Value:
    return pad(call, self_, padding, mode="reflect" if "reflection" in call.operator else "replicate")


@table.operators("unfold", "unfold_copy")
def unfold(call: Call, self_: Value, dimension: int, size: int, step: int) -> Value:
    def cut(data: Array) -> Array:
        windows = np.lib.stride_tricks.sliding_window_view(data, size, dimension)
        key = [slice(None)] * windows.ndim
        key[dimension] = slice(None, None, step)
        return windows[tuple(key)]

    return call.algebra.move(self_, cut)


FILLED = [f"{prefix}{name}" for prefix in ("", "new_") for name in ("full", "zeros", "ones", "empty")]
FILLED += ["full_like", "zeros_like", "ones_like", "empty_like", "scalar_tensor"]


@table.operators(*FILLED)
def filled(
    call: Call,
    self_: Value | None = None,
    size: Sequence[Any] | None = None,
    fill_value: Value | None = None,
    s: Value | None = None,
    **_: Any,
) -> Value:
    if call.operator == "scalar_tensor":
        value, shape = s, list[int]()
    else:
        default = 1 if "ones" in call.operator else 0
        value = default if fill_value is None else fill_value
        shape = [int(n) for n in (shape_of(self_) if size is None and self_ is not None else size or ())]
    if isinstance(value, Term | Sizes):
        return call.algebra.move(
            call.algebra.cast(value, call.dtype), lambda data: np.broadcast_to(data, shape)
        )
    return np.full(shape, value, call.dtype)


@table.operators("arange")
def count_up(call: Call, end: Any, start: Any = 0, step: Any = 1, **_: Any) -> Value:
    return call.algebra.cast(positions.count_up(call.algebra, start, end, step), call.dtype)


@table.operators("eye")
def unit_matrix(call: Call, n: int, m: int | None = None, **_: Any) -> Value:
    return np.eye(n, m, dtype=call.dtype)


@table.operators("linspace")
def linspace(call: Call, **_: Any) -> Value:
    raise UndecidedError("linspace, which rounds")


@table.operators("diag_embed")
def diagonal_matrix(call: Call, self_: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    if offset or (dim1, dim2) != (-2, -1):
        raise UndecidedError("diag_embed off the last diagonal")
    inside = np.eye(shape_of(self_)[-1], dtype=bool)
    return call.algebra.where(inside, call.algebra.move(self_, lambda data: data[..., None]), 0)
