"""Timeouts of connections: a client that is too slow, silent or does not read is disconnected."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.echo_server import GET, EchoServer, parse_refusal, read_answer, run
from tests.support.in_process_worker import until
from turnpike.service.requests.request import Request


def test_slow_headers_get_408() -> None:
    """The head must be complete after header_seconds, even if bytes keep arriving."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        received = asyncio.create_task(reader.read())
        writer.write(b"GET /quick HTTP/1.1\r\nhost: x\r\nx: ")
        async with asyncio.timeout(5):
            while not received.done():
                writer.write(b"y")
                await asyncio.sleep(0.02)
        assert parse_refusal(received.result()) == (
            408,
            "the request line and headers: expected all within 0.2 seconds (--header-seconds), "
            "got only a part",
        )
        assert echo.app.requested_paths == []

    run(test, header_seconds=0.2)


@pytest.mark.parametrize(
    ("before", "limits"),
    [(b"", {"header_seconds": 0.2, "idle_seconds": 60}), (GET, {"header_seconds": 60, "idle_seconds": 0.2})],
)
def test_an_idle_connection_is_closed(before: bytes, limits: dict[str, float]) -> None:
    """No answer is sent: a new one must send headers in time, and a used one must not stay idle."""

    async def test(echo: EchoServer) -> None:
        raw = await echo.send_and_read_all(before)
        assert raw.count(b"HTTP/1.1") == len(before[:1])

    run(test, **limits)


def test_a_connection_with_a_running_request_is_not_idle() -> None:
    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await asyncio.sleep(0.3)
        echo.app.release.set()
        assert (await read_answer(reader))[0] == 200

    run(test, header_seconds=0.1, idle_seconds=0.1)


def test_a_client_that_does_not_read_is_disconnected() -> None:
    """An answer that the client does not read must not stay in memory for ever."""

    async def test(echo: EchoServer) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", echo.port))
            await asyncio.get_running_loop().sock_sendall(client, GET.replace(b"quick", b"large"))
            connections = echo.app.connections
            await until(lambda: len(echo.app.requested_paths) == 1)
            assert connections
            await until(lambda: not connections)

    run(test, idle_seconds=0.2)


def test_a_delay_of_the_service_ends_no_connection() -> None:
    """Headers that arrive during a long turn of the event loop are read in the next one, and are in time."""

    async def test(echo: EchoServer) -> None:
        handle = echo.application.handle

        def handle_slowly(request: Request) -> Coroutine[Any, Any, None]:
            if request.head.path == "/blocks":
                slow.sendall(GET[20:])
                # all of it has arrived, and the time limits are checked before it is read
                time.sleep(1)
            return handle(request)

        echo.application.handle = handle_slowly
        with socket.create_connection(("127.0.0.1", echo.port)) as slow:
            slow.settimeout(5)
            slow.sendall(GET[:20])
            await until(lambda: echo.server.connections)
            await asyncio.sleep(0.05)
            await echo.send_and_read_all(
                GET.replace(b"/quick", b"/blocks").replace(b"host", b"connection: close\r\nhost")
            )
            answer = await asyncio.to_thread(slow.recv, 1000)
        assert answer.startswith(b"HTTP/1.1 200")

    run(test, header_seconds=0.4)


def test_an_error_in_one_connection_keeps_the_limits_of_others(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged.."""

    async def test(echo: EchoServer) -> None:
        await echo.connect()
        await until(lambda: len(echo.app.connections) == 1)
        (broken,) = echo.app.connections

        def fail(now: float) -> None:
            raise MemoryError

        broken.check_timeouts = fail
        await until(lambda: "checking the time limits of a connection failed" in caplog.messages)
        assert await echo.send_and_read_all(b"GET /quick HTTP/1.1\r\nhost: x\r\nx: ") != b""

    run(test, header_seconds=0.2)
