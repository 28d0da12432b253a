"""A histogram as Prometheus has it: counts between bounds, from which percentiles are interpolated."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Buckets:
    """How many values lie at or below each bound and above the one before it; the last bound is infinity."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    total: float = 0.0  # the sum of all values

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """NaN without any values."""
        return self.total / self.count if self.count else math.nan

    def percentile(self, share: float) -> float:
        """The value that this share (0 to 1) does not exceed, as if values lay evenly in their bucket.

        NaN without any values; the highest finite bound for one beyond it.
        """
        if not self.count:
            return math.nan
        wanted, before, low = share * self.count, 0.0, 0.0
        for bound, count, upto in zip(self.bounds, self.counts, accumulate(self.counts), strict=True):
            if upto >= wanted and count:
                return low if math.isinf(bound) else low + (bound - low) * (wanted - before) / count
            before, low = upto, low if math.isinf(bound) else bound
        return low

    def since(self, before: Buckets) -> Buckets:
        """What was counted after `before` was; all of it where `before` is of nothing or of other bounds."""
        if before.bounds != self.bounds:
            return self
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return Buckets(self.bounds, counts, self.total - before.total)

    @classmethod
    def added(cls, several: Iterable[Buckets]) -> Buckets:
        """All of them together; those of nothing add nothing."""
        some = [one for one in several if one.bounds]
        if not some:
            return cls()
        counts = tuple(sum(column) for column in zip(*(one.counts for one in some), strict=True))
        return cls(some[0].bounds, counts, sum(one.total for one in some))
