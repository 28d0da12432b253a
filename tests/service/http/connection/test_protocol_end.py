"""The end of a connection: the client disconnects, or the server drains."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.echo_server import GET, EchoServer, read_answer, run
from tests.support.in_process_worker import until


def test_a_disconnect_reaches_the_application() -> None:
    """The application can then stop its work for this client."""

    async def test(echo: EchoServer) -> None:
        _, writer = await echo.connect()
        writer.write(b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        await until(lambda: echo.app.requested_paths == ["/quick"])
        writer.close()
        await until(lambda: echo.app.disconnects == 1)

    run(test)


@pytest.mark.parametrize("behind", [b"", GET])
def test_requests_of_a_disconnected_client_are_dropped(
    behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The running request is cancelled, and a pipelined one after it never starts."""

    async def test(echo: EchoServer) -> None:
        _, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow") + behind)
        await until(lambda: echo.app.requested_paths == ["/slow"])
        if behind:
            await until(lambda: any(connection.pipeline for connection in echo.app.connections))
        writer.transport.abort()
        if behind:
            # reading is paused, so the server would notice only when it writes an answer
            for connection in list(echo.app.connections):
                connection.transport.abort()
        await until(lambda: echo.app.cancelled)
        echo.app.release.set()
        await asyncio.sleep(0.02)
        assert echo.app.requested_paths == ["/slow"]

    run(test)
    assert caplog.records == []


def test_draining_closes_each_connection_with_a_response() -> None:
    """A busy, an idle and a new connection each get an answer that closes them."""

    async def test(echo: EchoServer) -> None:
        slow, idle = await echo.connect(), await echo.connect()
        slow[1].write(GET.replace(b"quick", b"slow"))
        idle[1].write(GET)
        assert "connection" not in (await read_answer(idle[0]))[1]
        await until(lambda: "/slow" in echo.app.requested_paths)
        ending = asyncio.create_task(echo.drain())
        await asyncio.sleep(0.05)
        fresh = await echo.connect()
        fresh[1].write(GET)
        idle[1].write(GET)
        echo.app.release.set()
        for reader, _ in (slow, idle, fresh):
            status, headers, _ = await read_answer(reader)
            assert (status, headers["connection"]) == (200, "close")
            assert await reader.read() == b""
        assert await ending == 0

    run(test, drain_wait=0.3, drain_seconds=5)


def test_a_body_that_arrives_while_draining_gets_the_last_response() -> None:
    """At other times, a body that arrives late may be followed by another request."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: echo.app.requested_paths == ["/a"])
        ending = asyncio.create_task(echo.drain())
        await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")
        assert (await read_answer(reader))[1]["connection"] == "close"
        assert await ending == 0

    run(test, drain_seconds=5)


def test_a_connection_from_before_the_port_closed_is_answered() -> None:
    """Its request may arrive after the port has closed."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        ending = asyncio.create_task(echo.drain())
        await asyncio.sleep(0.2)
        with pytest.raises(ConnectionRefusedError):
            await echo.connect()
        writer.write(GET)
        assert (await read_answer(reader))[0] == 200
        assert await ending == 0

    run(test, quiet=0.5, drain_seconds=5)


def test_connections_in_the_accept_queue_are_answered() -> None:
    """They connected before the port closed, but were not accepted yet."""

    async def test(echo: EchoServer) -> None:
        acceptor = echo.server._acceptor
        acceptor._pause()
        waiting = [await echo.connect() for _ in range(20)]
        for _, writer in waiting:
            writer.write(GET)
        assert await echo.drain() == 0
        for reader, _ in waiting:
            assert (await read_answer(reader))[0] == 200

    run(test, drain_seconds=5)


def test_pipelined_requests_are_all_answered_while_draining() -> None:
    """Only the last answer says that the connection closes."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: echo.app.requested_paths == ["/slow"])
        ending = asyncio.create_task(echo.drain())
        await asyncio.sleep(0.02)
        writer.write(GET)
        await asyncio.sleep(0.02)
        echo.app.release.set()
        assert "connection" not in (await read_answer(reader))[1]
        assert (await read_answer(reader))[1]["connection"] == "close"
        assert await ending == 0

    run(test, drain_seconds=5)


def test_drain_cancels_and_counts_slow_requests() -> None:
    """After drain_seconds, drain() returns the number of requests without an answer."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: echo.app.requested_paths == ["/slow"])
        assert await echo.drain() == 1
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""

    run(test, drain_seconds=0.1)


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Only reference counting frees objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GET,
        GET[:-2],
        b"POST /quick HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc",
        b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc",
        b"POST /early HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        GET.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"),
        GET.replace(b"quick", b"slow") + GET,
        b"nonsense\r\n\r\n",
    ],
)
@pytest.mark.usefixtures("no_collections")
def test_a_lost_connection_takes_no_memory(data: bytes) -> None:
    """Its last request and its parser do not keep it until a garbage collection."""

    async def test(echo: EchoServer) -> None:
        lost = []
        for _ in range(2):
            _, writer = await echo.connect()
            await until(lambda: bool(echo.app.connections))
            lost += [weakref.ref(connection) for connection in echo.app.connections]
            writer.write(data)
            await asyncio.sleep(0.01)
            writer.transport.abort()
            for connection in list(echo.app.connections):
                connection.transport.abort()
            connection = None
            await until(lambda: not echo.app.connections)
        echo.app.release.set()
        await until(lambda: all(connection() is None for connection in lost))

    run(test)


def test_an_error_at_the_end_of_a_request_ends_its_connection() -> None:
    """Such as for lack of memory. Otherwise the requests that follow would wait for ever."""

    class FailingSet(set[Any]):
        def discard(self, item: Any) -> None:
            raise MemoryError

    async def test(echo: EchoServer) -> None:
        echo.server.shared.running = FailingSet()
        raw = await echo.send_and_read_all(GET * 2)
        assert raw.count(b"HTTP/1.1 200") == 1
        echo.server.shared.running = set()

    run(test)
