"""Search for the capacity, the highest rate that keeps the SLO.

The rate is doubled until the SLO is missed, then halved between the two, and the result is confirmed by a
longer run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from turnpike.loadtest.ledger import PeriodSummary
from turnpike.loadtest.slo import PERCENTILES, Slo

# the search ends when the lowest rate that missed the SLO is at most this many times the highest that
# kept it
MAX_RATIO = 1.03
# after a failed confirmation the rate is multiplied by this; by its second power after the second, and so on
BACK_OFF = 0.9
MAX_CONFIRMATIONS = 6
# requests per second: lower rates are not tried
MIN_RATE = 0.5
# If the p99 of lateness is above this share of the tightest limit on a time, the load generator is to blame
# for a missed SLO. Without such a limit, above this many seconds.
MAX_LATE_SHARE = 0.2
MAX_LATE_SECONDS = 0.1
# standard deviations by which the random number of requests may be below its expectation
MAX_DEVIATIONS = 5.0
# a queue grows if, at the end of a rate, more than this share of the requests are unanswered, and more than
# this number of them
MAX_BACKLOG_SHARE = 0.05
MIN_BACKLOG = 3


@dataclass(frozen=True, slots=True)
class RateResult:
    """The result of one rate."""

    rate: float
    kept: bool
    generator_limited: bool  # whether the load generator, not the server, was too slow


class CapacitySearch:
    """Proposes one rate after another (`next_rate`), and takes the result of each (`record`)."""

    def __init__(self, slo: Slo, start_rate: float) -> None:
        # a low rate cannot keep a limit that asks for a high rate
        self._slo = Slo(tuple(limit for limit in slo.limits if limit.measure != "rate"))
        times = [
            limit.bound for limit in slo.limits if limit.measure in PERCENTILES or limit.measure == "mean"
        ]
        self._tightest = min(times, default=math.inf)
        self._max_late = MAX_LATE_SHARE * self._tightest if times else MAX_LATE_SECONDS
        self.start_rate = start_rate
        self._kept: float | None = None
        self._missed: RateResult | None = None
        self._rate_to_confirm: float | None = None
        self._confirmations = 0
        self._done = False
        # the last result, if it was so narrow a miss that the same rate is tried once more
        self._narrow_miss: RateResult | None = None
        self.rate: float | None = None

    @property
    def confirming(self) -> bool:
        """Whether the next rate runs longer, to confirm the capacity."""
        return self._rate_to_confirm is not None

    @property
    def limited_by(self) -> Literal["server", "generator"]:
        """Why the lowest rate that missed did so."""
        return "generator" if self._missed and self._missed.generator_limited else "server"

    def next_rate(self) -> float | None:
        """The rate to try next; None when the search is over."""
        if self._done:
            return None
        if self._rate_to_confirm is not None:
            return self._rate_to_confirm
        if self._kept is None:
            return self.start_rate if self._missed is None else self._missed.rate / 2
        if self._missed is None:
            return self._kept * 2
        return (self._kept + self._missed.rate) / 2

    def record(self, rate: float, summary: PeriodSummary, late_p99: float, completed: int) -> RateResult:
        """Judge a rate that was tried, and choose how to continue.

        Args:
            rate: Requests per second that were due.
            summary: The requests of the measured time.
            late_p99: Seconds after the due time at which requests were sent, 99th percentile.
            completed: Good answers that arrived within the measured time.
        """
        expected = rate * summary.seconds
        too_few = summary.requests < expected - MAX_DEVIATIONS * math.sqrt(expected)
        # a growing queue does not miss a limit on times yet, but it will miss every one in the end
        backlog = summary.good - completed > max(MAX_BACKLOG_SHARE * summary.good, MIN_BACKLOG)
        kept = not self._slo.missed(summary) and not too_few and not backlog
        result = RateResult(rate, kept, generator_limited=not kept and (too_few or late_p99 > self._max_late))
        # Too high a rate slows down most requests. If the median kept the limit, a disturbance may have
        # slowed down a few, so the same rate is tried again.
        first_try, self._narrow_miss = self._narrow_miss, None
        if first_try is None and not kept and summary.percentile(0.5) < self._tightest:
            self._narrow_miss = result
            return result
        # a generator that was late in either try says nothing about the server
        limited = result.generator_limited or (
            not kept and first_try is not None and first_try.generator_limited
        )
        combined = replace(result, generator_limited=limited)
        if self._rate_to_confirm is not None:
            self._after_confirmation(combined)
        else:
            self._after_trial(combined)
        return result

    def _after_trial(self, result: RateResult) -> None:
        if result.kept:
            self._kept = result.rate
        else:
            self._missed = result
        if self._kept is None:
            self._done = result.rate / 2 < MIN_RATE
        elif self._missed is not None and self._missed.rate / self._kept <= MAX_RATIO:
            self._rate_to_confirm = self._kept

    def _after_confirmation(self, result: RateResult) -> None:
        self._confirmations += 1
        if result.kept:
            self.rate, self._done = result.rate, True
            return
        self._missed = result
        self._rate_to_confirm = result.rate * BACK_OFF**self._confirmations
        self._done = self._confirmations >= MAX_CONFIRMATIONS or self._rate_to_confirm < MIN_RATE
