"""Statistics of gates: mean, deviation, quantiles and shares, for many requests in one pass.

A call to NumPy takes as long as the statistics of a small request, so there are few calls, on whole arrays.
Sums are dot products with ones: these work row by row, so that the result of a request does not depend, in
any bit, on how many other requests are summarized with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

import numpy as np

from turnpike.service.inference_types import Array

# Up to this many values are sorted as float32. More are sorted far faster as whole numbers from 0 to
# QUANTILE_STEPS, which gives quantiles to 1e-5.
MAX_FLOAT_SORT = 512
QUANTILE_STEPS = 65535


def stack_gates(arrays: Sequence[Array], axis: int | None, requests: int, rows: int) -> Array:
    """Stack gates of one shape as requests x gates x rows x values of a row, in float32.

    Args:
        arrays: The gates' values. The rows of several requests follow one another along axis 0.
        axis: The axis of the rows; None if a gate's rows cannot be separated.
        requests: The number of requests.
        rows: The rows of each request, 1 if they cannot be separated.
    """
    if axis == 0 and rows == 1:
        flat = arrays if arrays[0].ndim == 2 else [array.reshape(requests, -1) for array in arrays]
        side_by_side = np.concatenate(flat, axis=1, dtype=np.float32)
        return side_by_side.reshape(requests, len(arrays), 1, -1)
    stacked = np.concatenate(arrays, axis=None, dtype=np.float32)
    if axis:
        stacked = np.moveaxis(stacked.reshape(len(arrays), *arrays[0].shape), axis + 1, 1)
    return np.ascontiguousarray(stacked.reshape(len(arrays), requests, rows, -1).swapaxes(0, 1))


def stack_carry_gates(arrays: Sequence[Array], axis: int | None, shape: tuple[int, ...]) -> Array:
    """Stack carry gates like their transform gates; if shapes differ, by the means of their rows."""
    requests, _, rows, _ = shape
    if len({array.shape for array in arrays}) == 1:
        c = stack_gates(arrays, axis, requests, rows)
        if c.shape == shape:
            return c
    means = [mean_of_last_axis(stack_gates([array], axis, requests, rows)) for array in arrays]
    return np.concatenate(means, axis=1)[..., None]


def mean_of_last_axis(values: Array) -> Array:
    size = values.shape[-1]
    means: Array = np.vecdot(values, _ones(size))
    means /= np.float32(size)
    return means


def gate_statistics(
    t: Array, mean: Array, carried: Array | None, epsilon: float, levels: Sequence[float]
) -> Array:
    """Mean, deviation, quantiles, and the shares closed, open and carried: requests x gates x statistics.

    Args:
        t: The transform gates, from `stack_gates`.
        mean: Their means, requests x gates.
        carried: The means of the carry gates; None for 1 - T.
        epsilon: A gate counts as closed below this value of T, and as open above 1 minus it.
        levels: The levels of the quantiles.
    """
    requests, gates, rows, per_row = t.shape
    flat, size = t.reshape(requests, gates, -1), rows * per_row
    table = np.zeros((requests, gates, 5 + len(levels)), np.float32)
    columns = table.transpose(2, 0, 1)

    # sums first: squared differences, values below and above the bounds
    differences = flat - mean[:, :, None]
    np.vecdot(differences, differences, out=columns[1])
    extremes = np.empty((2, *flat.shape), np.bool)
    np.less(flat, epsilon, out=extremes[0])
    np.greater(flat, 1 - epsilon, out=extremes[1])
    np.vecdot(extremes.astype(np.float32), _ones(size), out=columns[-3:-1])

    # divide all of them at once, then fill in the other columns
    table /= np.float32(size)
    np.sqrt(columns[1], out=columns[1])
    columns[0] = mean
    columns[2:-3] = _quantiles(flat, differences, levels).transpose(2, 0, 1)
    if carried is None:
        np.subtract(1, mean, out=columns[-1])
    else:
        columns[-1] = carried
    return table


def _quantiles(flat: Array, scratch: Array, levels: Sequence[float]) -> Array:
    """Quantiles along the last axis: the smallest T such that at least a share `level` of the values is <= T.

    Overwrites `scratch`: memory fresh from the system costs more time than the arithmetic.
    """
    positions = _quantile_positions(flat.shape[2], levels)
    if flat.shape[2] <= MAX_FLOAT_SORT:
        np.copyto(scratch, flat)
        scratch.sort(axis=2)
        return scratch.take(positions, axis=2)
    np.multiply(flat, np.float32(QUANTILE_STEPS), out=scratch)
    scratch += np.float32(0.5)
    steps = scratch.astype(np.uint16)
    # NumPy's stable sort of 16-bit numbers is a radix sort: it counts instead of comparing
    steps.sort(axis=2, kind="stable")
    return steps.take(positions, axis=2) / np.float32(QUANTILE_STEPS)


def carried_product(c: Array, times: Sequence[int | None]) -> Array:
    """The share of the input carried past all layers: requests x rows.

    It is the product of the carry gates over the layers, averaged over units and, in a recurrent network,
    over `times`, the time step of each gate.
    """
    if times[0] is None:
        return mean_of_last_axis(np.multiply.reduce(c, axis=1))
    steps = np.array(times)
    order = np.argsort(steps, kind="stable")
    starts = np.flatnonzero(np.diff(steps[order], prepend=-1))
    by_step = mean_of_last_axis(np.multiply.reduceat(c[:, order], starts, axis=1))
    mean: Array = by_step.mean(1)
    return mean


def longest_run(closed: Array) -> Array:
    """The length of the longest run of True along the second axis."""
    positions = np.arange(1, closed.shape[1] + 1).reshape(-1, 1)
    last_open = np.maximum.accumulate(np.where(closed, 0, positions), axis=1)
    lengths: Array = (positions - last_open).max(1)
    return lengths


@lru_cache(maxsize=64)
def _quantile_positions(size: int, levels: Sequence[float]) -> Array:
    """The positions of the quantiles among `size` sorted values."""
    return np.array([min(max(ceil(level * size), 1), size) - 1 for level in levels])


@lru_cache(maxsize=64)
def _ones(size: int) -> Array:
    return np.ones(size, np.float32)
