"""Sends requests of one process, checks their answers and records the outcomes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import gevent
from gevent.event import Event

from turnpike.loadtest.generate.connection import Connection, NoAnswerError, RawAnswer, compose_request
from turnpike.loadtest.generate.known_answer import KnownAnswer
from turnpike.loadtest.generate.outcome_log import OutcomeLog
from turnpike.loadtest.generate.server_address import ServerAddress
from turnpike.loadtest.ledger import now
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.answer_check import AnswerChecker
from turnpike.loadtest.workload.answer_decoding import LENGTH_HEADER
from turnpike.loadtest.workload.http_client import UNOBSERVED, authorization_header
from turnpike.loadtest.workload.payloads import Payload

# requests drawn at random before the load begins, then sent in this order again and again
CYCLE_LENGTH = 4096
# seconds between checks for requests that have waited too long; also at most this share of the timeout
CHECK_SECONDS, CHECK_SHARE = 1.0, 0.1
# A request of a schedule waits this many seconds for a connection that becomes free, before one is opened for
# it. A server often stalls for some milliseconds. With a new connection for each request that is due in a
# stall, it would have to accept thousands, and then be slow because of them.
SHARE_SECONDS = 0.01
# connections that are opened every SHARE_SECONDS, as long as requests wait less than STALL_SECONDS
MAX_NEW_CONNECTIONS = 4
# the same if they wait longer: there are far too few connections
MAX_NEW_CONNECTIONS_IN_STALL = 64
STALL_SECONDS = 0.05


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


class Exchange:
    """A request on its way: when it was due and was taken up, and what to call when it ends."""

    __slots__ = ("begun", "due", "on_end", "payload")

    def __init__(self, payload: Payload, due: float, begun: float, on_end: Callable[[], None] | None) -> None:
        self.payload, self.due, self.begun, self.on_end = payload, due, begun, on_end


class Sender:
    """Sends requests over as many connections as there are requests at the same time.

    Requests of a schedule share connections, if one becomes free soon.
    """

    def __init__(self, plan: LoadPlan, checker: AnswerChecker, log: OutcomeLog) -> None:
        self.in_flight = 0
        # connections of a schedule that are opened at once; more are opened if requests have waited
        self._first_connections = max(1, plan.users // plan.process_count)
        self._connecting = 0
        # requests of a schedule that wait for a connection
        self._waiting: deque[tuple[PreparedRequest, Exchange]] = deque()
        self._share_timer = gevent.get_hub().loop.timer(SHARE_SECONDS, SHARE_SECONDS, ref=False)
        self._server = ServerAddress(plan.url, plan.insecure)
        self._timeout = plan.timeout
        self._checker, self._log = checker, log
        # for each payload, the last good answer that arrived in one piece
        self._known: dict[Payload, KnownAnswer] = {}
        # The connection that was idle for longest is used first. So all connections are used, and with them
        # all workers of a server.
        self._idle: deque[Connection] = deque()
        self._exchanges: dict[Connection, Exchange] = {}
        self._all_answered = Event()
        interval = min(CHECK_SECONDS, CHECK_SHARE * plan.timeout)
        self._timer = gevent.get_hub().loop.timer(interval, interval, ref=False)
        self._timer.start(self._end_overdue)

    def launch(
        self, request: PreparedRequest, due: float | None = None, on_end: Callable[[], None] | None = None
    ) -> None:
        """Send one request without waiting for its answer.

        Args:
            request: The request; it is never sent twice.
            due: When a schedule should have sent it: its latency counts from there. None: it has no schedule.
            on_end: Called when it has its outcome.
        """
        self.in_flight += 1
        begun = now()
        exchange = Exchange(request.payload, begun if due is None else due, begun, on_end)
        while self._idle:
            connection = self._idle.popleft()
            if connection.usable:
                self._send(connection, request, exchange)
                return
        if due is None or self._connecting + len(self._exchanges) < self._first_connections:
            self._send_over_new_connection(request, exchange)
            return
        if not self._waiting:
            self._share_timer.again(self._end_sharing)
        self._waiting.append((request, exchange))

    def record_unsent(self, request: PreparedRequest, due: float, fault: str) -> None:
        """Record a request that could not be sent."""
        at = now()
        self._log.bad(request.payload, due, at, at, fault, 0)

    def open_connections(self) -> None:
        """Open the first connections; a failure is reported when a request needs one."""
        while len(self._idle) < self._first_connections:
            try:
                self._idle.append(self._server.connect())
            except NoAnswerError:
                return

    def close_connections(self) -> None:
        """Close the connections that too high a rate has opened."""
        while len(self._idle) > self._first_connections:
            self._idle.popleft().close()

    def wait_for_answers(self) -> None:
        """Wait until no request is in flight; each of them ends by its timeout."""
        while self.in_flight:
            self._all_answered.clear()
            self._all_answered.wait(self._timeout)

    def close(self) -> None:
        """Close all connections; requests in flight get no outcome."""
        for timer in (self._timer, self._share_timer):
            timer.stop()
            timer.close()
        for connection in (*self._idle, *self._exchanges):
            connection.close()

    def _send(self, connection: Connection, request: PreparedRequest, exchange: Exchange) -> None:
        self._exchanges[connection] = exchange
        connection.send(request.data, self._known.get(request.payload), self._on_answer)

    def _send_over_new_connection(self, request: PreparedRequest, exchange: Exchange) -> None:
        self._connecting += 1
        gevent.spawn(self._connect_and_send, request, exchange)

    def _connect_and_send(self, request: PreparedRequest, exchange: Exchange) -> None:
        """Runs in a greenlet of its own."""
        try:
            with gevent.Timeout(self._timeout, NoAnswerError(self._no_answer)):
                connection = self._server.connect()
        except NoAnswerError as error:
            self._connecting -= 1
            self._end(exchange, now(), str(error))
        else:
            self._connecting -= 1
            self._send(connection, request, exchange)

    def _end_sharing(self) -> None:
        """Open connections for the requests that have waited for one."""
        at = now()
        waited = at - self._waiting[0][1].begun if self._waiting else 0.0
        for _ in range(MAX_NEW_CONNECTIONS if waited < STALL_SECONDS else MAX_NEW_CONNECTIONS_IN_STALL):
            if not self._waiting or at - self._waiting[0][1].begun < SHARE_SECONDS:
                break
            self._send_over_new_connection(*self._waiting.popleft())
        if not self._waiting:
            self._share_timer.stop()

    def _on_answer(self, connection: Connection, outcome: int | RawAnswer | NoAnswerError) -> None:
        ended = now()
        exchange = self._exchanges.pop(connection)
        if not connection.usable:
            connection.close()
        elif self._waiting:
            self._send(connection, *self._waiting.popleft())
        else:
            self._idle.append(connection)
        if isinstance(outcome, int):
            self._end(exchange, ended, None, outcome)
        elif isinstance(outcome, RawAnswer):
            self._end(exchange, ended, self._check(exchange.payload, outcome), len(outcome.data))
        else:
            self._end(exchange, ended, str(outcome))

    def _check(self, payload: Payload, answer: RawAnswer) -> str | None:
        fault = self._checker.check(payload, answer.status, answer.headers, answer.data)
        if fault is None and answer.whole:
            self._known[payload] = KnownAnswer(answer.data, answer.headers.get(LENGTH_HEADER))
        return fault

    def _end(self, exchange: Exchange, ended: float, fault: str | None, size: int = 0) -> None:
        payload = exchange.payload
        if fault is None:
            self._log.good(payload, exchange.due, exchange.begun, ended, size)
        else:
            self._log.bad(payload, exchange.due, exchange.begun, ended, fault, size)
        self.in_flight -= 1
        if exchange.on_end is not None:
            exchange.on_end()
        if not self.in_flight:
            self._all_answered.set()

    def _end_overdue(self) -> None:
        """End the requests that have waited too long for their answers, with their connections."""
        at = now()
        while self._waiting and at - self._waiting[0][1].begun >= self._timeout:
            self._end(self._waiting.popleft()[1], at, self._no_answer)
        overdue = [
            connection
            for connection, exchange in self._exchanges.items()
            if at - exchange.begun >= self._timeout
        ]
        for connection in overdue:
            connection.close()
            self._end(self._exchanges.pop(connection), at, self._no_answer)

    @property
    def _no_answer(self) -> str:
        return f"no answer in {self._timeout:g} s"
