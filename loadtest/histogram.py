"""Times in buckets one percent wide: small whatever the load, exact enough for a percentile, and adds up."""

from __future__ import annotations

import math
from typing import Any

# a bucket's upper bound is this much above its lower one
WIDTH = 1.01
_SCALE = 1 / math.log(WIDTH)
# times below a microsecond are told as one
_LEAST = 1e-6


class Histogram:
    """Times in seconds."""

    __slots__ = ("count", "counts", "most", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.most = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        bucket = math.ceil(math.log(max(seconds, _LEAST)) * _SCALE)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)

    def merge(self, other: Histogram) -> None:
        """Count all times of another."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total
        self.most = max(self.most, other.most)

    def percentile(self, share: float) -> float:
        """The time that this share (0 to 1) of all times do not exceed, to one percent; NaN without any."""
        if not self.count:
            return math.nan
        wanted, seen = math.ceil(share * self.count) or 1, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(math.exp(bucket / _SCALE), self.most)
        return self.most

    @property
    def mean(self) -> float:
        """NaN without any times."""
        return self.total / self.count if self.count else math.nan

    def told(self) -> list[Any]:
        """The whole as plain data, for another process."""
        return [list(self.counts.items()), self.total, self.most]

    @classmethod
    def heard(cls, told: list[Any]) -> Histogram:
        """What `told` gave."""
        histogram = cls()
        pairs, histogram.total, histogram.most = told
        histogram.counts = {int(bucket): int(count) for bucket, count in pairs}
        histogram.count = sum(histogram.counts.values())
        return histogram
