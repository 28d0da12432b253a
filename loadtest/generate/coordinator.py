"""The processes that send, seen from the one that leads them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.event import Event
from locust.env import Environment
from locust.shape import LoadTestShape

from loadtest.errors import LoadTestError
from loadtest.generate.users import ByWire
from loadtest.generate.worker import DIGITS, RATE, SETTLE, SETTLED, work
from loadtest.ledger import Ledger
from loadtest.plan import Plan
from loadtest.workload.workload import Load

# seconds that processes have to arrive, and to end
ARRIVE, END = 30.0, 5.0
# more than a request may take, for messages to go there and back
SLACK = 10.0


class Crew:
    """A locust master without users of its own, and the workers that it was given."""

    def __init__(self, plan: Plan, pids: list[int]) -> None:
        self.plan, self._pids = plan, pids
        self.ledger = Ledger()
        self.wrong: str | None = None
        # the part of a processor that a worker used in the second before a time
        self.busy: list[tuple[float, float]] = []
        self._environment = Environment(user_classes=[ByWire], host=plan.url)
        self._runner = self._environment.create_master_runner("127.0.0.1", 0)
        self._settled: dict[int, set[str]] = {}
        self._heard = Event()
        self._environment.events.worker_report.add_listener(self._report)
        self._runner.register_message(SETTLED, self._note_settled)

    @property
    def port(self) -> int:
        return int(self._runner.server.port)

    @property
    def users(self) -> int:
        return int(self._runner.user_count)

    def arrive(self) -> None:
        """Wait until all workers are there."""
        self._until(lambda: len(self._runner.clients.ready) == self.plan.processes, ARRIVE, "arrive")

    def shape(self, shape: LoadTestShape) -> None:
        """Have as many users as a shape says, from now on."""
        shape.runner = self._runner
        self._environment.shape_class = shape
        self._runner.start_shape()

    def sources(self) -> None:
        """Have one user a process, for an open loop; they send nothing until there is a rate."""
        count = self.plan.processes
        gevent.spawn(self._runner.start, count, count)
        self._until(lambda: self._runner.spawning_completed, ARRIVE, "start")

    def rate(self, rate: float) -> None:
        """So many requests a second, of all processes together."""
        self._runner.send_message(RATE, {"rate": rate / self.plan.processes})

    def settle(self) -> None:
        """Let nothing more leave, and wait until every request is answered or given up, and told of."""
        number = len(self._settled)
        self._settled[number] = set()
        self._runner.send_message(SETTLE, {"number": number})
        self._until(
            lambda: len(self._settled[number]) == len(self._pids),
            self.plan.timeout + SLACK,
            "tell all of its requests",
        )

    def check(self) -> None:
        """A LoadTestError if a process is gone or has failed: the figures would lack what it sent."""
        for pid in self._pids:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._pids.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                raise LoadTestError(f"expected each sending process to last, and one ended (status {code})")
        for error in self._runner.exceptions.values():
            raise LoadTestError(f"a user of the load failed: {error['msg']}")

    def close(self) -> None:
        """End the workers, at the latest after some seconds."""
        self._runner.quit()
        end = time.monotonic() + END
        for pid in self._pids:
            while not os.waitpid(pid, os.WNOHANG)[0]:
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)
                gevent.sleep(0.02)

    def _until(self, done: Any, seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not done():
            self.check()
            if time.monotonic() > end:
                raise LoadTestError(f"expected every sending process to {what} within {seconds:g} s")
            self._heard.wait(0.05)
            self._heard.clear()

    def _report(self, client_id: str, data: dict[str, Any]) -> None:
        self.ledger.hear(data["ledger"])
        if data["busy"]:
            at, busy = data["busy"]
            self.busy.append((at, busy))
        self.wrong = self.wrong or data["wrong"]
        self._heard.set()

    def _note_settled(self, environment: Environment, msg: Any) -> None:
        self._settled[msg.data["number"]].add(msg.node_id)
        self._heard.set()


@contextmanager
def hired(plan: Plan, load: Load) -> Iterator[Crew]:
    """As many workers as the plan has processes, ended at the end whatever happens."""
    pids: list[int] = []
    # each worker's lifeline stays open for as long as this process lives, and in this process alone
    mouths: list[int] = []
    try:
        for number in range(plan.processes):
            ear, mouth = os.pipe()
            mouths.append(mouth)
            pid = gevent.fork()
            if not pid:
                for end in mouths:
                    os.close(end)
                work(plan, load, f"worker {number}", ear)
            os.close(ear)
            pids.append(pid)
        crew = Crew(plan, pids)
        for mouth in mouths:
            os.write(mouth, f"{crew.port:0{DIGITS}d}".encode())
        try:
            crew.arrive()
            yield crew
        finally:
            crew.close()
    finally:
        for mouth in mouths:
            os.close(mouth)
