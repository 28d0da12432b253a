"""A client that stops sending (half-closed) before it has its answers: it gets them, unless it has closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.echo_server import GET, EchoServer, read_answer
from tests.support.echo_server import run as run_echo
from tests.support.in_process_servers import own_server
from tests.support.in_process_worker import INFER, InProcessWorker, infer, load_worker, request, rows, until

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SLOW = GET.replace(b"quick", b"slow")
# longer than the service waits before it asks whether the client still reads
ASKED_AFTER_SECONDS = 0.1


async def send_and_stop(echo: EchoServer, data: bytes) -> asyncio.StreamReader:
    """Send this, and then the end of the input."""
    reader, writer = await echo.connect()
    writer.write(data)
    writer.write_eof()
    return reader


@pytest.mark.parametrize("last", [GET, SLOW], ids=["quick", "slow"])
@pytest.mark.parametrize(
    "rest", [b"", b"GET /quick HT", b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc"]
)
def test_all_complete_requests_are_answered(last: bytes, rest: bytes) -> None:
    """An incomplete one behind them is dropped. After the last answer the connection is closed."""

    async def test(echo: EchoServer) -> None:
        reader = await send_and_stop(echo, GET * 2 + last + rest)
        for _ in range(2):
            assert (await read_answer(reader))[0] == 200
        # the end of the input is not read while a request waits for another one
        if last is SLOW and not rest.startswith(b"POST"):
            assert await asyncio.wait_for(reader.readexactly(len(CONTINUE)), 5) == CONTINUE
        echo.app.release.set()
        assert (await read_answer(reader))[0] == 200
        assert await asyncio.wait_for(reader.read(), 1) == b""
        await until(lambda: not echo.app.connections)

    run_echo(test)


def test_a_quick_answer_has_nothing_before_it() -> None:
    async def test(echo: EchoServer) -> None:
        reader = await send_and_stop(echo, GET)
        assert (await asyncio.wait_for(reader.read(), 1)).startswith(b"HTTP/1.1 200 ")

    run_echo(test)


def test_an_incomplete_request_is_dropped() -> None:
    async def test(echo: EchoServer) -> None:
        data = b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc"
        for rest in (data, data[:20]):
            assert await asyncio.wait_for((await send_and_stop(echo, rest)).read(), 1) == b""
        assert echo.app.disconnects == 1

    run_echo(test)


@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_http_1_0_is_answered_only_for_get(method: bytes) -> None:
    """Nothing can be sent before the answer to find out whether the client has closed."""

    async def test(echo: EchoServer) -> None:
        data = b"%b /slow HTTP/1.0\r\n\r\n" % method
        reader = await send_and_stop(echo, data)
        await until(lambda: echo.app.requested_paths == ["/slow"])
        await asyncio.sleep(ASKED_AFTER_SECONDS)
        assert echo.app.cancelled is (method == b"POST")
        echo.app.release.set()
        answer = await asyncio.wait_for(reader.read(), 1)
        assert answer[:13] == (b"HTTP/1.1 200 " if method == b"GET" else b"")

    run_echo(test)


@pytest.mark.parametrize("leave", ["close", "stop sending"])
def test_only_a_client_that_has_closed_leaves_the_queue(leave: str) -> None:
    """Both clients send the same bytes and the same end, while another request runs."""
    worker = load_worker(access_log=False)
    data = request(INFER, infer(rows(1)))

    async def client(port: int) -> tuple[Any, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        return reader, writer

    async def wait(condition: Callable[[], bool]) -> None:
        await asyncio.wait_for(until(condition), 5)

    async def test() -> None:
        async with own_server(worker) as port:
            with worker.blocked_runs() as release:
                first = await client(port)
                await wait(lambda: bool(worker.model.batcher._running))
                second = await client(port)
                await wait(lambda: worker.model.batcher.waiting == 1)
                if leave == "close":
                    second[1].close()
                    await wait(lambda: worker.model.batcher.waiting == 0)
                else:
                    second[1].write_eof()
                    await asyncio.sleep(ASKED_AFTER_SECONDS)
                    assert worker.model.batcher.waiting == 1
                release.set()
                assert (await read_answer(first[0]))[0] == 200
                if leave != "close":
                    assert await second[0].readexactly(len(CONTINUE)) == CONTINUE
                    assert (await read_answer(second[0]))[0] == 200
            first[1].close()
            second[1].close()
        counts: dict[str, Any] = InProcessWorker.counts(worker)
        assert counts["failed"] == ({"gone": 1} if leave == "close" else {})
        assert counts["requests"] == (1 if leave == "close" else 2)

    asyncio.run(test())
