"""What a load test found: everything that its report is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loadtest.ledger import Ledger, Summary
from loadtest.measure.scrape import Scrape
from loadtest.plan import Plan
from loadtest.slo import Limit
from loadtest.workload.target import Target


@dataclass(frozen=True, slots=True)
class Step:
    """One rate that was tried for the capacity, and the seconds of the ledger that it is judged by."""

    rate: float
    begin: int
    end: int
    summary: Summary
    late_p99: float  # seconds
    held: bool
    limited: bool  # whether the generator could not keep the schedule: no proof of the server's limit


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate that kept the SLO, None when none did; and what stood in the way of more."""

    rate: float | None
    limited_by: Literal["server", "generator"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the load was made."""

    cpus: int
    python: str
    platform: str
    locust: str


@dataclass(frozen=True, slots=True)
class Record:
    """One load test that is over. Times are seconds since 1970."""

    plan: Plan
    target: Target
    machine: Machine
    begun: float
    ended: float
    # the seconds of the ledger that figures are told from: without the warm-up, and of a search for the
    # capacity those of the run that confirmed it (without one, those of the last rate that was tried)
    first: int
    last: int
    ledger: Ledger
    missed: tuple[Limit, ...] = ()
    steps: tuple[Step, ...] = ()
    capacity: Capacity | None = None
    scrapes: tuple[Scrape, ...] = ()
    notes: tuple[str, ...] = ()
    wrong: str | None = None  # the first wrong answer: what was expected, what came
    interrupted: bool = False  # whether somebody ended it before its time

    def summary(self, kind: str | None = None) -> Summary:
        """The requests that count (of a kind)."""
        return self.ledger.summary(self.first, self.last, kind)
