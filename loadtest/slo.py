"""What a load test is held to: `p99<50ms, errors<0.1%`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loadtest.errors import UsageError
from loadtest.ledger import Summary

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
EXPECTED = "expected limits such as p99<50ms, errors<0.1% or rate>500"
_LIMIT = re.compile(r"([a-z][a-z0-9.]*)\s*([<>])\s*([0-9]*\.?[0-9]+)\s*([a-z%/]*)")


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound: a time in seconds, errors as a share, a rate in good answers a second."""

    measure: str
    bound: float
    words: str

    def value(self, summary: Summary) -> float:
        if self.measure == "errors":
            return summary.errors
        if self.measure == "rate":
            return summary.rate
        if self.measure == "mean":
            return summary.cell.latency.mean
        return summary.percentile(PERCENTILES[self.measure])

    def holds(self, summary: Summary) -> bool:
        """Whether it was kept; where there is nothing to judge by, it was not."""
        value = self.value(summary)
        return summary.requests > 0 and (value > self.bound if self.measure == "rate" else value < self.bound)


# what holds unless another limit on errors is named: times are those of good answers, and to refuse is fast
ERRORS = Limit("errors", 0.01, "errors<1%")


@dataclass(frozen=True, slots=True)
class Slo:
    """All limits together."""

    limits: tuple[Limit, ...]

    @classmethod
    def parse(cls, text: str) -> Slo:
        """The limits that are written there, with one on errors where none is."""
        limits = tuple(_limit(part.strip()) for part in text.split(","))
        return cls(limits if any(limit.measure == "errors" for limit in limits) else (*limits, ERRORS))

    def missed(self, summary: Summary) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.limits if not limit.holds(summary))

    def __str__(self) -> str:
        return ", ".join(limit.words for limit in self.limits)


def _limit(text: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if not found:
        raise UsageError(f"--slo: {EXPECTED}, got {text!r}")
    measure, sign, number, unit = found.groups()
    bound = float(number)
    if measure == "errors" and sign == "<" and unit in ("", "%"):
        bound = bound / 100 if unit else bound
    elif measure == "rate" and sign == ">" and unit in ("", "/s"):
        pass
    elif (measure in PERCENTILES or measure == "mean") and sign == "<" and unit in UNITS:
        bound *= UNITS[unit]
    else:
        raise UsageError(f"--slo: {EXPECTED}, got {text!r}")
    if sign == "<" and not bound:
        raise UsageError(f"--slo: expected a limit that can be kept, above 0, got {text!r}")
    return Limit(measure, bound, f"{measure}{sign}{number}{unit}")
