"""Servers in this process for the application of a worker: our own, and uvicorn's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

from tests.support.asgi import Reply
from tests.support.in_process_worker import InProcessWorker
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server


@contextlib.asynccontextmanager
async def own_server(worker: InProcessWorker, **options: Any) -> AsyncIterator[int]:
    """The port of the service's own server, with these settings of its connections."""
    listener = listen("127.0.0.1", 0)
    settings = Settings(drain_wait=0, drain_seconds=1, **options)
    timing = DrainTiming(handshake=0.01, quiet=0.02, step=0.002)
    server = Server(settings, SharedPort(listener, ConnectionCounts(1)), 1, worker.app, timing)
    try:
        yield listener.getsockname()[1]
    finally:
        last = asyncio.Event()
        last.set()
        assert await server.drain(last) == 0


@contextlib.asynccontextmanager
async def uvicorn_server(worker: InProcessWorker, **options: Any) -> AsyncIterator[int]:
    """The port of uvicorn's own server."""
    config = uvicorn.Config(
        worker.app, interface="asgi3", lifespan="off", server_header=False, log_config=None, **options
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        async with asyncio.timeout(10):
            while not server.started:
                await asyncio.sleep(0.005)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            async with asyncio.timeout(10):
                await serving


async def ask(port: int, data: bytes) -> Reply:
    """The last answer before the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    received = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    received = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    assert len(headers) == len(lines), "a header was sent twice"
    if "transfer-encoding" in headers:
        chunks = []
        while body:
            size, _, body = body.partition(b"\r\n")
            chunks.append(body[: int(size, 16)])
            body = body[int(size, 16) + 2 :]
        body = b"".join(chunks)
    return Reply(int(status.split()[1]), headers, body)
