"""Pipelined requests are answered in order, and do not hold up other connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.echo_server import GET, EchoServer, parse_refusal, read_answer, run
from tests.support.in_process_worker import GATES, INFER, InProcessWorker, request, until
from tests.support.in_process_worker import run as in_worker
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response


def test_pipelined_requests_are_answered_in_order() -> None:
    """Several requests, with and without bodies, are in one segment."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        post = b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
        writer.write(b"".join([GET, post % 1, GET, post % 2]))
        paths = [json.loads((await read_answer(reader))[2])["path"] for _ in range(4)]
        assert paths == ["/quick", "/1", "/quick", "/2"]

    run(test)


@pytest.mark.parametrize("first", ["quick", "slow"])
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"X\r\n\r\n", 400),
        (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
        (b"CONNECT /a HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 3000 + b"\r\n\r\n", 431),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 10, 408),
        (b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_requests_before_a_malformed_one_are_answered(data: bytes, status: int, first: str) -> None:
    """They are answered in order. Then the malformed request is refused, and the connection closes."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", first.encode()) + GET * 2 + data)
        await asyncio.sleep(0.05)
        echo.app.release.set()
        for path in (first, "quick", "quick"):
            _, _, body = await read_answer(reader)
            assert json.loads(body)["path"] == f"/{path}"
        assert parse_refusal(await asyncio.wait_for(reader.read(), 5))[0] == status
        assert "/a" not in echo.app.requested_paths
        writer.close()
        await until(lambda: not echo.app.connections)

    run(test, max_header=2000, header_seconds=0.2)


def test_requests_after_the_last_response_do_not_delay_closing() -> None:
    """The connection closes after that answer, even if requests wait and the client stays connected."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(
            GET.replace(b"quick", b"slow?close")
            + GET
            + b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc"
        )
        await until(lambda: echo.app.requested_paths == ["/slow"])
        await asyncio.sleep(0.02)
        echo.app.release.set()
        assert (await read_answer(reader))[1]["connection"] == "close"
        await until(lambda: not echo.app.connections)
        assert echo.app.requested_paths == ["/slow"]

    run(test, header_seconds=0.2, linger_seconds=0.1)


def test_the_last_response_reaches_a_client_that_still_sends() -> None:
    """Later requests are read and discarded until the client closes, so that the connection is not reset."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow?close") + GET)
        await until(lambda: any(connection.pipeline for connection in echo.app.connections))
        writer.write(GET * 30_000)
        await asyncio.sleep(0.05)
        echo.app.release.set()
        assert (await read_answer(reader))[1]["connection"] == "close"
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await until(lambda: not echo.app.connections)
        assert echo.app.requested_paths == ["/slow"]

    run(test, linger_seconds=60)


def test_nothing_is_read_after_a_malformed_request() -> None:
    """It is refused once, whatever arrives before the refusal can be sent."""
    statuses = []

    async def test(echo: EchoServer) -> None:
        echo.application.count_refused = lambda status: str(statuses.append(status))
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await until(lambda: echo.app.requested_paths == ["/slow"])
        for _ in range(3):
            writer.write(b"nonsense\r\n\r\n")
            await asyncio.sleep(0.02)
        echo.app.release.set()
        assert (await read_answer(reader))[0] == 200
        assert parse_refusal(await asyncio.wait_for(reader.read(), 5))[0] == 400
        assert statuses == [400]

    run(test)


def test_a_malformed_body_after_its_response_began_only_closes() -> None:
    """If a body turns out to be malformed after its answer has begun, the connection is only closed."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(b"POST /begun HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"zz\r\n")
        assert await asyncio.wait_for(reader.read(), 5) == b""

    run(test)


def test_reading_stops_while_many_requests_wait() -> None:
    """They must not fill the memory."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        request = GET[:-2] + b"x: " + b"y" * 4000 + b"\r\n\r\n"
        sending = asyncio.create_task(send_all(writer, request, 2000))
        for _ in range(2000):
            assert (await read_answer(reader))[0] == 200
        await sending
        # a piece has at most 256 KiB
        assert 1 < echo.app.longest_pipeline < 140

    run(test)


async def send_all(writer: asyncio.StreamWriter, request: bytes, times: int) -> None:
    for _ in range(times // 50):
        writer.write(request * 50)
        await writer.drain()


@pytest.mark.parametrize("path", [GATES, INFER, "/v2/models/nothing/gates"])
def test_pipelined_requests_do_not_delay_other_connections(path: str) -> None:
    """Other connections get a turn of the event loop after a few of them."""
    requests = 400

    async def scene(worker: InProcessWorker) -> None:
        loop = asyncio.get_running_loop()
        answered_before: list[int] = []
        many, other = worker.connect(), worker.connect()

        def ask_meanwhile() -> None:
            other.send(get)
            answered_before.append(bytes(many.wire.written).count(b"HTTP/1.1 "))

        get = request(path, method="GET")
        many.send(get * requests)
        loop.call_soon(ask_meanwhile)
        await until(lambda: bytes(other.wire.written).count(b"HTTP/1.1 ") == 1)
        assert answered_before[0] < requests / 4
        await until(lambda: bytes(many.wire.written).count(b"HTTP/1.1 ") == requests)
        assert many.wire.reading

    in_worker(scene)


@pytest.mark.parametrize("answered", [1, 20], ids=["in the turn of the answer", "in a later turn"])
def test_a_request_that_cannot_be_started_ends_its_connection(answered: int) -> None:
    """Such as for lack of memory. Otherwise its client would wait for ever."""

    async def respond(request: Request) -> None:
        if answered == 1:
            await asyncio.sleep(0)
        request.respond(Response(b"{}"))

    async def test(echo: EchoServer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, report: None)
        started: list[Request] = []

        def handle(request: Request) -> Coroutine[Any, Any, None]:
            if len(started) == answered:
                raise MemoryError
            started.append(request)
            return respond(request)

        echo.application.handle = handle  # type: ignore[assignment]
        reader, writer = await echo.connect()
        writer.write(GET * 25)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        assert len(started) == answered
        assert not echo.app.connections

    run(test)
