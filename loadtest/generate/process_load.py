"""The part of the load that one process generates: its requests, users, schedule and outcomes."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from turnpike.loadtest.generate.open_loop import MAX_IN_FLIGHT, PoissonSchedule, ScheduledUser
from turnpike.loadtest.generate.outcome_log import OnOutcome, OutcomeLog
from turnpike.loadtest.generate.sender import PreparedRequest, Sender, prepare, request_cycle
from turnpike.loadtest.ledger import Ledger
from turnpike.loadtest.plan import LoadPlan, Wire
from turnpike.loadtest.workload.workload import Workload


class ClosedLoopUser:
    """Sends a request when the last one has its outcome."""

    def __init__(self, sender: Sender, requests: Iterator[PreparedRequest]) -> None:
        self._sender, self._requests = sender, requests
        self._stopped = False

    def start(self) -> None:
        self._send_next()

    def stop(self) -> None:
        """Send nothing more; the outcome of a request in flight still counts."""
        self._stopped = True

    def _send_next(self) -> None:
        if not self._stopped:
            self._sender.launch(next(self._requests), on_end=self._send_next)


class ProcessLoad:
    """Shared by all locust users of a process."""

    def __init__(
        self,
        plan: LoadPlan,
        workload: Workload,
        name: str,
        on_outcome: OnOutcome | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        """Prepare to send.

        Args:
            plan: What to send, and to which server.
            workload: The requests and their expected answers.
            name: Part of the random seed, so that processes send different sequences.
            on_outcome: Called with every outcome, in addition to the ledger.
            max_in_flight: Requests of an open loop that may wait for their answers at the same time.
        """
        self.plan, self.workload = plan, workload
        self._name = name
        self._seed_count = 0
        self._log = OutcomeLog(on_outcome)
        self.sender = Sender(plan, workload.checker, self._log)
        self._schedule = PoissonSchedule(self.sender, self._new_seed(), max_in_flight)
        self._users: list[ClosedLoopUser] = []
        self._requests: dict[Wire, tuple[PreparedRequest, ...]] = {}

    @property
    def ledger(self) -> Ledger:
        """The outcomes since it was last emptied."""
        return self._log.ledger

    def request_cycle(self, wire: Wire) -> Iterator[PreparedRequest]:
        """Endless requests of a wire format, for one user."""
        if wire not in self._requests:
            self._requests[wire] = prepare(self.plan, self.workload.payloads(wire))
        return request_cycle(self._requests[wire], self._new_seed())

    def new_user(self, wire: Wire) -> ClosedLoopUser | ScheduledUser:
        """A user that has not started yet."""
        requests = self.request_cycle(wire)
        if self.plan.open_loop:
            return ScheduledUser(self._schedule, requests)
        self._users.append(user := ClosedLoopUser(self.sender, requests))
        return user

    @property
    def rate(self) -> float:
        """Requests per second of each user in an open loop."""
        return self._schedule.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._schedule.rate = rate

    def drain(self) -> None:
        """Stop sending, and wait until no request is in flight."""
        self.rate = 0.0
        for user in self._users:
            user.stop()
        self.sender.wait_for_answers()
        # thousands of them would slow down the server at the next rate
        self.sender.close_connections()

    def close(self) -> None:
        """Close all connections and timers."""
        self._schedule.close()
        self.sender.close()

    def _new_seed(self) -> str:
        """A seed that is unique in the test, and the same in every run of it."""
        self._seed_count += 1
        return f"{self.plan.seed} {self._name} {self._seed_count}"


# Linux: nanoseconds that this process ran, and that it waited for a CPU because others had them
SCHEDULER_STATISTICS = Path("/proc/self/schedstat")


def cpu_seconds() -> float:
    """CPU time that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def starved_seconds() -> float:
    """Time that this process was ready to run but had no CPU; 0 if the system does not say."""
    try:
        return int(SCHEDULER_STATISTICS.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0
