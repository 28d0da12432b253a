"""What became of every request, second by second; the ledgers of several processes add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loadtest.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request: when it was due to leave (seconds since 1970), and what came of it."""

    kind: str  # what was sent, as the tables call it: "json, 1 row"
    due: float
    late: float  # seconds after `due` that it left, for want of time in the generator or of a connection
    latency: float  # seconds from `due` to the end of the answer
    rows: int
    fault: str | None = None  # why it is not a good answer: "503", "no answer in 30 s", "wrong: ..."


@dataclass(slots=True)
class Cell:
    """The requests of one kind that were due in one second; times are those of good answers."""

    latency: Histogram = field(default_factory=Histogram)
    late: Histogram = field(default_factory=Histogram)
    rows: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.late.add(outcome.late)
        if outcome.fault is None:
            self.latency.add(outcome.latency)
            self.rows += outcome.rows
        else:
            self.faults[outcome.fault] += 1

    def merge(self, other: Cell) -> None:
        self.latency.merge(other.latency)
        self.late.merge(other.late)
        self.rows += other.rows
        self.faults.update(other.faults)

    def told(self) -> list[Any]:
        return [self.latency.told(), self.late.told(), self.rows, dict(self.faults)]

    @classmethod
    def heard(cls, told: list[Any]) -> Cell:
        latency, late, rows, faults = told
        return cls(Histogram.heard(latency), Histogram.heard(late), rows, Counter(faults))


@dataclass(frozen=True, slots=True)
class Summary:
    """The requests that were due in a stretch of time; times in seconds, NaN where there is none."""

    seconds: float
    cell: Cell

    @property
    def good(self) -> int:
        return self.cell.latency.count

    @property
    def bad(self) -> int:
        return self.cell.faults.total()

    @property
    def requests(self) -> int:
        return self.good + self.bad

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.good / self.seconds if self.seconds else 0.0

    @property
    def errors(self) -> float:
        """The share of requests without a good answer."""
        return self.bad / self.requests if self.requests else 0.0

    def percentile(self, share: float) -> float:
        return self.cell.latency.percentile(share)


class Ledger:
    """All outcomes so far, by the second in which a request was due, and its kind."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, str], Cell] = {}
        # good answers by the second in which they were complete
        self.completed: Counter[int] = Counter()
        self._untold: dict[tuple[int, str], Cell] = {}
        self._untold_completed: Counter[int] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Note one request of this process."""
        key = int(outcome.due), outcome.kind
        for cells in (self.cells, self._untold):
            if key not in cells:
                cells[key] = Cell()
            cells[key].add(outcome)
        if outcome.fault is None:
            second = int(outcome.due + outcome.latency)
            self.completed[second] += 1
            self._untold_completed[second] += 1

    def tell(self) -> dict[str, Any]:
        """What was noted since this was last asked, as plain data."""
        told = {
            "cells": [[second, kind, cell.told()] for (second, kind), cell in self._untold.items()],
            "completed": list(self._untold_completed.items()),
        }
        self._untold, self._untold_completed = {}, Counter()
        return told

    def hear(self, told: dict[str, Any]) -> None:
        """Add what another process told."""
        for second, kind, cell in told["cells"]:
            self.cells.setdefault((second, kind), Cell()).merge(Cell.heard(cell))
        self.completed.update(dict(told["completed"]))

    def kinds(self) -> list[str]:
        return sorted({kind for _, kind in self.cells})

    def span(self) -> tuple[int, int]:
        """The first second in which a request was due, and the one after the last; 0, 0 without any."""
        seconds = [second for second, _ in self.cells]
        return (min(seconds), max(seconds) + 1) if seconds else (0, 0)

    def summary(self, begin: int, end: int, kind: str | None = None) -> Summary:
        """All requests (of a kind) that were due from `begin` until before `end`."""
        return Summary(float(end - begin), self._sum(range(begin, end), kind))

    def whole(self, kind: str | None = None) -> Summary:
        return self.summary(*self.span(), kind)

    def _sum(self, seconds: Iterable[int], kind: str | None) -> Cell:
        total = Cell()
        kinds = self.kinds() if kind is None else [kind]
        for second in seconds:
            for name in kinds:
                if cell := self.cells.get((second, name)):
                    total.merge(cell)
        return total
