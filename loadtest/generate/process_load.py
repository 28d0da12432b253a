"""The part of the load that one process generates: its requests, schedules, connections and ledger."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

from loadtest.generate.open_loop import MAX_IN_FLIGHT, PoissonSchedule
from loadtest.generate.sender import PreparedRequest, Sender, prepare, request_cycle
from loadtest.ledger import Ledger, Outcome
from loadtest.plan import LoadPlan, Wire
from loadtest.workload.workload import Workload

# called with each outcome and the size of its answer in bytes
OnOutcome = Callable[[Outcome, int], None]


class ProcessLoad:
    """Shared by all locust users of a process."""

    def __init__(self, plan: LoadPlan, workload: Workload, name: str, *on_outcome: OnOutcome) -> None:
        """Prepare to send.

        Args:
            plan: What to send, and to which server.
            workload: The requests and their expected answers.
            name: Part of the random seed, so that processes send different sequences.
            on_outcome: Called with every outcome, in addition to the ledger.
        """
        self.plan, self.workload = plan, workload
        self.ledger = Ledger()
        self.sender = Sender(plan, workload.checker, self._record)
        self._on_outcome = on_outcome
        self._name = name
        self._requests: dict[Wire, tuple[PreparedRequest, ...]] = {}
        self._schedules: list[PoissonSchedule] = []
        self._rate = 0.0
        self._seed_count = 0

    def request_cycle(self, wire: Wire) -> Iterator[PreparedRequest]:
        """Endless requests of a wire format, for one user."""
        if wire not in self._requests:
            self._requests[wire] = prepare(self.plan, self.workload.payloads(wire))
        return request_cycle(self._requests[wire], self._new_seed())

    def new_schedule(
        self, requests: Iterator[PreparedRequest], max_in_flight: int = MAX_IN_FLIGHT
    ) -> PoissonSchedule:
        """A schedule for one user; it follows `rate`."""
        schedule = PoissonSchedule(self.sender, requests, self._new_seed(), max_in_flight)
        schedule.rate = self._rate
        self._schedules.append(schedule)
        return schedule

    @property
    def rate(self) -> float:
        """Requests per second of each user in an open loop."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate
        self.sender.may_send.set()
        for schedule in self._schedules:
            schedule.rate = rate

    def stop_schedules(self) -> None:
        for schedule in self._schedules:
            schedule.stop()

    def drain(self) -> None:
        """Stop sending, and wait until no request is in flight."""
        self.rate = 0.0
        self.sender.drain()
        # too high a rate may have opened thousands, which would slow down the server at the next rate
        self.sender.connections.shrink(self.plan.users // self.plan.processes)

    def _new_seed(self) -> str:
        """A seed that is unique in the test, and the same in every run of it."""
        self._seed_count += 1
        return f"{self.plan.seed} {self._name} {self._seed_count}"

    def _record(self, outcome: Outcome, size: int) -> None:
        self.ledger.add(outcome)
        for listener in self._on_outcome:
            listener(outcome, size)


def cpu_seconds() -> float:
    """CPU time that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
