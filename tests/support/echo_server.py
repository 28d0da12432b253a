"""An HTTP server in this process, with an ASGI application that echoes, and clients for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvloop

from turnpike.service.config.settings import Settings
from turnpike.service.http.asgi import AsgiEndpoint
from turnpike.service.http.compression import AnswerCompressor
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server
from turnpike.service.http.connection.shared_state import ConnectionLimits
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.middleware import RequestMiddleware
from turnpike.service.requests.observer import RequestObserver
from turnpike.service.requests.router import Router
from turnpike.service.telemetry.counters import RequestCounters

GET = b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class EchoApp:
    """An ASGI application that answers with the path and the length of the body. Some paths differ."""

    def __init__(self) -> None:
        self.requested_paths: list[str] = []
        self.disconnects = 0
        self.cancelled = False
        self.release = asyncio.Event()
        # the most requests that waited behind another on one connection
        self.longest_pipeline = 0
        self.connections: Any = ()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.requested_paths.append(path)
        self.longest_pipeline = max(
            [self.longest_pipeline, *(len(connection.pipeline) for connection in self.connections)]
        )
        if path == "/early":
            # answers before the body has arrived, as the service does if a body is too large
            await answer(send, 413, b"{}")
            return
        if path == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await self.release.wait()
            await send({"type": "http.response.body", "body": b"all"})
            return
        if path == "/large":
            await answer(send, 200, b"x" * 50_000_000)
            return
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            length += len(message["body"])
            if not message["more_body"]:
                break
        if path == "/slow":
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        body = json.dumps({"path": path, "bytes": length}).encode()
        await answer(send, 200, body, close=scope["query_string"] == b"close")


async def answer(send: Any, status: int, body: bytes, close: bool = False) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    headers += [(b"connection", b"close")] if close else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class AsgiApplication:
    """An ASGI application behind the service's middleware, in the form that a connection expects."""

    def __init__(self, asgi: Any, settings: Settings, linger_seconds: float = 2.0) -> None:
        self.connection_limits = ConnectionLimits(
            settings.max_header, settings.header_seconds, settings.idle_seconds, linger_seconds
        )
        counters = RequestCounters()
        self.observer = RequestObserver(counters, None, None)
        budget = MemoryBudget(1 << 30)
        middleware = RequestMiddleware(
            Router(AsgiEndpoint(asgi)),
            Authenticator(),
            budget,
            self.observer,
            compressor=AnswerCompressor(budget),
        )
        self.handle = middleware.handle
        self.count_refused = self.observer.count_refused


class EchoServer:
    """A server in this process, and its clients."""

    def __init__(self, app: EchoApp, application: AsgiApplication, server: Server, port: int) -> None:
        self.app, self.application, self.server, self.port = app, application, server, port
        self.clients: list[asyncio.StreamWriter] = []

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        return reader, writer

    async def close_clients(self) -> None:
        for writer in self.clients:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self.clients), return_exceptions=True)

    async def drain(self) -> int:
        """Drain the server as the last of all workers."""
        last = asyncio.Event()
        last.set()
        return await self.server.drain(last)

    async def send_and_read_all(self, data: bytes) -> bytes:
        """All bytes that the server sends until it closes the connection."""
        reader, writer = await self.connect()
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 5)


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """The next answer on a connection: status, headers, body."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 5)
    return int(head[0].split()[1]), headers, body


@contextlib.asynccontextmanager
async def echo_server(quiet: float = 0.05, **overrides: Any) -> AsyncIterator[EchoServer]:
    """A server that drains faster than by default; `quiet` is that of DrainTiming."""
    listener = listen("127.0.0.1", 0)
    app = EchoApp()
    linger_seconds = overrides.pop("linger_seconds", 2.0)
    timing = DrainTiming(handshake=0.02, quiet=quiet, step=0.005)
    settings = Settings(**{"drain_wait": 0, "drain_seconds": 0.2, **overrides})
    application = AsgiApplication(app, settings, linger_seconds)
    server = Server(settings, SharedPort(listener, ConnectionCounts(1)), 1, application, timing)
    app.connections = server.shared.connections
    echo = EchoServer(app, application, server, listener.getsockname()[1])
    try:
        yield echo
    finally:
        app.release.set()
        await echo.close_clients()
        if listener.fileno() != -1:
            await echo.drain()


def run(test: Callable[[EchoServer], Awaitable[None]], **options: Any) -> None:
    """Run a test with an echo server of its own."""

    async def scene() -> None:
        async with echo_server(**options) as echo:
            await test(echo)

    uvloop.run(scene())


def parse_refusal(raw: bytes) -> tuple[int, str]:
    """The status and the error message of an answer that ends a connection."""
    head, body = raw.split(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    assert b"date: " in head
    return int(head.split()[1]), json.loads(body)["error"]
