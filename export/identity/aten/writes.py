"""Operators of ATen that write into tensors; torch.export has made copies of those in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import chosen_rows, joining, positions, writes
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Term,
    UndecidedError,
    Value,
    kind_of,
    known,
    shape_of,
)
from turnpike.export.identity.aten.operator_table import Call, OperatorTable

table = OperatorTable()

# the names of reductions in ONNX
REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
# what a place begins with if its own number does not count
FIRST_NUMBERS = {"add": 0, "mul": 1}


@table.operators("copy")
def copy(call: Call, self_: Value, src: Value, non_blocking: bool = False) -> Value:
    return _spread(call, call.algebra.cast(src, call.dtype), shape_of(self_))


@table.operators("fill")
def fill(call: Call, self_: Value, value: Value) -> Value:
    return _spread(call, call.algebra.cast(value, call.dtype), shape_of(self_))


def _spread(call: Call, value: Value, shape: tuple[int, ...]) -> Value:
    return call.algebra.move(value, lambda data: np.ascontiguousarray(np.broadcast_to(data, shape)))


@table.operators("slice_scatter")
def write_slice(
    call: Call, self_: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    algebra, axis = call.algebra, dim % len(shape_of(self_))
    for bound in (start, end):
        algebra.sizes.use_bound(bound, shape_of(self_)[axis])
    joining.use_table(algebra, self_, start, end)
    # torch.onnx writes at positions
    length = algebra.move(algebra.sizes_of(self_), lambda data: np.asarray(data[axis]))
    known(positions.count_up(algebra, 0, length, 1), "a position")
    key = (*(slice(None),) * axis, slice(start, end, step))
    return writes.write_slice(algebra, self_, src, key)


@table.operators("select_scatter")
def write_selected(call: Call, self_: Value, src: Value, dim: int, index: int) -> Value:
    axis = dim % len(shape_of(self_))
    return writes.write_slice(call.algebra, self_, src, (*(slice(None),) * axis, int(index)))


@table.operators("index_put", "_unsafe_index_put")
def write_at(
    call: Call, self_: Value, indices: Sequence[Value | None], values: Any, accumulate: bool = False
) -> Value:
    algebra = call.algebra
    mask = mask_of(indices)
    if mask is not None:
        return chosen_rows.write_where(algebra, self_, mask, values, add=accumulate)
    if isinstance(values, chosen_rows.Selected):
        raise UndecidedError("numbers where a mask of the input holds are written to other places")
    columns = columns_of(call, indices, len(shape_of(self_)))
    axes = [axis for axis, ids in enumerate(columns) if ids is not None]
    others = [axis for axis, ids in enumerate(columns) if ids is None]
    ids = [column for column in columns if column is not None]
    if not ids:
        return _spread(call, values, shape_of(self_))
    places = np.broadcast_shapes(*map(shape_of, ids))
    # the axes of the ids stand for theirs, or come first if these are apart
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    sizes = [shape_of(self_)[axis] for axis in others]
    form = (*sizes[:first], *places, *sizes[first:])
    moved = range(first, first + len(places))
    numbers = algebra.move(
        values, lambda data: np.moveaxis(np.broadcast_to(data, form), moved, range(len(places)))
    )
    front = algebra.move(self_, lambda data: data.transpose(*axes, *others))
    written = writes.write_at(algebra, front, ids, numbers, "add" if accumulate else "none")
    return algebra.move(written, lambda data: data.transpose(np.argsort([*axes, *others])))


def mask_of(indices: Sequence[Value | None]) -> Term | None:
    """The mask of the input that chooses places of the first axes; None if there are ids alone."""
    given = [ids for ids in indices if ids is not None]
    if not any(isinstance(ids, Term) and kind_of(ids) == "b" for ids in given):
        return None
    if len(given) > 1 or indices[0] is None:
        raise UndecidedError("a mask of the input beside other ids, or behind other axes")
    mask = given[0]
    return mask if isinstance(mask, Term) else None


def columns_of(call: Call, indices: Sequence[Value | None], rank: int) -> list[Value | None]:
    """Ids for each axis; a known mask stands for those where it holds, in each of its axes."""
    columns: list[Value | None] = []
    for ids in indices:
        if ids is not None and kind_of(ids) == "b":
            # torch.onnx computes its places, which are positions
            places = np.array(np.nonzero(known(ids, "a mask")), np.int64)
            columns.extend(known(call.algebra.of_this_run("places", places), "a place"))
        else:
            columns.append(ids)
    return columns + [None] * (rank - len(columns))


@table.operators("scatter.src", "scatter.value", "scatter_add")
def write_along(call: Call, self_: Value, dim: int, index: Value, **new: Value) -> Value:
    numbers = new["src"] if "src" in new else np.full(shape_of(index), new["value"], call.dtype)
    reduction = "add" if call.operator == "scatter_add" else "none"
    return writes.write_along(call.algebra, self_, index, numbers, dim, reduction)


@table.operators("scatter_reduce.two")
def write_reduced(
    call: Call, self_: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    reduction = REDUCTIONS.get(reduce)
    if reduction is None:
        raise UndecidedError(f"scatter_reduce by {reduce}")
    algebra = call.algebra
    if not include_self:
        if reduction not in FIRST_NUMBERS:
            raise UndecidedError(f"scatter_reduce by {reduce} without the numbers of the tensor")
        first = np.full(shape_of(src), FIRST_NUMBERS[reduction], call.dtype)
        self_ = writes.write_along(algebra, self_, index, first, dim)
    return writes.write_along(algebra, self_, index, src, dim, reduction)


@table.operators("masked_scatter")
def write_in_turn(call: Call, self_: Value, mask: Value, source: Value) -> Value:
    """Where the mask holds: the first number of the source, the second, and so on."""
    if not isinstance(mask, Term):
        raise UndecidedError("masked_scatter with a known mask")
    algebra = call.algebra
    whole = algebra.move(
        algebra.cast(mask, np.bool_), lambda data: np.broadcast_to(data, shape_of(self_)).copy()
    )
    numbers = algebra.move(source, lambda data: data.reshape(-1))
    chosen = chosen_rows.select_first(algebra, numbers, chosen_rows.flat(algebra, algebra.term(whole)))
    return chosen_rows.write_where(algebra, self_, algebra.term(whole), chosen)


@table.operators("nonzero")
def places(call: Call, self_: Value) -> Any:
    return chosen_rows.places_of(call.algebra, self_, "rows")


@table.operators("col2im")
def columns_to_image(
    call: Call,
    self_: Value,
    output_size: Sequence[Any],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    pads = [(size, size) for size in padding]
    size = [int(number) for number in output_size]
    x = self_ if len(shape_of(self_)) == 3 else call.algebra.move(self_, lambda data: data[None])
    image = writes.add_windows(call.algebra, x, size, kernel_size, stride, pads, dilation)
    return image if x is self_ else call.algebra.move(image, lambda data: data[0])


@table.operators("diagonal", "diagonal_copy")
def diagonal(call: Call, self_: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    def cut(data: Array) -> Array:
        return np.ascontiguousarray(np.diagonal(data, offset, dim1, dim2))

    algebra, shape = call.algebra, shape_of(self_)
    algebra.sizes.use_reach(offset, max(shape[dim1], shape[dim2]))
    # torch.onnx computes where the diagonal ends
    sizes = algebra.sizes_of(self_)
    rows, columns = (algebra.move(sizes, lambda data, at=at: np.asarray(data[at])) for at in (dim1, dim2))
    length = algebra.add(rows, offset) if offset < 0 else algebra.subtract(columns, offset)
    length = algebra.maximum(algebra.minimum(length, algebra.minimum(rows, columns)), 0)
    known(algebra.add(length, max(offset, 0)), "the end of a diagonal")
    return algebra.move(self_, cut)
