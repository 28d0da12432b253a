"""Figures of gates of one shape, for many requests at once; each one's are, to the bit, what it gets alone.

A call into NumPy takes as long as the figures of a small request, so there are few of them, for whole arrays.
Sums are products with ones: these are made row by row, and do not depend on how many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

import numpy as np

from service.inference_types import Array

# more values than this sort far faster as whole numbers up to STEPS, and tell quantiles to 1e-5
FEW, STEPS = 512, 65535


def lay_out(arrays: Sequence[Array], axis: int | None, requests: int, rows: int) -> Array:
    """Arrays of one shape as requests x gates x rows x what belongs to a row.

    The rows lie along `axis`; those of several requests one after the other along the first.
    """
    if axis == 0 and rows == 1:
        wide = arrays if arrays[0].ndim == 2 else [array.reshape(requests, -1) for array in arrays]
        beside = np.concatenate(wide, axis=1, dtype=np.float32)
        return beside.reshape(requests, len(arrays), 1, -1)
    flat = np.concatenate(arrays, axis=None, dtype=np.float32)
    if axis:
        flat = np.moveaxis(flat.reshape(len(arrays), *arrays[0].shape), axis + 1, 1)
    return np.ascontiguousarray(flat.reshape(len(arrays), requests, rows, -1).swapaxes(0, 1))


def lay_out_carry(arrays: Sequence[Array], axis: int | None, shape: tuple[int, ...]) -> Array:
    """Carry gates laid out as their transform gates; ones of other shapes stand at their rows' means."""
    requests, _, rows, _ = shape
    if len({array.shape for array in arrays}) == 1:
        c = lay_out(arrays, axis, requests, rows)
        if c.shape == shape:
            return c
    means = [mean_of_last(lay_out([array], axis, requests, rows)) for array in arrays]
    return np.concatenate(means, axis=1)[..., None]


def mean_of_last(values: Array) -> Array:
    """The mean over the last axis."""
    size = values.shape[-1]
    means: Array = np.vecdot(values, _ones(size))
    means /= np.float32(size)
    return means


def gate_statistics(
    t: Array, mean: Array, carried: Array | None, epsilon: float, levels: Sequence[float]
) -> Array:
    """Mean, deviation, quantiles, and the shares closed, open and carried: requests x gates x figures.

    Of T laid out, and of its means over all that is a request's; `carried` is 1 - T where it is None.
    """
    requests, gates, rows, each = t.shape
    flat, size = t.reshape(requests, gates, -1), rows * each
    table = np.zeros((requests, gates, 5 + len(levels)), np.float32)
    lines = table.transpose(2, 0, 1)
    apart = flat - mean[:, :, None]
    np.vecdot(apart, apart, out=lines[1])
    ends = np.empty((2, *flat.shape), np.bool)
    np.less(flat, epsilon, out=ends[0])
    np.greater(flat, 1 - epsilon, out=ends[1])
    np.vecdot(ends.astype(np.float32), _ones(size), out=lines[-3:-1])
    table /= np.float32(size)
    np.sqrt(lines[1], out=lines[1])
    lines[0] = mean
    lines[2:-3] = _quantiles(flat, apart, levels).transpose(2, 0, 1)
    if carried is None:
        np.subtract(1, mean, out=lines[-1])
    else:
        lines[-1] = carried
    return table


def _quantiles(flat: Array, room: Array, levels: Sequence[float]) -> Array:
    """The smallest T that so great a share of all T does not exceed, level by level along the last axis.

    What is only on the way goes into `room`: fresh memory costs more than the sums.
    """
    places = _places(flat.shape[2], levels)
    if flat.shape[2] <= FEW:
        np.copyto(room, flat)
        room.sort(axis=2)
        return room.take(places, axis=2)
    np.multiply(flat, np.float32(STEPS), out=room)
    room += np.float32(0.5)
    whole = room.astype(np.uint16)
    # of 16 bits a stable sort counts and need not compare
    whole.sort(axis=2, kind="stable")
    return whole.take(places, axis=2) / np.float32(STEPS)


def product(c: Array, times: Sequence[int | None]) -> Array:
    """What is carried past all layers, by request and row: their product, its mean over units and times."""
    if times[0] is None:
        return mean_of_last(np.multiply.reduce(c, axis=1))
    steps = np.array(times)
    order = np.argsort(steps, kind="stable")
    starts = np.flatnonzero(np.diff(steps[order], prepend=-1))
    by_step = mean_of_last(np.multiply.reduceat(c[:, order], starts, axis=1))
    mean: Array = by_step.mean(1)
    return mean


def longest(closed: Array) -> Array:
    """The length of the longest run of true along the second axis."""
    at = np.arange(1, closed.shape[1] + 1).reshape(-1, 1)
    last_open = np.maximum.accumulate(np.where(closed, 0, at), axis=1)
    run: Array = (at - last_open).max(1)
    return run


@lru_cache(maxsize=64)
def _places(size: int, levels: Sequence[float]) -> Array:
    """Where the quantiles stand among so many values in order."""
    return np.array([min(max(ceil(level * size), 1), size) - 1 for level in levels])


@lru_cache(maxsize=64)
def _ones(size: int) -> Array:
    return np.ones(size, np.float32)
