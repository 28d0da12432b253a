"""Prometheus histogram: counts between bounds, from which percentiles are interpolated."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Buckets:
    """For each bound, the number of values up to it and above the previous one; the last is infinity."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    total: float = 0.0  # sum of all values

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """NaN without values."""
        return self.total / self.count if self.count else math.nan

    def percentile(self, share: float) -> float:
        """The value that this share (0 to 1) of the values does not exceed, if they are even in their bucket.

        NaN without values. For a value above the highest finite bound, that bound.
        """
        if not self.count:
            return math.nan
        rank, before, low = share * self.count, 0.0, 0.0
        for bound, count, upto in zip(self.bounds, self.counts, accumulate(self.counts), strict=True):
            if upto >= rank and count:
                return low if math.isinf(bound) else low + (bound - low) * (rank - before) / count
            before, low = upto, low if math.isinf(bound) else bound
        return low

    def since(self, earlier: Buckets) -> Buckets:
        """The values counted after `earlier`; all values if `earlier` is empty or has other bounds."""
        if earlier.bounds != self.bounds:
            return self
        counts = tuple(new - old for new, old in zip(self.counts, earlier.counts, strict=True))
        return Buckets(self.bounds, counts, self.total - earlier.total)

    @classmethod
    def merged(cls, histograms: Iterable[Buckets]) -> Buckets:
        """The sum of all histograms; empty ones are ignored."""
        filled = [buckets for buckets in histograms if buckets.bounds]
        if not filled:
            return cls()
        counts = tuple(sum(column) for column in zip(*(buckets.counts for buckets in filled), strict=True))
        return cls(filled[0].bounds, counts, sum(buckets.total for buckets in filled))
