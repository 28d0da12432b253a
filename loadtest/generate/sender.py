"""One process's share of a load: it sends requests, has their answers judged, and notes what came of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import gevent
from gevent import Timeout
from gevent.event import Event

from loadtest.generate.connection import Connections, NoAnswerError, composed
from loadtest.ledger import Outcome
from loadtest.plan import Plan
from loadtest.workload.answer_check import Judge
from loadtest.workload.http_client import authorization
from loadtest.workload.payloads import Body

# what the steady clock is behind the time since 1970; processes that are forked later have the same
OFFSET = time.time() - time.perf_counter()
# requests are drawn once, so many, and go in that order again and again
DRAWN = 4096


def now() -> float:
    """Seconds since 1970, by a clock that nobody sets."""
    return time.perf_counter() + OFFSET


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """A request as the bytes that go."""

    body: Body
    request: bytes


def shots(plan: Plan, bodies: Sequence[Body]) -> tuple[Shot, ...]:
    key = authorization(plan.api_key)
    return tuple(
        Shot(body, composed(plan.url, body.path, body.data, {**key, **body.headers})) for body in bodies
    )


def order(loaded: Sequence[Shot], seed: str) -> Iterator[Shot]:
    """Shots without end, each as often as its weight says."""
    drawn = random.Random(seed).choices(loaded, [shot.body.weight for shot in loaded], k=DRAWN)  # noqa: S311
    return cycle(drawn)


class Sender:
    """Sends while its gate is open; what is in flight then is still answered, or given up in time."""

    def __init__(self, plan: Plan, judge: Judge, note: Callable[[Outcome, int], None]) -> None:
        """`note` is told every outcome and the bytes of its answer."""
        self.in_flight = 0
        self.gate = Event()
        self.gate.set()
        self.connections = Connections(plan.url, plan.insecure)
        self._timeout = plan.timeout
        self._judge = judge
        self._note = note
        self._answered = Event()

    def send(self, shot: Shot) -> None:
        """Send one request and wait for its answer."""
        self.in_flight += 1
        self._exchange(shot)

    def launch(self, shot: Shot, due: float) -> None:
        """Send one request without waiting; its latency counts from the time it was due."""
        self.in_flight += 1
        gevent.spawn(self._exchange, shot, due)

    def _exchange(self, shot: Shot, due: float | None = None) -> None:
        begun = now()
        due = begun if due is None else due
        size, fault = 0, None
        timer = Timeout.start_new(self._timeout)
        try:
            answer = self.connections.post(shot.request)
            ended = now()
            size = len(answer.data)
            fault = self._judge.fault(shot.body, answer.status, answer.headers, answer.data)
        except NoAnswerError as error:
            ended, fault = now(), str(error)
        except Timeout as late:
            if late is not timer:
                raise
            ended, fault = now(), f"no answer in {self._timeout:g} s"
        finally:
            timer.close()
            self.in_flight -= 1
            if not self.in_flight:
                self._answered.set()
        body = shot.body
        self._note(Outcome(body.kind, due, begun - due, ended - due, body.rows, fault), size)

    def refuse(self, shot: Shot, due: float, why: str) -> None:
        """Note a request that did not leave at all."""
        late = now() - due
        self._note(Outcome(shot.body.kind, due, late, late, shot.body.rows, why), 0)

    def settle(self) -> None:
        """Let nothing more go, and wait for what is in flight; every request is given up in time."""
        self.gate.clear()
        while self.in_flight:
            self._answered.clear()
            self._answered.wait(self._timeout)
