"""Tensors of which an axis has as many places as a mask of the input has true ones: `y[mask]`, NonZero.

Their length is unknown, so each stands for a number at every place of the mask, of which those count where it
holds. They can be computed with number by number, summed, and written back where the same mask holds:
`y[mask] = f(z[mask])` is `where(mask, f(z), y)`. Everything else with them is not decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from turnpike.export.identity.algebra import reductions
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    UndecidedError,
    Value,
    kind_of,
    shape_of,
)
from turnpike.export.identity.algebra.joining import elements_at
from turnpike.export.identity.algebra.reductions import Axes, axes_of


@dataclass(frozen=True, eq=False)
class Selected:
    """Numbers where a mask holds, in the order of its places.

    Attributes:
        mask: The mask, with one axis.
        values: A number, or a tensor, for each place of the mask: its first axis is that of the mask.
    """

    mask: Term
    values: Value


@dataclass(frozen=True, eq=False)
class Places:
    """The places where a mask holds: NonZero and `nonzero`.

    Attributes:
        mask: The mask, with one axis.
        ids: For all of its places, the ids along each axis of the tensor: (places, axes).
        form: "rows" if each place is a row, "columns" if it is a column, "ids" for a mask of one axis as a
            vector.
    """

    mask: Term
    ids: Array
    form: str


@dataclass(frozen=True, eq=False)
class SelectedShape:
    """The shape of numbers where a mask holds, followed by known sizes."""

    mask: Term
    rest: tuple[int, ...] = ()


Selection: TypeAlias = Selected | Places | SelectedShape


def flat(algebra: Algebra, mask: Term) -> Term:
    return algebra.move(mask, lambda data: data.reshape(-1))


def is_same(mask: Term, other: Term) -> bool:
    return np.array_equal(mask.data, other.data)


def select(algebra: Algebra, a: Value, mask: Term) -> Selected:
    """The numbers of a tensor where a mask of its first axes holds."""
    if shape_of(a)[: mask.ndim] != mask.shape:
        raise UndecidedError(f"a mask of the shape {mask.shape} for a tensor of {shape_of(a)}")
    inner = shape_of(a)[mask.ndim :]
    return Selected(flat(algebra, mask), algebra.move(a, lambda data: data.reshape(-1, *inner)))


def select_first(algebra: Algebra, a: Value, mask: Term) -> Selected:
    """As many of the first numbers of a vector as a mask has true places."""
    before = algebra.subtract(reductions.cumulative_sum(algebra, algebra.cast(mask, np.int64), 0), 1)
    return Selected(mask, elements_at(algebra, algebra.term(a), [before]))


def write_where(algebra: Algebra, a: Value, mask: Term, new: Value | Selected, *, add: bool = False) -> Value:
    """A tensor with other numbers where a mask of its first axes holds."""
    inner = len(shape_of(a)) - mask.ndim
    if isinstance(new, Selected):
        if not is_same(new.mask, flat(algebra, mask)):
            raise UndecidedError("numbers where one mask holds are written where another one does")
        rest = shape_of(new.values)[1:]
        if len(rest) != inner:
            raise UndecidedError("numbers with other axes than those where a mask holds")
        numbers: Value = algebra.move(new.values, lambda data: data.reshape(*mask.shape, *rest))
    else:
        if len(shape_of(new)) > inner and shape_of(new)[0] != 1:
            raise UndecidedError("a number for each place where a mask of the input holds")
        numbers = new
        if len(shape_of(new)) > inner:
            numbers = algebra.move(new, lambda data: data.reshape(data.shape[1:]))
    condition = algebra.move(mask, lambda data: data.reshape(*data.shape, *(1,) * inner))
    if add:
        return algebra.add(a, algebra.multiply(condition, numbers))
    result = algebra.where(condition, numbers, a)
    if shape_of(result) != shape_of(a):
        raise UndecidedError("numbers of another shape than those where a mask holds")
    if isinstance(result, Term) and kind_of(a) == kind_of(numbers) == "b":
        return Term(result.data, "b", result.size, is_binary=True)
    return result


def dense(algebra: Algebra, values: Sequence[Any]) -> tuple[Term, list[Any]]:
    """The mask that several values have in common, and each of them for all of its places.

    Numbers that are not selected have to be the same at all places.
    """
    selected = [value for value in values if isinstance(value, Selected)]
    mask = selected[0].mask
    rank = max(len(shape_of(value.values)) for value in selected)
    numbers: list[Any] = []
    for value in values:
        if isinstance(value, Selected):
            if not is_same(value.mask, mask) or len(shape_of(value.values)) != rank:
                raise UndecidedError("arithmetic with numbers where different masks hold")
            numbers.append(value.values)
        elif isinstance(value, Places | SelectedShape):
            raise UndecidedError("arithmetic with the places where a mask of the input holds")
        else:
            shape = np.shape(value) if isinstance(value, list | tuple) else shape_of(value)
            if not isinstance(value, str | list | tuple | None) and len(shape) >= rank and shape[0] != 1:
                raise UndecidedError("arithmetic with numbers where a mask holds, and others")
            numbers.append(value)
    return mask, numbers


def sum_of(algebra: Algebra, chosen: Selected, axes: Axes, keepdims: bool, is_mean: bool = False) -> Value:
    """The sum or the mean of all chosen numbers, or of those along the axis of the mask."""
    summed = axes_of(chosen.values, axes)
    if 0 not in summed:
        raise UndecidedError("a sum within each of the numbers that a mask of the input chooses")
    inner = len(shape_of(chosen.values)) - 1
    condition = algebra.move(chosen.mask, lambda data: data.reshape(*data.shape, *(1,) * inner))
    kept = algebra.where(condition, chosen.values, 0)
    total = reductions.sum_of(algebra, kept, summed, keepdims=keepdims)
    if not is_mean:
        return total
    count = reductions.sum_of(algebra, algebra.cast(chosen.mask, np.int64))
    others = math.prod(shape_of(chosen.values)[axis] for axis in summed if axis)
    return algebra.divide(total, algebra.multiply(count, others))


def all_places(shape: Sequence[int]) -> Array:
    """The ids of all places of a tensor, in order: (places, axes)."""
    return np.stack([ids.reshape(-1) for ids in np.indices(tuple(shape))], -1)


def places_of(algebra: Algebra, a: Value, form: str) -> Places | Value:
    """The places where a tensor is not 0, as rows or columns."""
    if isinstance(a, Sizes):
        raise UndecidedError("the places where sizes are not 0")
    if not isinstance(a, Term):
        places = np.array(np.nonzero(np.asarray(a)), np.int64)
        return algebra.of_this_run("places", places if form == "columns" else places.T)
    if not a.ndim:
        raise UndecidedError("the places of a number")
    mask = algebra.term(algebra.cast(a, np.bool_))
    return Places(flat(algebra, mask), all_places(a.shape), form)
