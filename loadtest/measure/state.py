"""Where a load test is just now, for who watches it."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.ledger import Ledger
from loadtest.measure.record import Step
from loadtest.measure.scrape import Scrape


@dataclass(frozen=True, slots=True)
class State:
    """Handed to the watcher about once a second."""

    phase: str  # in a few words: "warm-up", "load", "trying 400/s", "confirming 380/s", "waiting for answers"
    elapsed: float  # seconds of the whole test
    duration: float | None  # None where the end is not known: a search for the capacity
    users: int  # that are there now; 0 in an open loop
    rate: float | None  # requests a second that are due now; None in a closed loop
    ledger: Ledger
    scrape: Scrape | None = None  # the last one of the server
    steps: tuple[Step, ...] = ()  # of a search for the capacity, so far
