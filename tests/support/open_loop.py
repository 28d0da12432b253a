"""Open-loop load of tests: requests are sent on a schedule, whether or not earlier ones were answered."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlsplit

from tests.support.load_clients import ClientRequest

HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r]+\r\n)*)\r\n")
LENGTH = re.compile(rb"content-length: (\d+)\r\n")
# seconds between two looks at the schedule
STEP_SECONDS = 0.002
# seconds that the last answers may take
LAST_ANSWER_SECONDS = 60


@dataclass
class OpenLoopTally:
    """Results of a load; latencies are in seconds, by status."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: dict[int, list[float]] = field(default_factory=dict)
    # answers with 503 that do not say when to come back
    without_retry_after: int = 0
    # requests on an open connection without a complete answer
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    # requests that were due while every connection waited for an answer
    unsent: int = 0

    def percentile(self, status: int, share: float) -> float:
        return percentile(self.latencies[status], share)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class _Connection(asyncio.Protocol):
    """A connection that has at most one request at a time."""

    def __init__(self, tally: OpenLoopTally, idle: list[_Connection]) -> None:
        self._tally, self._idle = tally, idle
        self._received = bytearray()
        self._request: ClientRequest | None = None
        self._sent = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._idle.append(self)

    def send(self, request: ClientRequest, data: bytes) -> None:
        assert self.transport is not None
        self._request, self._sent = request, monotonic()
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = HEAD.match(self._received)
        length = LENGTH.search(head[2]) if head else None
        if head is None or length is None or len(self._received) < head.end() + int(length[1]):
            return
        status, tally = int(head[1]), self._tally
        tally.statuses[status] += 1
        tally.latencies.setdefault(status, []).append(monotonic() - self._sent)
        tally.without_retry_after += status == 503 and b"retry-after: " not in head[2]
        if (
            status == 200
            and self._request
            and (fault := self._request.check(bytes(self._received[head.end() :])))
        ):
            tally.wrong.append(fault)
        self._received.clear()
        self._request = None
        self._idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.lost += self._request is not None
        self._request = None
        if self in self._idle:
            self._idle.remove(self)


async def send_at_rate(
    url: str, requests: Sequence[ClientRequest], *, rate: float, connections: int, seconds: float
) -> OpenLoopTally:
    """Send requests in turn at this rate, over kept connections, and wait for the last answers.

    Arguments:
        url: the server
        requests: what to send
        rate: requests per second
        connections: number of connections; a request that is due while none is free is not sent
        seconds: duration
    """
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    loop, tally = asyncio.get_running_loop(), OpenLoopTally()
    idle: list[_Connection] = []
    data = [request.to_bytes(f"{parts.hostname}:{parts.port}") for request in requests]
    for _ in range(connections):
        await loop.create_connection(lambda: _Connection(tally, idle), parts.hostname, parts.port)
    opened = list(idle)
    start, due = monotonic(), 0
    while (elapsed := monotonic() - start) < seconds:
        while due < rate * elapsed:
            turn = due % len(requests)
            if idle:
                # the one that has waited longest
                idle.pop(0).send(requests[turn], data[turn])
            else:
                tally.unsent += 1
            due += 1
        await asyncio.sleep(STEP_SECONDS)
    end = monotonic() + LAST_ANSWER_SECONDS
    while len(idle) < len(opened) - tally.lost and monotonic() < end:
        await asyncio.sleep(0.01)
    for connection in opened:
        if connection.transport is not None:
            connection.transport.abort()
    return tally
