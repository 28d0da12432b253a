"""A connection goes from state to state as the docstring of HttpState says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.echo_server import GET, EchoServer, read_answer, run
from tests.support.in_process_worker import until
from turnpike.service.http.connection.http_state import HttpState

HEAD = b"POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n"
CHUNKED = b"POST /quick HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
SLOW = GET.replace(b"quick", b"slow")


async def only_connection(echo: EchoServer) -> Any:
    await until(lambda: bool(echo.app.connections))
    (connection,) = echo.app.connections
    return connection


@pytest.mark.parametrize(
    ("pieces", "states"),
    [
        ([b"\r\n", GET], [HttpState.NEW, HttpState.READY]),
        ([GET[:9], GET[9:]], [HttpState.HEAD, HttpState.READY]),
        ([HEAD, b"ab", b"c"], [HttpState.BODY, HttpState.BODY, HttpState.READY]),
        ([CHUNKED, b"1\r\na\r\n", b"0\r\n\r\n"], [HttpState.BODY, HttpState.BODY, HttpState.READY]),
        ([HEAD + b"abc" + GET[:9], GET[9:]], [HttpState.HEAD, HttpState.READY]),
        ([SLOW, b"X\r\n\r\n"], [HttpState.READY, HttpState.REFUSED]),
        ([SLOW, CHUNKED + b"zz\r\n"], [HttpState.READY, HttpState.REFUSED]),
        ([SLOW, b""], [HttpState.READY, HttpState.HALF_CLOSED]),
        ([SLOW, GET[:9], b""], [HttpState.READY, HttpState.HEAD, HttpState.HALF_CLOSED]),
        ([SLOW, b"X\r\n\r\n", b""], [HttpState.READY, HttpState.REFUSED, HttpState.HALF_CLOSED]),
        ([b"X\r\n\r\n"], [HttpState.LINGERING]),
        ([GET, GET[:9] + b"\x00"], [HttpState.READY, HttpState.LINGERING]),
    ],
)
def test_input_leads_to_the_next_state(pieces: list[bytes], states: list[HttpState]) -> None:
    """An empty piece is the end of the input. At the end the connection is closed."""

    async def test(echo: EchoServer) -> None:
        _, writer = await echo.connect()
        connection = await only_connection(echo)
        assert connection.state is HttpState.NEW
        for piece, state in zip(pieces, states, strict=True):
            writer.write(piece) if piece else writer.write_eof()
            # what leaves the state as it is needs time to arrive
            await asyncio.sleep(0.01)
            async with asyncio.timeout(5):
                while connection.state is not state:
                    await asyncio.sleep(0.001)
        echo.app.release.set()
        writer.close()
        await until(lambda: connection.state is HttpState.CLOSED)
        assert not echo.app.connections

    run(test)


def test_all_answers_are_sent_before_the_connection_lingers() -> None:
    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(SLOW + b"X\r\n\r\n")
        connection = await only_connection(echo)
        await until(lambda: connection.state is HttpState.REFUSED)
        echo.app.release.set()
        assert (await read_answer(reader))[0] == 200
        assert (await read_answer(reader))[0] == 400
        assert connection.state is HttpState.LINGERING
        writer.close()
        await until(lambda: connection.state is HttpState.CLOSED)

    run(test)
