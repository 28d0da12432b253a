"""Load for tests: connections that send one request after another, and count what is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Shot:
    """One request, and what its answer must look like; `check` says what is wrong with a body."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    check: Callable[[bytes], str | None] = lambda body: None

    def wire(self, host: str) -> bytes:
        lines = [f"POST {self.path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


@dataclass
class Tally:
    """What came of it: answers by status, requests without one, wrong answers, when each good one came."""

    statuses: Counter[int] = field(default_factory=Counter)
    # sent on an open connection, and no whole answer
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    # connections that could not be made: nothing was sent, so nothing is lost
    refused: int = 0
    good: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def rate(self) -> float:
        """Good answers a second."""
        return len(self.good) / (max(self.good) - min(self.good)) if len(self.good) > 1 else 0.0


class Load:
    """So many connections against one address, until told to stop."""

    def __init__(self, url: str, shots: list[Shot], connections: int, *, fresh: bool = False) -> None:
        """`fresh` makes a new connection for every request."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self.host, self.port = parts.hostname, parts.port
        self.shots = shots
        self.wires = [shot.wire(f"{self.host}:{self.port}") for shot in shots]
        self.connections, self.fresh = connections, fresh
        self.tally = Tally()
        self.stopping = False

    async def run(self, seconds: float) -> Tally:
        """Send for so long, or until `stopping`; then let the last answers come."""
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
                    again = await self._exchange(turn % len(self.shots), reader, writer) and not self.fresh
                    turn += self.connections
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _exchange(self, which: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection may carry another."""
        tally, begun = self.tally, monotonic()
        try:
            writer.write(self.wires[which])
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
            if fault := self.shots[which].check(body):
                tally.wrong.append(fault)
        return headers.get("connection", "").lower() != "close"
