"""Load generator of tests: connections that send one request after another and count lost ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ClientRequest:
    """A request; `check` returns what is wrong with the body of an answer, or None."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    check: Callable[[bytes], str | None] = lambda body: None

    def to_bytes(self, host: str) -> bytes:
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass
class LoadTally:
    """Results of a load."""

    # answers by status
    statuses: Counter[int] = field(default_factory=Counter)
    # requests on an open connection without a complete answer
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    # connections that could not be opened: nothing was sent, so nothing is lost
    refused: int = 0
    # times at which good answers arrived
    good: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def rate(self) -> float:
        """Good answers per second."""
        return len(self.good) / (max(self.good) - min(self.good)) if len(self.good) > 1 else 0.0


class LoadGenerator:
    """Connections that send to one server until the time is over or `stopping` is set."""

    def __init__(
        self, url: str, requests: list[ClientRequest], connections: int, *, fresh: bool = False
    ) -> None:
        """`fresh` makes a new connection for every request."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self.host, self.port = parts.hostname, parts.port
        self.requests = requests
        self._data = [request.to_bytes(f"{self.host}:{self.port}") for request in requests]
        self.connections, self.fresh = connections, fresh
        self.tally = LoadTally()
        self.stopping = False

    async def run(self, seconds: float) -> LoadTally:
        """Send for this time or until `stopping`, then wait for the last answers."""
        until = monotonic() + seconds
        await asyncio.gather(*(self._connection(number, until) for number in range(self.connections)))
        return self.tally

    async def _connection(self, number: int, until: float) -> None:
        turn = number
        while monotonic() < until and not self.stopping:
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
            except OSError:
                self.tally.refused += 1
                await asyncio.sleep(0.02)
                continue
            try:
                again = True
                while again and monotonic() < until and not self.stopping:
                    again = await self._exchange(turn % len(self.requests), reader, writer) and not self.fresh
                    turn += self.connections
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _exchange(self, index: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one request; returns whether the connection can be used again."""
        tally, begun = self.tally, monotonic()
        try:
            writer.write(self._data[index])
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
                if name
            }
            body = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 60)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            tally.lost.append(repr(error))
            return False
        status = int(first.split()[1])
        tally.statuses[status] += 1
        if status == 200:
            tally.good.append(monotonic())
            tally.latencies.append(monotonic() - begun)
            if fault := self.requests[index].check(body):
                tally.wrong.append(fault)
        return headers.get("connection", "").lower() != "close"
