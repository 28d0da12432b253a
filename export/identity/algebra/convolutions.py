"""Convolutions and pooling of terms. The axes are rows, channels, and the spatial ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, Value, shape_of
from turnpike.export.identity.algebra.joining import pad
from turnpike.export.identity.algebra.reductions import maximum_of_last, sum_of
from turnpike.export.identity.numbers.error_bound import ATOM

Pads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Windows:
    """Windows that slide along the spatial axes; each sequence has one entry for each of these."""

    kernel: Sequence[int]
    strides: Sequence[int]
    pads: Pads
    dilations: Sequence[int]
    # the last window may reach beyond the padding
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def extents(self) -> list[int]:
        return [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations, strict=True)]

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """The number of windows along each axis."""
        counts = []
        for size, extent, stride, (low, high) in zip(
            sizes, self.extents, self.strides, self.pads, strict=True
        ):
            free = size + low + high - extent
            count = (-(-free // stride) if self.ceil_mode else free // stride) + 1
            # a window that begins in the padding behind the input is left out
            if self.ceil_mode and (count - 1) * stride >= size + low:
                count -= 1
            counts.append(count)
        return counts

    def cut(self, array: Array, padding: int = 0) -> Array:
        """An array (..., *spatial) as (..., *places, *kernel); there are zeros behind the padding."""
        sizes = array.shape[-self.rank :]
        counts = self.counts(sizes)
        widths, beyond = [(0, 0)] * (array.ndim - self.rank), [(0, 0)] * (array.ndim - self.rank)
        for axis, (low, high) in enumerate(self.pads):
            end = (counts[axis] - 1) * self.strides[axis] + self.extents[axis]
            widths.append((low, high))
            beyond.append((0, max(0, end - sizes[axis] - low - high)))
        for margins, number in ((widths, padding), (beyond, 0)):
            if any(map(any, margins)):
                array = np.pad(array, margins, constant_values=number)
        axes = tuple(range(array.ndim - self.rank, array.ndim))
        view = np.lib.stride_tricks.sliding_window_view(array, self.extents, axes)
        steps = [slice(None)] * (array.ndim - self.rank)
        steps += [
            slice(0, (count - 1) * stride + 1, stride)
            for count, stride in zip(counts, self.strides, strict=True)
        ]
        steps += [slice(None, None, dilation) for dilation in self.dilations]
        return view[tuple(steps)]


def convolve(
    algebra: Algebra, x: Value, weight: Value, bias: Value | None, windows: Windows, groups: int = 1
) -> Value:
    """A convolution: a matrix product of windows and weights for each group of channels."""
    use_windows(algebra, x, windows)
    # the lists of one program are tuples in the other
    sizes = (windows.kernel, windows.strides, windows.dilations)
    form = (*map(tuple, sizes), tuple(map(tuple, windows.pads)), windows.ceil_mode, groups)
    result: Value = algebra.once(
        ("convolution", *form), (x, weight), lambda: _convolve(algebra, x, weight, windows, groups)
    )
    if bias is None:
        return result
    column = algebra.move(bias, lambda data: data.reshape(-1, *(1,) * windows.rank))
    return algebra.add(result, column)


def use_windows(algebra: Algebra, x: Value, windows: Windows) -> None:
    """Note how far windows reach: beyond the input of this run, they do so in a longer one alone."""
    sizes = shape_of(x)[-windows.rank :]
    for size, extent, (low, high) in zip(sizes, windows.extents, windows.pads, strict=True):
        for reach in (low, high, extent - 1 - low):
            algebra.sizes.use_reach(reach, size)


def _convolve(algebra: Algebra, x: Value, weight: Value, windows: Windows, groups: int) -> Term:
    maps = shape_of(weight)[0]
    parts = []
    for number in range(len(algebra.numbers.primes)):
        # as the product needs them: windows repeat each number many times
        view = windows.cut(algebra.part(x, number).astype(np.float64))
        rows, channels = view.shape[:2]
        places = view.shape[2 : 2 + windows.rank]
        view = view.reshape(rows, groups, channels // groups, *places, *windows.kernel)
        # groups, rows, places | channels of the group, kernel
        spatial = range(3, 3 + windows.rank)
        columns = view.transpose(1, 0, *spatial, 2, *range(3 + windows.rank, view.ndim))
        columns = columns.reshape(groups, rows * math.prod(places), -1)
        weights = algebra.part(weight, number).reshape(groups, maps // groups, -1)
        product = algebra.numbers.product(columns, weights.swapaxes(-1, -2), number)
        product = product.reshape(groups, rows, *places, maps // groups)
        # rows, groups, maps of the group, places
        product = np.moveaxis(np.moveaxis(product, 0, 1), -1, 2)
        parts.append(np.ascontiguousarray(product).reshape(rows, maps, *places))
    size = algebra.size(x).times(algebra.size(weight))
    return Term(np.stack(parts), "f", size.summed(math.prod(shape_of(weight)[1:])))


def convolve_transposed(
    algebra: Algebra,
    x: Value,
    weight: Value,
    bias: Value | None,
    windows: Windows,
    groups: int,
    output_padding: Sequence[int],
) -> Value:
    """A transposed convolution: an ordinary one of the input with zeros between its numbers."""
    term = algebra.term(x)
    gaps = [(size - 1) * stride + 1 for size, stride in zip(term.shape[2:], windows.strides, strict=True)]
    spread = np.zeros((*term.data.shape[:3], *gaps), term.data.dtype)
    spread[(slice(None),) * 3 + tuple(slice(None, None, stride) for stride in windows.strides)] = term.data

    def flipped(weights: Array) -> Array:
        inputs, maps = weights.shape[:2]
        by_group = weights.reshape(groups, inputs // groups, maps, *windows.kernel).swapaxes(1, 2)
        joined = by_group.reshape(groups * maps, inputs // groups, *windows.kernel)
        return np.flip(joined, tuple(range(2, joined.ndim)))

    pads = [
        (extent - 1 - low, extent - 1 - high + extra)
        for extent, (low, high), extra in zip(windows.extents, windows.pads, output_padding, strict=True)
    ]
    # more padding than a window has crops the input
    spread_term = pad(algebra, Term(spread, term.kind, term.size), [(0, 0), (0, 0), *pads])
    ordinary = Windows(windows.kernel, [1] * windows.rank, [(0, 0)] * windows.rank, windows.dilations)
    return convolve(algebra, spread_term, algebra.move(weight, flipped), bias, ordinary, groups)


def max_pool(algebra: Algebra, x: Value, windows: Windows) -> Value:
    use_windows(algebra, x, windows)
    term = algebra.term(x)
    view = algebra.move(term, windows.cut)
    places = view.shape[2 : 2 + windows.rank]
    flat = algebra.move(view, lambda data: data.reshape(*data.shape[:2], *places, -1))
    inside = windows.cut(np.ones(term.shape[2:], bool)).reshape(*places, -1)
    if inside.all():
        return maximum_of_last(algebra, flat)
    # places at the same edges have the same padding, which does not count
    data = np.empty(flat.data.shape[:-1], flat.data.dtype)
    size = ATOM
    for pattern in {inside[place].tobytes(): inside[place] for place in np.ndindex(places)}.values():
        same = (inside == pattern).all(-1)
        chosen = Term(np.ascontiguousarray(flat.data[:, :, :, same][..., pattern]), "f", flat.size)
        result = maximum_of_last(algebra, chosen)
        data[:, :, :, same] = result.data
        size = size.plus(result.size)
    return Term(data, "f", size)


def average_pool(
    algebra: Algebra, x: Value, windows: Windows, *, count_padding: bool, divisor: int | None = None
) -> Value:
    """The sum of each window, divided by the number of places that count, or by a divisor."""
    use_windows(algebra, x, windows)
    view = algebra.move(algebra.term(x), windows.cut)
    total = sum_of(algebra, view, range(2 + windows.rank, 2 + 2 * windows.rank))
    if divisor is not None:
        return algebra.scale(total, 1, divisor)
    # places behind the padding, which only ceil_mode reaches, never count
    inside = windows.cut(np.ones(shape_of(x)[2:], bool), padding=int(count_padding))
    if inside.all():
        return algebra.scale(total, 1, math.prod(windows.kernel))
    return algebra.divide(total, inside.sum(tuple(range(windows.rank, 2 * windows.rank))))
