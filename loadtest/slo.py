"""Service-level objectives: parses limits such as `p99<50ms, errors<0.1%` and checks results against them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnpike.loadtest.errors import UsageError

if TYPE_CHECKING:
    # it imports numpy, which the help page of a command does not need
    from turnpike.loadtest.ledger import PeriodSummary

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
EXPECTED = "expected limits such as p99<50ms, errors<0.1% or rate>500"
_LIMIT = re.compile(r"([a-z][a-z0-9.]*)\s*([<>])\s*([0-9]*\.?[0-9]+)\s*([a-z%/]*)")


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound: seconds for a time, a share (0 to 1) for errors, good answers per second for a rate."""

    measure: str
    bound: float
    text: str

    def value(self, summary: PeriodSummary) -> float:
        if self.measure == "errors":
            return summary.errors
        if self.measure == "rate":
            return summary.rate
        if self.measure == "mean":
            return summary.totals.latency.mean
        return summary.percentile(PERCENTILES[self.measure])

    def is_kept(self, summary: PeriodSummary) -> bool:
        """Whether the limit was kept; False if there were no requests."""
        value = self.value(summary)
        return summary.requests > 0 and (value > self.bound if self.measure == "rate" else value < self.bound)


# Applies unless the SLO has its own limit on errors. Latencies include good answers only, so a server that
# quickly refuses most requests would otherwise pass.
DEFAULT_ERROR_LIMIT = Limit("errors", 0.01, "errors<1%")


@dataclass(frozen=True, slots=True)
class Slo:
    """A set of limits."""

    limits: tuple[Limit, ...]

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Parse comma-separated limits; adds `DEFAULT_ERROR_LIMIT` if none of them is on errors."""
        limits = tuple(_limit(part.strip()) for part in text.split(","))
        if not any(limit.measure == "errors" for limit in limits):
            limits = (*limits, DEFAULT_ERROR_LIMIT)
        return cls(limits)

    def missed(self, summary: PeriodSummary) -> tuple[Limit, ...]:
        return tuple(limit for limit in self.limits if not limit.is_kept(summary))

    def __str__(self) -> str:
        return ", ".join(limit.text for limit in self.limits)


def _limit(text: str) -> Limit:
    match = _LIMIT.fullmatch(text)
    if not match:
        raise UsageError(f"--slo: {EXPECTED}, got {text!r}")
    measure, sign, number, unit = match.groups()
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
        raise UsageError(f"--slo: expected a limit above 0, because nothing can keep 0, got {text!r}")
    return Limit(measure, bound, f"{measure}{sign}{number}{unit}")
