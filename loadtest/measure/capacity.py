"""Search for the capacity, the highest rate that keeps the SLO.

The rate is doubled until the SLO is missed, then halved between the two, and the result is confirmed by a
longer step. At last the lowest rate that missed is tried again: other programs may have had the CPUs when it
missed, and they never make a rate keep the SLO. If it now keeps it, the search climbs again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from turnpike.loadtest.ledger import PeriodSummary
from turnpike.loadtest.slo import PERCENTILES, Slo

# the search ends when the lowest rate that missed the SLO is at most this many times the highest that
# kept it
MAX_RATIO = 1.03
# rates of the first climb are this many times the one before
CLIMB = 2.0
# After a miss that was wrong, the capacity may be a little higher or much: the first rate is higher by this
# factor, and each further one by the square of the factor before, up to CLIMB.
FIRST_CLIMB_AGAIN = 1.06
# before any rate has kept the SLO, the rate is multiplied by this
DESCENT = 0.5
# after a failed confirmation the rate is multiplied by this; by its second power after the second, and so on
BACK_OFF = 0.9
MAX_CONFIRMATIONS = 6
# a step that confirms a rate, or checks a miss, runs this many times as long as the others
LONG = 3
# A step that is too short keeps a rate just above the capacity, because the queue has no time to grow. If a
# rate that was kept is more than this many times the result, the steps contradict each other.
MAX_CONTRADICTION = 1.1
# steps of a whole search: one without disturbances takes about 15
MAX_STEPS = 60
# requests per second: lower rates are not tried
MIN_RATE = 0.5
# If the p99 of lateness is above this share of the tightest limit on a time, the load generator is to blame
# for a missed SLO. Without such a limit, above this many seconds.
MAX_LATE_SHARE = 0.2
MAX_LATE_SECONDS = 0.1
# The load generator is to blame, too, if it waited for a CPU for more than this share of the time.
MAX_STARVED = 0.1
# standard deviations by which the random number of requests may be below its expectation
MAX_DEVIATIONS = 5.0
# a queue grows if, at the end of a rate, more than this share of the requests are unanswered, and more than
# this number of them
MAX_BACKLOG_SHARE = 0.05
MIN_BACKLOG = 3

Purpose = Literal["trying", "confirming", "checking"]
# what keeps a higher rate from being known: nothing but the server; the load generator; steps that disagree
LimitedBy = Literal["server", "generator", "contradiction"]


@dataclass(frozen=True, slots=True)
class Step:
    """A rate to run, for `length` times the seconds of a step."""

    rate: float
    length: int
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class RateResult:
    """The result of one step."""

    rate: float
    length: int
    kept: bool
    generator_limited: bool  # whether the load generator, not the server, was too slow


class CapacitySearch:
    """Proposes one step after another (`next_step`), and takes the result of each (`record`)."""

    def __init__(self, slo: Slo, start_rate: float) -> None:
        # a low rate cannot keep a limit that asks for a high rate
        self._slo = Slo(tuple(limit for limit in slo.limits if limit.measure != "rate"))
        times = [
            limit.bound for limit in slo.limits if limit.measure in PERCENTILES or limit.measure == "mean"
        ]
        self._tightest = min(times, default=math.inf)
        self._max_late = MAX_LATE_SHARE * self._tightest if times else MAX_LATE_SECONDS
        self.start_rate = start_rate
        self._results: list[RateResult] = []
        # the bounds of the capacity, as far as they are believed
        self._kept: RateResult | None = None
        self._missed: RateResult | None = None
        # the last step, if its miss is so doubtful that it is run once more
        self._doubtful: Step | None = None
        self._length = 1
        self._climb, self._descent = CLIMB, DESCENT
        self._failed_confirmations = 0
        # the highest rate that was kept, while it is tried again because the result contradicts it
        self._contradicted_rate: float | None = None
        self._settled = False

    @property
    def rate(self) -> float | None:
        """The highest rate that a long step has confirmed; None if there is none."""
        if self._settled and self._kept is not None:
            return self._kept.rate
        confirmed = (result.rate for result in self._results if result.kept and result.length >= LONG)
        return max(confirmed, default=None)

    @property
    def limited_by(self) -> LimitedBy:
        """Why no higher rate is known. Unless it is the server, `rate` is a lower bound."""
        rate, highest = self.rate or 0.0, self._highest_kept
        if any(result.generator_limited and result.rate > rate for result in self._results):
            return "generator"
        if rate and (not self._settled or highest > MAX_CONTRADICTION * rate):
            return "contradiction"
        return "server"

    def keeps_slo(self, summary: PeriodSummary) -> bool:
        """Whether the limits are kept, except for those that ask for a high rate."""
        return not self._slo.missed(summary)

    def next_step(self) -> Step | None:
        """The step to run next; None when the search is over."""
        if self._settled or len(self._results) >= MAX_STEPS:
            return None
        if self._doubtful is not None:
            return self._doubtful
        kept, missed = self._kept, self._missed
        if self._contradicted_rate is not None:
            return Step(self._contradicted_rate, LONG, "checking")
        if kept is None:
            rate = self.start_rate if missed is None else missed.rate * self._descent
            return Step(rate, self._length, "trying")
        if missed is None:
            return Step(kept.rate * self._climb, self._length, "trying")
        if missed.rate / kept.rate > MAX_RATIO:
            return Step((kept.rate + missed.rate) / 2, self._length, "trying")
        if kept.length < LONG:
            return Step(kept.rate, LONG, "confirming")
        return Step(missed.rate, LONG, "checking")

    def record(
        self, step: Step, summary: PeriodSummary, late_p99: float, completed: int, starved: float = 0.0
    ) -> RateResult:
        """Judge a step that was run, and choose how to continue.

        Args:
            step: What was run.
            summary: The requests of the measured time.
            late_p99: Seconds after the due time at which requests were sent, 99th percentile.
            completed: Good answers that arrived within the measured time.
            starved: Share of the time in which the load generator waited for a CPU.
        """
        expected = step.rate * summary.seconds
        too_few = summary.requests < expected - MAX_DEVIATIONS * math.sqrt(expected)
        # a growing queue does not miss a limit on times yet, but it will miss every one in the end
        backlog = summary.good - completed > max(MAX_BACKLOG_SHARE * summary.good, MIN_BACKLOG)
        kept = self.keeps_slo(summary) and not too_few and not backlog
        starved_miss = not kept and starved > MAX_STARVED
        limited = not kept and (too_few or late_p99 > self._max_late or starved_miss)
        result = RateResult(step.rate, step.length, kept, limited)
        self._results.append(result)

        # Too high a rate slows down most requests. If the median kept the limit, a disturbance may have
        # slowed down a few. A failed confirmation contradicts an earlier step. These are tried once more.
        narrow = summary.percentile(0.5) < self._tightest
        may_repeat = not kept and self._doubtful is None
        if may_repeat and (narrow or starved_miss or step.purpose == "confirming"):
            self._doubtful = step
            return result
        self._doubtful = None
        if kept:
            self._use_kept(result)
        else:
            self._use_missed(result)
        return result

    @property
    def _highest_kept(self) -> float:
        return max((result.rate for result in self._results if result.kept), default=0.0)

    def _use_kept(self, result: RateResult) -> None:
        if self._missed is None:
            self._climb = min(self._climb**2, CLIMB)
        elif result.rate >= self._missed.rate:
            # the miss was wrong, and those before it may have been wrong for the same reason
            self._missed, self._contradicted_rate = None, None
            self._climb, self._length = FIRST_CLIMB_AGAIN, 1
        self._kept = result

    def _use_missed(self, result: RateResult) -> None:
        kept, missed = self._kept, self._missed
        if kept is None:
            self._missed = result
            if self._failed_confirmations:
                self._after_failed_confirmation()
        elif result.rate <= kept.rate:
            # the longer step counts
            self._kept, self._missed, self._length = None, result, LONG
            self._after_failed_confirmation()
        elif missed is None or result.rate < missed.rate:
            self._missed = result
        elif self._contradicted_rate is None and self._highest_kept > MAX_CONTRADICTION * kept.rate:
            self._contradicted_rate = self._highest_kept
        else:
            self._settled = True
        if self._kept is None and self._missed is not None:
            self._settled = self._settled or self._missed.rate * self._descent < MIN_RATE

    def _after_failed_confirmation(self) -> None:
        self._failed_confirmations += 1
        self._descent = BACK_OFF**self._failed_confirmations
        self._settled = self._failed_confirmations >= MAX_CONFIRMATIONS
