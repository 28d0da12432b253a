"""Weights of a decision, whose residues are computed once: several runs of two programs need them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from turnpike.export.identity.numbers.error_bound import Size, size_of

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# weights with fewer numbers are converted each time
MIN_NUMBERS = 256
# bytes of residues that are kept, of 4 bytes for each number and prime
MAX_BYTES = 1 << 28


class Weight:
    """A known array of floats, with what was computed from it. The array is not changed."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.residues: dict[int, Array] = {}

    @cached_property
    def is_finite(self) -> bool:
        """Whether each number is below the largest float32, which counts as an infinity."""
        return bool((np.abs(self.array) < np.finfo(np.float32).max).all())

    @cached_property
    def size(self) -> Size:
        """Bounds of the numbers."""
        return size_of(self.array)


class KeptWeights:
    """Finds the weight of an array by its place in memory, which it keeps in use."""

    def __init__(self) -> None:
        self._weights: dict[tuple[object, ...], Weight] = {}
        self._bytes = 0

    def of(self, array: Array) -> Weight:
        """The weight of an array of floats."""
        if array.size < MIN_NUMBERS:
            return Weight(array)
        place = array.__array_interface__["data"][0]
        key = (place, array.shape, array.strides, array.dtype.str)
        return self._weights.setdefault(key, Weight(array))

    def residues(self, array: Array, number: int, compute: Callable[[Array], Array]) -> Array:
        """The residues of an array modulo one of the primes, in 32 bits if they are kept."""
        # programs have a weight and its transpose
        if array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous:
            return self.residues(array.T, number, compute).T
        weight = self.of(array)
        found = weight.residues.get(number)
        if found is not None:
            return found
        computed = compute(array)
        if array.size >= MIN_NUMBERS and self._bytes + 4 * array.size <= MAX_BYTES:
            computed = weight.residues[number] = computed.astype(np.uint32)
            self._bytes += computed.nbytes
        return computed
