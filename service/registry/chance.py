"""Numbers that look random and are always the same; generators of NumPy would take 2 MiB of every worker."""

from __future__ import annotations

import numpy as np

from service.inference_types import Array

# SplitMix64, by Steele, Lea and Flood: a counter's steps, and what mixes its bits
STEP = 0x9E3779B97F4A7C15
MIXED = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST = 31


class Chance:
    """Draws the same numbers in the same order for the same seed."""

    def __init__(self, seed: int) -> None:
        self._drawn = seed << 32

    def uniform(self, *shape: int) -> Array:
        """Numbers above 0 and below 1, in float64."""
        count = int(np.prod(shape))
        bits = np.arange(self._drawn, self._drawn + count, dtype=np.uint64) * np.uint64(STEP)
        self._drawn += count
        for shift, factor in MIXED:
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        bits ^= bits >> np.uint64(LAST)
        # of 64 bits a float64 has room for 53; the half keeps 0 out
        return (((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def normal(self, *shape: int) -> Array:
        """Numbers of mean 0 and deviation 1, after Box and Muller."""
        return np.sqrt(-2 * np.log(self.uniform(*shape))) * np.cos(2 * np.pi * self.uniform(*shape))

    def whole(self, low: int, high: int, *shape: int) -> Array:
        """Whole numbers from low to below high, in int64."""
        return low + np.floor(self.uniform(*shape) * (high - low)).astype(np.int64)
