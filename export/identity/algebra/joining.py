"""Joins, pads and looks up terms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra, is_growing_size
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    UndecidedError,
    Value,
    joint_kind,
    kind_of,
    known,
    shape_of,
)
from turnpike.export.identity.numbers.error_bound import ATOM

# Elements of a table, times places that are looked up in it at ids of the input: 8 bytes for each prime.
MAX_ELEMENTS = 4_000_000


def concatenate(algebra: Algebra, values: Sequence[Value], axis: int) -> Value:
    result = algebra.integers(
        lambda *arrays: np.concatenate(arrays, axis),
        lambda *terms: concatenate(algebra, terms, axis),
        *values,
    )
    if isinstance(result, Sizes):
        is_growing = all(map(is_growing_size, values))
        return Sizes(result.numbers, result.term, result.ledger, is_growing)
    if result is not None:
        return result
    if not any(isinstance(value, Term) for value in values):
        return np.concatenate([np.asarray(value) for value in values], axis)
    terms = [algebra.term(value) for value in values]
    size = terms[0].size
    for term in terms[1:]:
        size = size.plus(term.size)
    data = np.concatenate([term.data for term in terms], axis % terms[0].ndim + 1)
    return Term(data, joint_kind(*values), size, all(term.is_binary for term in terms))


def stack(algebra: Algebra, values: Sequence[Value], axis: int) -> Value:
    place = axis % (len(shape_of(values[0])) + 1)
    parts = [algebra.move(value, lambda data: np.expand_dims(data, place)) for value in values]
    return concatenate(algebra, parts, place)


def pad(
    algebra: Algebra, a: Value, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Value = 0
) -> Value:
    """Pad or, where a width is negative, crop. The modes are those of NumPy."""
    shape = shape_of(a)
    for pair, size in zip(widths, shape, strict=True):
        for width in pair:
            algebra.sizes.use_reach(width, size)
    crops = tuple(
        slice(max(0, -low), size - max(0, -high)) for (low, high), size in zip(widths, shape, strict=True)
    )
    a = algebra.move(a, lambda data: data[crops])
    added = [(max(0, low), max(0, high)) for low, high in widths]
    if mode != "constant":
        return algebra.move(a, lambda data: np.pad(data, added, mode))  # type: ignore[call-overload]
    inside = np.pad(np.ones(shape_of(a), bool), added)
    return algebra.where(inside, algebra.move(a, lambda data: np.pad(data, added)), value)


def use_table(algebra: Algebra, table: Value, *bounds: Value | None) -> None:
    """Note that a table is cut or read at these bounds or ids, if that depends on sizes."""
    if not isinstance(table, Term | Sizes) and any(isinstance(bound, Sizes) for bound in bounds):
        algebra.sizes.use_table(np.asarray(table))


def take_along(algebra: Algebra, a: Value, ids: Array, axis: int) -> Value:
    """The numbers at ids along an axis. Along the other axes, ids may have fewer places than the numbers."""
    chosen = [slice(size) for size in ids.shape]
    chosen[axis] = slice(None)
    return algebra.move(a, lambda data: np.take_along_axis(data[tuple(chosen)], ids, axis))


def take(algebra: Algebra, table: Value, ids: Value, axis: int) -> Value:
    """Numbers of a table along an axis. At ids of an input, a row is a random function of table and id."""
    rank = len(shape_of(table))
    axis %= rank
    if not isinstance(ids, Term):
        places = known(ids, "ids")
        use_table(algebra, table, ids)
        return algebra.move(table, lambda data: np.take(data, places, axis))
    if isinstance(table, Term | Sizes):
        front = algebra.move(table, lambda data: np.moveaxis(data, axis, 0))
        found = elements_at(algebra, front, [ids])
        return algebra.move(found, lambda data: _with_axes_at(data, ids.ndim, axis))
    rows = np.moveaxis(np.asarray(table), axis, 0)
    data = algebra.numbers.rows(rows, ids.data)
    algebra.bound.count_function("rows of a table", ids.data[0].size, ids.size)
    looked_up = Term(data, kind_of(rows), ATOM)
    return algebra.move(looked_up, lambda data: _with_axes_at(data, ids.ndim, axis))


def _with_axes_at(data: Array, count: int, axis: int) -> Array:
    """Move the first axes, those of ids, to where the axis of the table was."""
    return np.moveaxis(data, range(count), range(axis, axis + count))


def elements_at(algebra: Algebra, table: Value, ids: Sequence[Value]) -> Value:
    """The parts of a table at ids of its first axes.

    If any of them depends on the input, a part is a random function of its ids and of all parts.
    """
    if not any(isinstance(value, Term | Sizes) for value in ids):
        key = tuple(np.asarray(value) for value in ids)
        return algebra.move(table, lambda data: data[key])
    sizes, inner = shape_of(table)[: len(ids)], shape_of(table)[len(ids) :]
    count = math.prod(sizes)
    places = np.broadcast_shapes(*map(shape_of, ids))
    if count * math.prod(places) * math.prod(inner) > MAX_ELEMENTS:
        raise UndecidedError(f"{math.prod(places)} ids of the input in a table of {count} computed parts")
    parts = [
        algebra.move(table, lambda data, index=index: data.reshape(count, *inner)[index])
        for index in range(count)
    ]
    columns = [
        algebra.move(value, lambda data: data.reshape(*data.shape, *(1,) * len(inner))) for value in ids
    ]
    return algebra.function(f"element of {sizes}", *columns, *parts, kind=kind_of(table))


def elements_along(algebra: Algebra, table: Value, ids: Value, axis: int) -> Value:
    """The numbers at ids along an axis, at the places that the ids have in the other axes."""
    if not isinstance(ids, Term):
        use_table(algebra, table, ids)
        return take_along(algebra, table, known(ids, "ids"), axis)
    axis %= ids.ndim
    count = shape_of(table)[axis]
    if count * math.prod(ids.shape) > MAX_ELEMENTS:
        raise UndecidedError(f"{math.prod(ids.shape)} ids of the input among {count} numbers")
    inside = tuple(slice(None) if place == axis else slice(size) for place, size in enumerate(ids.shape))
    parts = [
        algebra.move(table, lambda data, index=index: data[inside].take([index], axis))
        for index in range(count)
    ]
    return algebra.function(f"element of ({count},)", ids, *parts, kind=kind_of(table))
