"""Connections that take too long: what drips, is silent or does not read ends; what is only slow does not."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.support.echo_server import GET, EchoServer, parse_rejection, read_answer, run
from tests.support.in_process_worker import until


def test_headers_that_drip_are_refused_in_time() -> None:
    """408 when the head is not there in time, however busily it is sent."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        said = asyncio.create_task(reader.read())
        writer.write(b"GET /quick HTTP/1.1\r\nx: ")
        async with asyncio.timeout(5):
            while not said.done():
                writer.write(b"y")
                await asyncio.sleep(0.02)
        assert parse_rejection(said.result()) == (
            408,
            "the headers: expected all of them within 0.2 seconds, got some",
        )
        assert echo.app.requested_paths == []

    run(test, header_seconds=0.2)


@pytest.mark.parametrize("before", [b"", GET])
def test_a_silent_connection_is_closed(before: bytes) -> None:
    """Without a word, when it was never used and when it was."""

    async def test(echo: EchoServer) -> None:
        raw = await echo.send_and_read_all(before)
        assert raw.count(b"HTTP/1.1") == len(before[:1])

    run(test, header_seconds=0.2, idle_seconds=0.2)


def test_a_slow_answer_outlives_the_limits_of_silence() -> None:
    """A connection on which a request is being answered is not idle."""

    async def test(echo: EchoServer) -> None:
        reader, writer = await echo.connect()
        writer.write(GET.replace(b"quick", b"slow"))
        await asyncio.sleep(0.3)
        echo.app.release.set()
        assert (await read_answer(reader))[0] == 200

    run(test, header_seconds=0.1, idle_seconds=0.1)


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """An answer that nobody takes does not stay in memory for ever."""

    async def test(echo: EchoServer) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", echo.port))
            await asyncio.get_running_loop().sock_sendall(client, GET.replace(b"quick", b"large"))
            open_ones = echo.app.connections
            await until(lambda: len(echo.app.requested_paths) == 1)
            assert open_ones
            await until(lambda: not open_ones)

    run(test, idle_seconds=0.2)
