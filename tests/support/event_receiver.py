"""A receiver of events on a real port, which can be slow, refuse, or hang up."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Event:
    """A message that was received; names of headers are in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes
    raw_head: bytes = field(repr=False)


class EventReceiver:
    """What was received, and how it is answered."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connections = 0
        self.answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        # hang up after each answer
        self.hangs_up = False
        # answers are sent while this is set
        self.answers = asyncio.Event()
        self.answers.set()
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def until(self, count: int) -> list[Event]:
        """The events in the order of their times, once there are this many."""
        async with asyncio.timeout(10):
            while len(self.events) < count:
                await asyncio.sleep(0.002)
        return sorted(self.events, key=lambda event: event.headers["ce-time"])

    async def hang_up(self) -> None:
        """Close all connections, as a receiver does to those that are idle."""
        for writer in list(self._writers):
            writer.close()
        await asyncio.sleep(0.02)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *lines = head.decode("latin-1").strip().split("\r\n")
                pairs = [header.split(": ", 1) for header in lines]
                headers = {name.lower(): value for name, value in pairs}
                assert len(headers) == len(pairs)
                body = await reader.readexactly(int(headers["content-length"]))
                self.events.append(Event(line, headers, body, head))
                await self.answers.wait()
                writer.write(self.answer)
                if self.hangs_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


@contextlib.asynccontextmanager
async def event_receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[EventReceiver]:
    receiver = EventReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.url = (
        f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/events?of=1"
    )
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.close()
        await receiver.hang_up()
