"""Starts and leads the processes that send requests, as the master of a distributed locust test."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.shape import LoadTestShape

from turnpike.loadtest.errors import LoadTestError
from turnpike.loadtest.generate.locust_users import WireUser
from turnpike.loadtest.generate.worker import DRAIN, DRAINED, PORT_DIGITS, RATE, run_worker
from turnpike.loadtest.ledger import Ledger
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.workload import Workload

# seconds that a process may take to connect, or to start its users
START_SECONDS = 30.0
# seconds for messages to and from the workers, added to the timeout of a request
MESSAGE_SECONDS = 10.0


class LoadCoordinator:
    """A locust master that sends nothing itself, and the workers that belong to it."""

    def __init__(self, plan: LoadPlan, pids: list[int]) -> None:
        self.plan, self._pids = plan, pids
        self.ledger = Ledger()
        self.first_wrong: str | None = None
        # for each worker: (time, share of a CPU that it used in the second before)
        self.busy_samples: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._environment = Environment(user_classes=[WireUser], host=plan.url)
        self._runner = self._environment.create_master_runner("127.0.0.1", 0)
        # by number of the request to drain: the workers that have, and for which share of the time since the
        # rate was set each waited for a CPU
        self._drained: dict[int, dict[str, float]] = {}
        self._message_arrived = Event()
        self._environment.events.worker_report.add_listener(self._on_report)
        self._runner.register_message(DRAINED, self._on_drained)

    @property
    def port(self) -> int:
        return int(self._runner.server.port)

    @property
    def user_count(self) -> int:
        return int(self._runner.user_count)

    def wait_until_ready(self) -> None:
        """Wait until all workers have connected."""
        self._wait_for(
            lambda: len(self._runner.clients.ready) == self.plan.process_count, START_SECONDS, "be ready"
        )

    def start_shape(self, shape: LoadTestShape) -> None:
        """Start the users of a closed loop; the shape says how many there are at each time."""
        shape.runner = self._runner
        self._environment.shape_class = shape
        self._runner.start_shape()

    def start_open_loop(self) -> None:
        """Start one user per process; each runs a schedule, and sends nothing until there is a rate."""
        count = self.plan.process_count
        gevent.spawn(self._runner.start, count, count)
        self._wait_for(lambda: self._runner.spawning_completed, START_SECONDS, "start")

    def set_rate(self, rate: float) -> None:
        """Set the requests per second of all processes together."""
        self._runner.send_message(RATE, {"rate": rate / self.plan.process_count})

    def drain(self) -> float:
        """Stop sending, then wait until every request in flight has an outcome and is reported.

        Returns the share of the time since the rate was set in which a process waited for a CPU: that of the
        process that waited longest.
        """
        number = len(self._drained)
        self._drained[number] = {}
        self._runner.send_message(DRAIN, {"number": number})
        self._wait_for(
            lambda: len(self._drained[number]) == len(self._pids),
            self.plan.timeout + MESSAGE_SECONDS,
            "report all of its requests",
        )
        return max(self._drained[number].values(), default=0.0)

    def check_workers(self) -> None:
        """Raise a LoadTestError if a process ended or a user failed: the results would lack its requests."""
        for pid in self._pids:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._pids.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                raise LoadTestError(f"a sending process ended during the test, with exit status {code}")
        for error in self._runner.exceptions.values():
            raise LoadTestError(f"a user of the load failed: {error['msg']}")

    def close(self) -> None:
        """End the workers; what they have not reported yet, which `drain` waits for, is lost."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        # locust's quit() would wait for half a second for reports
        self._runner.greenlet.kill()

    def _wait_for(self, done: Callable[[], bool], seconds: float, action: str) -> None:
        end = time.monotonic() + seconds
        while not done():
            self.check_workers()
            if time.monotonic() > end:
                raise LoadTestError(f"expected every sending process to {action} within {seconds:g} s")
            self._message_arrived.wait(0.05)
            self._message_arrived.clear()

    def _on_report(self, client_id: str, data: dict[str, Any]) -> None:
        self.ledger.merge_json(data["ledger"])
        if data["busy"]:
            at, busy = data["busy"]
            self.busy_samples[client_id].append((at, busy))
        self.first_wrong = self.first_wrong or data["wrong"]
        self._message_arrived.set()

    def _on_drained(self, environment: Environment, msg: Any) -> None:
        self._drained[msg.data["number"]][msg.node_id] = msg.data["starved"]
        self._message_arrived.set()


@contextmanager
def running_workers(plan: LoadPlan, workload: Workload) -> Iterator[LoadCoordinator]:
    """Start the planned number of sending processes; end all of them when the block ends, however it ends."""
    pids: list[int] = []
    # A pipe to each worker. Only this process holds the write ends, so they close when it dies, and a worker
    # ends when its pipe closes.
    write_ends: list[int] = []
    try:
        for number in range(plan.process_count):
            read_end, write_end = os.pipe()
            write_ends.append(write_end)
            pid = gevent.fork()
            if not pid:
                for end in write_ends:
                    os.close(end)
                run_worker(plan, workload, f"worker {number}", read_end)
            os.close(read_end)
            pids.append(pid)
        coordinator = LoadCoordinator(plan, pids)
        for write_end in write_ends:
            os.write(write_end, f"{coordinator.port:0{PORT_DIGITS}d}".encode())
        try:
            coordinator.wait_until_ready()
            yield coordinator
        finally:
            coordinator.close()
    finally:
        for write_end in write_ends:
            os.close(write_end)
