"""Writes numbers into tensors: at known places, at ids of the input, and where a mask holds.

A write at ids of an input is a condition for each place: its number is replaced, or combined with the new
one, if the id is that place. As in PyTorch, ids are not negative, and of several writes to one place the last
one counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    UndecidedError,
    Value,
    joint_kind,
    known,
    known_integers,
    shape_of,
)
from turnpike.export.identity.algebra.joining import MAX_ELEMENTS

# how a new number is combined with the one at its place; "none" replaces it
COMBINATIONS: dict[str, Callable[[Algebra, Value, Value], Value]] = {
    "none": lambda algebra, old, new: new,
    "add": Algebra.add,
    "mul": Algebra.multiply,
    "max": Algebra.maximum,
    "min": Algebra.minimum,
}


def write_slice(algebra: Algebra, a: Value, new: Value, key: tuple[slice | int, ...]) -> Value:
    """A tensor with other numbers in a part of it. These have the shape of the part, or broadcast to it."""

    def written(old: Array, numbers: Array) -> Array:
        changed = np.array(old, np.result_type(old, numbers))
        changed[key] = numbers
        return changed

    return _joined(algebra, written, a, new)


def _joined(algebra: Algebra, function: Callable[[Array, Array], Array], a: Value, new: Value) -> Value:
    """The result of a function that only moves the numbers of both operands."""
    result = algebra.integers(function, lambda x, y: _joined(algebra, function, x, y), a, new)
    if result is not None:
        return result
    if not any(isinstance(value, Term | Sizes) for value in (a, new)):
        return function(np.asarray(a), np.asarray(new))
    x, y = algebra.term(a), algebra.term(new)
    data = np.stack([function(old, numbers) for old, numbers in zip(x.data, y.data, strict=True)])
    return Term(data, joint_kind(a, new), x.size.plus(y.size), x.is_binary and y.is_binary)


def write_along(
    algebra: Algebra, a: Value, ids: Value, new: Value, axis: int, reduction: str = "none"
) -> Value:
    """Write each number to the place that its id has along an axis, as scatter and ScatterElements do."""
    rank = len(shape_of(ids))
    axis %= max(rank, 1)
    inside = tuple(slice(size) for size in shape_of(ids))
    new = algebra.move(new, lambda data: data[inside])
    if isinstance(ids, Term):
        # the axis moves to the front, and the other axes have fewer places than the tensor
        front, places, numbers = (
            algebra.move(value, lambda data: np.moveaxis(data, axis, 0)) for value in (a, ids, new)
        )
        part = tuple(slice(size) for size in shape_of(places)[1:])
        region = algebra.move(front, lambda data: data[:, *part])
        written = _write_at_ids(algebra, region, [places], numbers, 1, reduction)
        whole = write_slice(algebra, front, written, (slice(None), *part))
        return algebra.move(whole, lambda data: np.moveaxis(data, 0, axis))
    places = np.array(np.indices(shape_of(ids)))
    numbers = known(ids, "the ids of a write")
    places[axis] = np.where(numbers < 0, numbers + shape_of(a)[axis], numbers)
    return _write_at_known(algebra, a, list(places), new, reduction)


def write_at(algebra: Algebra, a: Value, ids: Sequence[Value], new: Value, reduction: str = "none") -> Value:
    """Write parts to the places that ids have in the first axes, as index_put and ScatterND do."""
    if not any(isinstance(column, Term) for column in ids):
        columns = [known(column, "the ids of a write") for column in ids]
        return _write_at_known(algebra, a, columns, new, reduction)
    shape = np.broadcast_shapes(*map(shape_of, ids))
    flat = [
        algebra.move(algebra.term(column), lambda data: np.broadcast_to(data, shape).reshape(-1))
        for column in ids
    ]
    inner = shape_of(a)[len(ids) :]
    numbers = algebra.move(new, lambda data: np.broadcast_to(data, (*shape, *inner)).reshape(-1, *inner))
    return _write_at_ids(algebra, a, flat, numbers, len(ids), reduction)


def _write_at_ids(
    algebra: Algebra, a: Value, ids: Sequence[Value], new: Value, count: int, reduction: str
) -> Value:
    """Write number after number; each has an id for each of the first `count` axes of the tensor.

    Ids have their own axis first, and then those axes of the tensor that have an id for each place.
    """
    sizes = shape_of(a)[:count]
    writes = shape_of(new)[0]
    if writes * math.prod(shape_of(a)) > MAX_ELEMENTS:
        raise UndecidedError(f"{writes} ids of the input for {math.prod(shape_of(a))} places")
    rank = len(shape_of(a))
    combine = COMBINATIONS[reduction]
    result: Value = algebra.term(a)
    for number in range(writes):
        hit: Value | None = None
        for axis, (column, size) in enumerate(zip(ids, sizes, strict=True)):
            one = algebra.move(column, lambda data, number=number: data[number])
            inner = rank - count - len(shape_of(one))
            spread = algebra.move(
                one, lambda data, inner=inner: data.reshape(*(1,) * count, *data.shape, *(1,) * inner)
            )
            # an axis may be as long as the input: with numbers, a graph could write to the first places alone
            places = algebra.of_this_run("position", np.arange(size))
            form = [size if at == axis else 1 for at in range(rank)]
            same = algebra.compare(spread, algebra.move(places, partial(np.reshape, shape=form)), "eq")
            hit = same if hit is None else algebra.both(hit, same)
        part = algebra.move(new, lambda data, number=number: data[number])
        if hit is None:
            raise UndecidedError("a write without ids")
        if reduction == "add":
            result = algebra.add(result, algebra.multiply(hit, part))
        else:
            result = algebra.where(hit, combine(algebra, result, part), result)
    return _like(result, a, new)


def _write_at_known(
    algebra: Algebra, a: Value, columns: Sequence[Array], new: Value, reduction: str
) -> Value:
    shape = np.broadcast_shapes(*(column.shape for column in columns))
    count = len(columns)
    sizes, inner = shape_of(a)[:count], shape_of(a)[count:]
    ids = [
        np.broadcast_to(np.where(column < 0, column + size, column), shape).reshape(-1)
        for column, size in zip(columns, sizes, strict=True)
    ]
    if any(((column < 0) | (column >= size)).any() for column, size in zip(ids, sizes, strict=True)):
        raise UndecidedError("a write outside of a tensor")
    numbers = algebra.move(new, lambda data: np.broadcast_to(data, (*shape, *inner)).reshape(-1, *inner))
    places = np.ravel_multi_index(ids, sizes) if ids[0].size else np.zeros(0, np.int64)
    # how often each place was written before
    turns = _turns(places)
    if reduction == "none" and turns.any():
        if not _are_equal(algebra, numbers, places):
            raise UndecidedError("writes different numbers to one place")
        turns[turns > 0] = -1
    flat: Value = algebra.move(a, lambda data: data.reshape(-1, *inner))
    for turn in range(turns.max(initial=-1) + 1):
        chosen = np.flatnonzero(turns == turn)
        at = places[chosen]
        part = algebra.move(numbers, partial(_taken, places=chosen))
        combined = COMBINATIONS[reduction](algebra, algebra.move(flat, partial(_taken, places=at)), part)
        flat = _joined(algebra, partial(_written, places=at), flat, combined)
    result = algebra.move(flat, lambda data: data.reshape(shape_of(a)))
    return _like(result, a, new)


def _are_equal(algebra: Algebra, numbers: Value, places: Array) -> bool:
    """Whether all numbers that are written to one place are the same."""
    first = np.unique(places, return_index=True, return_inverse=True)
    data = algebra.term(numbers).data
    return bool((data == data[:, first[1][first[2].reshape(-1)]]).all())


def _taken(data: Array, places: Array) -> Array:
    return np.asarray(data[places])


def _written(old: Array, new: Array, places: Array) -> Array:
    changed = np.array(old, np.result_type(old, new))
    changed[places] = new
    return changed


def _turns(places: Array) -> Array:
    """For each entry, how many entries before it have the same number."""
    order = np.argsort(places, kind="stable")
    in_order = places[order]
    first = np.searchsorted(in_order, in_order)
    turns = np.empty(len(places), np.int64)
    turns[order] = np.arange(len(places)) - first
    return turns


def _like(result: Value, a: Value, new: Value) -> Value:
    """The result in the kind of its operands: conditions are computed with numbers of others."""
    if not isinstance(result, Term):
        return result
    is_binary = all(value.is_binary if isinstance(value, Term) else _is_binary(value) for value in (a, new))
    return replace(result, kind=joint_kind(a, new), is_binary=is_binary)


def _is_binary(value: Value) -> bool:
    array = known_integers(value)
    return array is not None and bool(np.isin(array[0], (0, 1)).all())


def add_windows(
    algebra: Algebra,
    columns: Value,
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
) -> Value:
    """Sums of windows at their places in an image, as F.fold computes them.

    The windows are (rows, channels * kernel, windows), and the image is (rows, channels, *size).
    """
    rows, joined, _ = shape_of(columns)
    channels = joined // math.prod(kernel)
    counts = [
        (length + low + high - dilation * (width - 1) - 1) // stride + 1
        for length, width, stride, (low, high), dilation in zip(
            size, kernel, strides, pads, dilations, strict=True
        )
    ]
    term = algebra.term(columns)
    windows = algebra.move(term, lambda data: data.reshape(rows, channels, *kernel, *counts))
    padded = [length + low + high for length, (low, high) in zip(size, pads, strict=True)]
    image = algebra.numbers.from_integers(np.zeros((rows, channels, *padded), np.int64))
    for tap in np.ndindex(*kernel):
        key: tuple[Any, ...] = (slice(None),) * 3
        key += tuple(
            slice(place * dilation, place * dilation + (count - 1) * stride + 1, stride)
            for place, dilation, count, stride in zip(tap, dilations, counts, strides, strict=True)
        )
        image[key] = algebra.numbers.add(image[key], windows.data[:, :, :, *tap])
    inside = tuple(slice(low, low + length) for length, (low, _) in zip(size, pads, strict=True))
    return Term(np.ascontiguousarray(image[:, :, :, *inside]), "f", term.size.summed(math.prod(kernel)))
