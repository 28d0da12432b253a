"""Accepting connections: the share of each worker, shortages of file descriptors, and TLS handshakes."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.echo_server import AsgiApplication
from tests.support.tls_certificate import certificate
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection import acceptor as acceptors
from turnpike.service.http.connection.connection_counts import NOT_ACCEPTING, ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import Server

GET = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": scope["scheme"][-1:].encode() + b"!"})


class Scene:
    """A server on a listening socket, and the connection counts that it shares with another worker."""

    def __init__(self, listener: socket.socket, **overrides: Any) -> None:
        self.port = listener.getsockname()[1]
        self.shares = ConnectionCounts(2)
        settings = Settings(drain_wait=0, drain_seconds=1, **overrides)
        self.server = Server(settings, SharedPort(listener, self.shares), 1, AsgiApplication(app, settings))
        self.ended: asyncio.Task[int] | None = None

    async def end(self) -> int:
        """Drain the server, once."""
        self.ended = self.ended or asyncio.create_task(self.server.drain(asyncio.Event()))
        return await self.ended

    async def ask(self, **options: Any) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        writer.write(GET)
        received = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        await writer.wait_closed()
        return received[-2:]


def run(
    test: Callable[[Scene], Awaitable[None]], listener: socket.socket | None = None, **settings: Any
) -> None:
    async def play() -> None:
        scene = Scene(listener or listen("127.0.0.1", 0), **settings)
        await test(scene)
        await scene.end()

    uvloop.run(play())


def test_a_server_publishes_its_connection_count() -> None:
    """The count follows its connections, and is withdrawn when the server has ended."""

    async def test(scene: Scene) -> None:
        assert scene.shares.least() == 0
        _, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        await asyncio.sleep(0.05)
        assert scene.shares.least() == 1
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)
        assert scene.shares.least() == 0
        await scene.end()
        assert scene.shares.least() == NOT_ACCEPTING

    run(test)


def test_a_new_connection_goes_to_the_worker_with_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker waits only for a moment. If no other worker accepts the connection, it does."""
    monkeypatch.setattr(acceptors, "YIELD_SECONDS", 0.3)

    async def test(scene: Scene) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", scene.port)
        await asyncio.sleep(0.05)
        started = asyncio.get_running_loop().time()
        assert await scene.ask() == b"p!"
        assert asyncio.get_running_loop().time() - started < 0.25
        scene.shares.publish(2, 0)
        started = asyncio.get_running_loop().time()
        assert await scene.ask() == b"p!"
        assert asyncio.get_running_loop().time() - started > 0.25
        first.close()
        await first.wait_closed()

    run(test)


@pytest.mark.slow
def test_a_hung_worker_is_waited_for_only_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has fewer connections for ever, because it hangs. Once it accepts one, it is waited for again."""
    monkeypatch.setattr(acceptors, "YIELD_SECONDS", 0.3)
    monkeypatch.setattr(acceptors, "MAX_VAIN_YIELDS", 2)

    async def test(scene: Scene) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", scene.port)
        await asyncio.sleep(0.05)

        async def waits() -> bool:
            started = asyncio.get_running_loop().time()
            assert await scene.ask() == b"p!"
            return asyncio.get_running_loop().time() - started > 0.25

        scene.shares.publish(2, 0)
        waited = [await waits() for _ in range(4)]
        _, second = await asyncio.open_connection("127.0.0.1", scene.port)
        await asyncio.sleep(0.05)
        scene.shares.publish(2, 1)
        waited.append(await waits())
        for writer in (first, second):
            writer.close()
            await writer.wait_closed()
        assert waited == [True, True, False, False, True]

    run(test)


def test_a_suspended_worker_accepts_nothing() -> None:
    """Connections wait until it may accept again, and others need not wait for it."""

    async def test(scene: Scene) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        await asyncio.sleep(0.05)
        scene.shares.suspend(1)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)
        assert scene.shares.least() == NOT_ACCEPTING
        asking = asyncio.create_task(scene.ask())
        await asyncio.sleep(0.3)
        assert not asking.done()
        scene.shares.resume(1)
        assert await asking == b"p!"

    run(test)


class Failing(socket.socket):
    """A listening socket whose first calls of accept() fail."""

    faults: list[OSError]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.faults:
            raise self.faults.pop(0)
        return super().accept()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ECONNABORTED])
def test_accepting_continues_after_an_error(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It pauses and logs if a resource is exhausted. It continues at once if a client has aborted."""
    monkeypatch.setattr(acceptors, "SHORTAGE_PAUSE_SECONDS", 0.05)
    listener = Failing(fileno=listen("127.0.0.1", 0).detach())
    listener.setblocking(False)
    listener.faults = [OSError(number, "fault") for _ in range(3)]

    async def test(scene: Scene) -> None:
        assert await scene.ask() == b"p!"

    run(test, listener)
    assert len(caplog.records) == (0 if number == errno.ECONNABORTED else 3)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for the loopback address of this machine, and its key."""
    return certificate(tmp_path)


def test_https_works_with_a_certificate(pair: tuple[Path, Path]) -> None:
    """A client that speaks plain HTTP is disconnected, and other clients do not notice."""
    cert, key = pair

    async def test(scene: Scene) -> None:
        context = ssl.create_default_context(cafile=cert)
        assert await scene.ask(ssl=context) == b"s!"
        assert b"HTTP" not in await scene.ask()
        assert await scene.ask(ssl=context) == b"s!"

    run(test, tls_cert=cert, tls_key=key)


def test_a_handshake_continues_while_draining(pair: tuple[Path, Path]) -> None:
    """A client that connected before the port closed can finish its handshake, and gets an answer."""
    cert, key = pair

    async def test(scene: Scene) -> None:
        context = ssl.create_default_context(cafile=cert)
        loop = asyncio.get_running_loop()
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", scene.port))
        ending = asyncio.create_task(scene.end())
        await asyncio.sleep(0.4)
        reader, writer = await asyncio.open_connection(sock=client, ssl=context, server_hostname="127.0.0.1")
        writer.write(GET)
        assert (await asyncio.wait_for(reader.read(), 5)).endswith(b"s!")
        writer.close()
        await writer.wait_closed()
        assert await ending == 0

    run(test, tls_cert=cert, tls_key=key)


def test_a_handshake_has_a_time_limit(pair: tuple[Path, Path]) -> None:
    """A client that connects and sends nothing is disconnected."""
    cert, key = pair

    async def test(scene: Scene) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(5):
            while scene.server._acceptor.has_handshakes:
                await asyncio.sleep(0.01)

    run(test, tls_cert=cert, tls_key=key, header_seconds=0.2)
