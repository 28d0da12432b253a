"""Counts the outcome of every request per second and kind of request, with latency histograms.

Each sending process empties its ledger into that of the process which leads the test.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# upper bound of a bucket divided by its lower bound: percentiles are exact to one percent
BUCKET_WIDTH = 1.01
_SCALE = 1 / math.log(BUCKET_WIDTH)
# shorter times are counted as this one: zero has no logarithm
MIN_SECONDS = 1e-6

# difference between Unix time and the monotonic clock, in seconds; processes forked later inherit it
CLOCK_OFFSET = time.time() - time.perf_counter()


def now() -> float:
    """Unix time in seconds, from a monotonic clock: changes of the system time do not affect it."""
    return time.perf_counter() + CLOCK_OFFSET


class LatencyHistogram:
    """Times in seconds, counted in buckets that are one percent wide.

    Its size does not depend on the number of times, and histograms of several processes can be merged.
    """

    __slots__ = ("count", "counts", "maximum", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0

    def add(self, seconds: float) -> None:
        bucket = math.ceil(math.log(max(seconds, MIN_SECONDS)) * _SCALE)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.total += seconds
        self.maximum = max(self.maximum, seconds)

    def add_all(self, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Add many times at once, which takes much less CPU time for each."""
        logarithms = np.log(np.maximum(seconds, MIN_SECONDS))
        buckets, counts = np.unique(np.ceil(logarithms * _SCALE).astype(int), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += len(seconds)
        self.total += float(seconds.sum())
        self.maximum = max(self.maximum, float(seconds.max(initial=0.0)))

    def merge(self, other: LatencyHistogram) -> None:
        """Add all times of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    def percentile(self, share: float) -> float:
        """The smallest time such that at least this share (0 to 1) of all times is not longer.

        Exact to one percent; NaN for an empty histogram.
        """
        if not self.count:
            return math.nan
        rank, seen = math.ceil(share * self.count) or 1, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return min(math.exp(bucket / _SCALE), self.maximum)
        return self.maximum

    @property
    def mean(self) -> float:
        """NaN for an empty histogram."""
        return self.total / self.count if self.count else math.nan

    def to_json(self) -> list[Any]:
        """Plain data from which `from_json` restores the histogram in another process."""
        return [list(self.counts.items()), self.total, self.maximum]

    @classmethod
    def from_json(cls, data: list[Any]) -> LatencyHistogram:
        histogram = cls()
        pairs, histogram.total, histogram.maximum = data
        histogram.counts = {int(bucket): int(count) for bucket, count in pairs}
        histogram.count = sum(histogram.counts.values())
        return histogram


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one request."""

    kind: str  # the kind of request, as tables show it: "json, 1 row"
    due: float  # Unix time at which the request should have been sent
    late: float  # seconds after `due` at which the load generator took it up
    latency: float  # seconds from `due` to the end of the answer
    rows: int
    fault: str | None = None  # why the answer is not good: "503", "no answer in 30 s", "wrong: ..."


@dataclass(slots=True)
class OutcomeTotals:
    """Totals over several requests. Latencies and rows include good answers only."""

    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    late: LatencyHistogram = field(default_factory=LatencyHistogram)
    rows: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.late.add(outcome.late)
        if outcome.fault is None:
            self.latency.add(outcome.latency)
            self.rows += outcome.rows
        else:
            self.faults[outcome.fault] += 1

    def merge(self, other: OutcomeTotals) -> None:
        self.latency.merge(other.latency)
        self.late.merge(other.late)
        self.rows += other.rows
        self.faults.update(other.faults)

    def to_json(self) -> list[Any]:
        return [self.latency.to_json(), self.late.to_json(), self.rows, dict(self.faults)]

    @classmethod
    def from_json(cls, data: list[Any]) -> OutcomeTotals:
        latency, late, rows, faults = data
        return cls(
            LatencyHistogram.from_json(latency), LatencyHistogram.from_json(late), rows, Counter(faults)
        )


@dataclass(frozen=True, slots=True)
class PeriodSummary:
    """All requests that were due in a period of time. Times are in seconds, NaN if there are none."""

    seconds: float
    totals: OutcomeTotals

    @property
    def good(self) -> int:
        return self.totals.latency.count

    @property
    def bad(self) -> int:
        return self.totals.faults.total()

    @property
    def requests(self) -> int:
        return self.good + self.bad

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.good / self.seconds if self.seconds else 0.0

    @property
    def errors(self) -> float:
        """Share of requests without a good answer, 0 to 1."""
        return self.bad / self.requests if self.requests else 0.0

    def percentile(self, share: float) -> float:
        """Latency percentile of the good answers."""
        return self.totals.latency.percentile(share)


class Ledger:
    """All outcomes so far, by the second in which a request was due and by its kind."""

    def __init__(self) -> None:
        self.totals: dict[tuple[int, str], OutcomeTotals] = {}
        # number of good answers by the second in which they were complete
        self.completed: Counter[int] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count one request."""
        self._totals(int(outcome.due), outcome.kind).add(outcome)
        if outcome.fault is None:
            self.completed[int(outcome.due + outcome.latency)] += 1

    def add_good(self, kind: str, rows: int, times: Sequence[float]) -> None:
        """Count good answers to requests of one kind.

        Args:
            kind: The kind of all requests.
            rows: The rows of each of them.
            times: Three Unix times for each request: when it was due, when it was taken up, and when it
                had its answer.
        """
        due, begun, ended = np.array(times).reshape(-1, 3).T
        seconds = due.astype(int)
        for second in np.unique(seconds).tolist():
            is_due = seconds == second
            totals = self._totals(second, kind)
            totals.late.add_all((begun - due)[is_due])
            totals.latency.add_all((ended - due)[is_due])
            totals.rows += rows * int(is_due.sum())
        self.completed.update(ended.astype(int).tolist())

    def pop_json(self) -> dict[str, Any]:
        """Take everything out of this ledger, as plain data for `merge_json` in another process."""
        data = {
            "totals": [[second, kind, totals.to_json()] for (second, kind), totals in self.totals.items()],
            "completed": list(self.completed.items()),
        }
        self.totals, self.completed = {}, Counter()
        return data

    def merge_json(self, data: dict[str, Any]) -> None:
        """Add the content of another ledger."""
        for second, kind, totals in data["totals"]:
            self._totals(second, kind).merge(OutcomeTotals.from_json(totals))
        self.completed.update(dict(data["completed"]))

    def kinds(self) -> list[str]:
        return sorted({kind for _, kind in self.totals})

    def span(self) -> tuple[int, int]:
        """First second in which a request was due, and the second after the last; (0, 0) if empty."""
        seconds = [second for second, _ in self.totals]
        return (min(seconds), max(seconds) + 1) if seconds else (0, 0)

    def summary(self, begin: int, end: int, kind: str | None = None) -> PeriodSummary:
        """Requests (of one kind, or of all) that were due from `begin` until before `end`."""
        return PeriodSummary(float(end - begin), self._sum(range(begin, end), kind))

    def _totals(self, second: int, kind: str) -> OutcomeTotals:
        key = second, kind
        if key not in self.totals:
            self.totals[key] = OutcomeTotals()
        return self.totals[key]

    def _sum(self, seconds: Iterable[int], kind: str | None) -> OutcomeTotals:
        total = OutcomeTotals()
        kinds = self.kinds() if kind is None else [kind]
        for second in seconds:
            for name in kinds:
                if totals := self.totals.get((second, name)):
                    total.merge(totals)
        return total
