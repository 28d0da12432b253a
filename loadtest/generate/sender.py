"""Sends requests of one process, checks their answers and records the outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import gevent
from gevent import Timeout
from gevent.event import Event

from loadtest.generate.connection import ConnectionPool, NoAnswerError, compose_request
from loadtest.ledger import Outcome, now
from loadtest.plan import LoadPlan
from loadtest.workload.answer_check import AnswerChecker
from loadtest.workload.http_client import UNOBSERVED, authorization_header
from loadtest.workload.payloads import Payload

# requests drawn at random before the load begins, then sent in this order again and again
CYCLE_LENGTH = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """A payload and the bytes of the whole HTTP request."""

    payload: Payload
    data: bytes


def prepare(plan: LoadPlan, payloads: Sequence[Payload]) -> tuple[PreparedRequest, ...]:
    common = UNOBSERVED | authorization_header(plan.api_key)
    return tuple(
        PreparedRequest(
            payload, compose_request(plan.url, payload.path, payload.data, common | payload.headers)
        )
        for payload in payloads
    )


def request_cycle(requests: Sequence[PreparedRequest], seed: str) -> Iterator[PreparedRequest]:
    """Endless requests in random order, each as often as its weight says."""
    weights = [request.payload.weight for request in requests]
    return cycle(random.Random(seed).choices(requests, weights, k=CYCLE_LENGTH))  # noqa: S311


class Sender:
    """Sends requests. Closed-loop users wait while `may_send` is not set."""

    def __init__(
        self, plan: LoadPlan, checker: AnswerChecker, on_outcome: Callable[[Outcome, int], None]
    ) -> None:
        """`on_outcome` is called with every outcome and the size of the answer in bytes."""
        self.in_flight = 0
        self.may_send = Event()
        self.may_send.set()
        self.connections = ConnectionPool(plan.url, plan.insecure)
        self._timeout = plan.timeout
        self._checker = checker
        self._on_outcome = on_outcome
        self._all_answered = Event()

    def send(self, request: PreparedRequest) -> None:
        """Send one request and wait for its answer."""
        self.in_flight += 1
        self._exchange(request)

    def launch(self, request: PreparedRequest, due: float) -> None:
        """Send one request without waiting; its latency counts from the time at which it was due."""
        self.in_flight += 1
        gevent.spawn(self._exchange, request, due)

    def _exchange(self, request: PreparedRequest, due: float | None = None) -> None:
        begun = now()
        due = begun if due is None else due
        payload, size, fault = request.payload, 0, None
        timer = Timeout.start_new(self._timeout)
        try:
            answer = self.connections.post(request.data)
            ended = now()
            size = len(answer.data)
            fault = self._checker.check(payload, answer.status, answer.headers, answer.data)
        except NoAnswerError as error:
            ended, fault = now(), str(error)
        except Timeout as timeout:
            if timeout is not timer:
                raise
            ended, fault = now(), f"no answer in {self._timeout:g} s"
        finally:
            timer.close()
            self.in_flight -= 1
            if not self.in_flight:
                self._all_answered.set()
        self._on_outcome(Outcome(payload.kind, due, begun - due, ended - due, payload.rows, fault), size)

    def record_unsent(self, request: PreparedRequest, due: float, fault: str) -> None:
        """Record a request that could not be sent."""
        late, payload = now() - due, request.payload
        self._on_outcome(Outcome(payload.kind, due, late, late, payload.rows, fault), 0)

    def drain(self) -> None:
        """Stop sending, and wait until no request is in flight; each of them ends by its timeout."""
        self.may_send.clear()
        while self.in_flight:
            self._all_answered.clear()
            self._all_answered.wait(self._timeout)
