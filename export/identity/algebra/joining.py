"""Joins, pads and looks up terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra, is_growing_size
from turnpike.export.identity.algebra.terms import (
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
    crops = tuple(
        slice(max(0, -low), size - max(0, -high)) for (low, high), size in zip(widths, shape, strict=True)
    )
    a = algebra.move(a, lambda data: data[crops])
    added = [(max(0, low), max(0, high)) for low, high in widths]
    if mode != "constant":
        return algebra.move(a, lambda data: np.pad(data, added, mode))  # type: ignore[call-overload]
    inside = np.pad(np.ones(shape_of(a), bool), added)
    return algebra.where(inside, algebra.move(a, lambda data: np.pad(data, added)), value)


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
        return algebra.move(table, lambda data: np.take(data, places, axis))
    if isinstance(table, Term | Sizes):
        raise UndecidedError("a table that depends on the input, at ids that do")
    rows = np.moveaxis(np.asarray(table), axis, 0)
    data = algebra.numbers.rows(rows, ids.data)
    algebra.bound.count_function("rows of a table", ids.data[0].size, ids.size)
    looked_up = Term(data, kind_of(rows), ATOM)
    # the axes of the ids stand where the axis was
    before = [ids.ndim + place for place in range(axis)]
    after = [ids.ndim + place for place in range(axis, rank - 1)]
    order = [*before, *range(ids.ndim), *after]
    return algebra.move(looked_up, lambda data: data.transpose(order))
