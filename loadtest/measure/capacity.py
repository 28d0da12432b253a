"""The search for the highest rate that keeps the limits: by doubling, then by halves, then confirmed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from loadtest.ledger import Summary
from loadtest.slo import PERCENTILES, Slo

# the rate that held and the one that missed are no further apart in the end
PRECISE = 1.05
# a rate that does not hold for longer is lowered by this, and by more each time
LOWER = 0.9
CONFIRMATIONS = 6
# below this rate nothing is tried
LEAST = 0.5
# of the tightest limit on a time: a generator that is later than this has a part in the figures
LATE = 0.2
LATE_SECONDS = 0.1
# how far a random number of requests lies below what is expected, in standard deviations, without a reason
ODD = 5.0
# of the requests of a rate's time so many may be without their answer at its end, and a few in any case
BEHIND = 0.05
FEW = 3


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one rate."""

    rate: float
    held: bool
    limited: bool


class Search:
    """Asks for rates one after another, and is told what came of them."""

    def __init__(self, slo: Slo, start: float) -> None:
        # a low rate cannot keep a limit that asks for a high one
        self._slo = Slo(tuple(limit for limit in slo.limits if limit.measure != "rate"))
        times = [
            limit.bound for limit in slo.limits if limit.measure in PERCENTILES or limit.measure == "mean"
        ]
        self._tightest = min(times, default=math.inf)
        self._late = LATE * self._tightest if times else LATE_SECONDS
        self.start = start
        self._held: float | None = None
        self._missed: Tried | None = None
        self._confirming: float | None = None
        self._confirmations = 0
        self._done = False
        # a rate that missed so narrowly that it is tried once more
        self._doubtful: Tried | None = None
        self.rate: float | None = None

    @property
    def confirming(self) -> bool:
        """Whether the next rate is one that is to hold for longer."""
        return self._confirming is not None

    @property
    def limited_by(self) -> Literal["server", "generator"]:
        """What the lowest rate that missed says of why it did."""
        return "generator" if self._missed and self._missed.limited else "server"

    def next(self) -> float | None:
        """The rate to try, None when the search is over."""
        if self._done:
            return None
        if self._confirming is not None:
            return self._confirming
        if self._held is None:
            return self.start if self._missed is None else self._missed.rate / 2
        if self._missed is None:
            return self._held * 2
        return (self._held + self._missed.rate) / 2

    def tell(self, rate: float, summary: Summary, late_p99: float, completed: int) -> Tried:
        """Note what came of a rate, and go on from there; `completed` good answers came in its time."""
        expected = rate * summary.seconds
        fewer = summary.requests < expected - ODD * math.sqrt(expected)
        # a queue that grows misses no limit on times yet, and in the end any
        behind = summary.good - completed > max(BEHIND * summary.good, FEW)
        held = not self._slo.missed(summary) and not fewer and not behind
        tried = Tried(rate, held, limited=not held and (fewer or late_p99 > self._late))
        # a disturbance hits few requests, too high a rate most of them
        first, self._doubtful = self._doubtful, None
        if first is None and not held and summary.percentile(0.5) < self._tightest:
            self._doubtful = tried
            return tried
        # a generator that was late in either try leaves it open what the server can do
        judged = replace(tried, limited=tried.limited or (not held and first is not None and first.limited))
        if self._confirming is not None:
            self._confirmed(judged)
        else:
            self._judged(judged)
        return tried

    def _judged(self, tried: Tried) -> None:
        if tried.held:
            self._held = tried.rate
        else:
            self._missed = tried
        if self._held is None:
            self._done = tried.rate / 2 < LEAST
        elif self._missed is not None and self._missed.rate / self._held <= PRECISE:
            self._confirming = self._held

    def _confirmed(self, tried: Tried) -> None:
        self._confirmations += 1
        if tried.held:
            self.rate, self._done = tried.rate, True
            return
        self._missed = tried
        self._confirming = tried.rate * LOWER**self._confirmations
        self._done = self._confirmations >= CONFIRMATIONS or self._confirming < LEAST
