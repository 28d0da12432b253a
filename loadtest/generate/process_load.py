"""One process's share of a load: what its users send, by which schedule, and what became of it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

from loadtest.generate.schedule import Schedule
from loadtest.generate.sender import Sender, Shot, order, shots
from loadtest.ledger import Ledger, Outcome
from loadtest.plan import Plan, Wire
from loadtest.workload.workload import Load

Note = Callable[[Outcome, int], None]


class Station:
    """Shared by all users of a process."""

    def __init__(self, plan: Plan, load: Load, name: str, *notes: Note) -> None:
        """`name` sets what is random here apart from other processes; `notes` are told every outcome, too."""
        self.plan, self.load = plan, load
        self.ledger = Ledger()
        self.sender = Sender(plan, load.judge, self._note)
        self._notes = notes
        self._name = name
        self._shots: dict[Wire, tuple[Shot, ...]] = {}
        self._schedules: list[Schedule] = []
        self._rate = 0.0
        self._drawn = 0

    def order(self, wire: Wire) -> Iterator[Shot]:
        """Requests of a wire without end, for one user."""
        if wire not in self._shots:
            self._shots[wire] = shots(self.plan, self.load.of(wire))
        return order(self._shots[wire], self._seed())

    def schedule(self, chosen: Iterator[Shot]) -> Schedule:
        """A user's own schedule, which follows `rate`."""
        schedule = Schedule(self.sender, chosen, self._seed())
        schedule.rate = self._rate
        self._schedules.append(schedule)
        return schedule

    @property
    def rate(self) -> float:
        """Requests a second of each user in an open loop."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate
        self.sender.gate.set()
        for schedule in self._schedules:
            schedule.rate = rate

    def end(self) -> None:
        """Have every schedule end."""
        for schedule in self._schedules:
            schedule.end()

    def settle(self) -> None:
        """Let nothing more leave, and wait until nothing is in flight."""
        self.rate = 0.0
        self.sender.settle()
        # too high a rate opened thousands, which would burden the server at the next rate
        self.sender.connections.keep(self.plan.users // self.plan.processes)

    def _seed(self) -> str:
        """What nobody else draws from, and the same in every run."""
        self._drawn += 1
        return f"{self.plan.seed} {self._name} {self._drawn}"

    def _note(self, outcome: Outcome, size: int) -> None:
        self.ledger.add(outcome)
        for note in self._notes:
            note(outcome, size)


def cpu() -> float:
    """Seconds of a processor that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
