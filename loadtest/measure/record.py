"""The record of a load test: everything that its report shows, and its state while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from turnpike.loadtest.ledger import Ledger, PeriodSummary
from turnpike.loadtest.measure.capacity import LimitedBy
from turnpike.loadtest.measure.server_metrics import Scrape
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Limit
from turnpike.loadtest.workload.target import Target


@dataclass(frozen=True, slots=True)
class RateStep:
    """One rate of a capacity search; `begin` and `end` are the measured seconds of the ledger."""

    rate: float
    begin: int
    end: int
    summary: PeriodSummary
    late_p99: float  # seconds
    starved: float  # share of the time in which the load generator waited for a CPU
    kept: bool
    generator_limited: bool  # the load generator was too slow, so a miss says nothing about the server


@dataclass(frozen=True, slots=True)
class WrkLoad:
    """A load by wrk, whose connections wait for their answers, after the load generator was the limit."""

    connections: int
    summary: PeriodSummary
    kept: bool


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate that kept the SLO, None if there is none; and why no higher one is known."""

    rate: float | None
    limited_by: LimitedBy
    by_wrk: WrkLoad | None = None

    @property
    def is_lower_bound(self) -> bool:
        """Whether the server may be able to answer more."""
        return self.limited_by != "server"


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that generated the load."""

    cpus: int
    python: str
    platform: str
    locust: str


@dataclass(frozen=True, slots=True)
class Record:
    """A finished load test. All times are Unix times."""

    plan: LoadPlan
    target: Target
    machine: Machine
    begun: float
    ended: float
    # Seconds of the ledger that the results cover: `first` until before `last`. The warm-up is left out. A
    # capacity search covers the run that confirmed the capacity, or the last rate if there is none.
    first: int
    last: int
    ledger: Ledger
    missed_limits: tuple[Limit, ...] = ()
    steps: tuple[RateStep, ...] = ()
    capacity: Capacity | None = None
    scrapes: tuple[Scrape, ...] = ()
    notes: tuple[str, ...] = ()
    busy: float | None = None  # share of a CPU that the busiest sending process used, None if not measured
    wrong_answer: str | None = None  # the first wrong answer: what was expected, what came
    interrupted: bool = False  # whether the user ended the test early

    def summary(self, kind: str | None = None) -> PeriodSummary:
        """The requests that count (of one kind, or of all)."""
        return self.ledger.summary(self.first, self.last, kind)


@dataclass(frozen=True, slots=True)
class LiveState:
    """A load test in progress, as the terminal output shows it about once a second."""

    phase: str  # "warm-up", "load", "trying 400/s", "confirming 380/s", "recovering" or "waiting for answers"
    elapsed: float  # seconds since the start of the test
    figures_from: float  # Unix time from which figures count: the start of the test, or of a search's step
    duration: float | None  # expected seconds of the whole test; None for a capacity search
    users: int  # users now; 0 in an open loop
    rate: float | None  # requests per second now; None in a closed loop
    ledger: Ledger
    scrape: Scrape | None = None  # the latest metrics of the server
    steps: tuple[RateStep, ...] = ()  # the rates of a capacity search so far
