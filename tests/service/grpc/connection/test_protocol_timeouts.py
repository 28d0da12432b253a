"""Time limits of a connection: a client that is slow, silent, gone, or does not read."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.echo_calls import LARGE, LATE, STREAM, UNARY, WAIT, Connection, EchoServer, run
from tests.support.h2_client import (
    ACK,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    frame,
    message,
)
from tests.support.in_process_worker import until

HEADER_SECONDS, IDLE_SECONDS = 10, 75
SLOW_HEADERS = "expected all headers within 10 seconds (--header-seconds)"


@pytest.mark.parametrize("part", [b"", PREFACE[:3], PREFACE, PREFACE + b"\0\0"])
def test_a_slow_preface_ends_the_connection(part: bytes) -> None:
    """Also if nothing of it comes."""

    async def scene(server: EchoServer) -> None:
        connection = Connection(server)
        connection.send(part)
        connection.pass_time(HEADER_SECONDS - 1)
        assert connection.client.goaways == []
        connection.pass_time(HEADER_SECONDS + 1)
        assert connection.client.goaways == [(0, "ENHANCE_YOUR_CALM", SLOW_HEADERS)]

    run(scene)


@pytest.mark.parametrize("size", [1, 5, 15])
def test_a_slow_frame_of_headers_ends_the_connection(size: int) -> None:
    """However its bytes trickle in, and although other calls are open."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, WAIT))
        head = connection.client.head(3, UNARY)
        connection.send(head[:size])
        connection.pass_time(HEADER_SECONDS - 1)
        connection.send(head[size : size + 1])
        assert connection.client.goaways == []
        connection.pass_time(HEADER_SECONDS + 1)
        assert connection.client.goaways == [(1, "ENHANCE_YOUR_CALM", SLOW_HEADERS)]

    run(scene)


def test_a_slow_header_block_ends_the_connection() -> None:
    """However its frames trickle in."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(frame(HEADERS, 0, 1, b"\x82"), frame(9, 0, 1, b"\x86"))
        connection.pass_time(HEADER_SECONDS - 1)
        assert connection.client.goaways == []
        connection.send(frame(9, 0, 1))
        connection.pass_time(HEADER_SECONDS + 1)
        assert connection.client.goaways == [(0, "ENHANCE_YOUR_CALM", SLOW_HEADERS)]

    run(scene)


def test_each_frame_of_headers_has_its_own_time() -> None:
    """A busy client may always have a part of a frame on its way."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        rest = b""
        # each segment ends in the middle of a frame, which began when the one before it ended
        for number in range(3):
            head = connection.client.head(2 * number + 1, WAIT)
            connection.send(rest + head[:7])
            rest = head[7:]
            connection.pass_time(HEADER_SECONDS / 2 + 1)
            connection.protocol._head_since -= HEADER_SECONDS / 2 + 1
        assert connection.client.goaways == []

    run(scene)


def test_a_slow_frame_of_data_does_not_end_the_connection() -> None:
    """Its message has a time limit of its own."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM))
        sent = client.data(1, message(b"slow"), end=True)
        connection.send(sent[:12])
        connection.pass_time(HEADER_SECONDS + 1)
        connection.send(sent[12:])
        assert (await connection.wait_for(1)).messages == [b"slow"]

    run(scene)


@pytest.mark.parametrize("is_used", [False, True])
def test_an_idle_channel_is_closed(is_used: bool) -> None:
    """With GOAWAY, so that the client tries calls again that are on their way."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        if is_used:
            connection.send(client.call(1, UNARY, b"x"))
            await connection.wait_for(1)
        connection.pass_time(IDLE_SECONDS - 1)
        assert client.goaways == []
        connection.pass_time(IDLE_SECONDS + 1)
        assert client.goaways == [(int(is_used), "NO_ERROR", "")]
        assert connection.wire.eof_written
        connection.send(client.call(3, UNARY, b"late"))
        await connection.turns()
        assert b"late" not in server.app.read
        assert server.shared.connections
        connection.pass_time(3)
        await connection.turns()
        assert not server.shared.connections

    run(scene)


def test_a_connection_is_idle_from_the_end_of_its_last_call() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, WAIT, b"x"))
        await connection.turns()
        connection.protocol._since -= IDLE_SECONDS
        server.app.release.set()
        await connection.wait_for(1)
        connection.pass_time(IDLE_SECONDS - 1)
        assert connection.client.goaways == []

    run(scene)


def test_a_connection_with_a_call_is_not_idle() -> None:
    """Its client answers our pings."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM))
        loop = asyncio.get_running_loop()
        now = loop.time()
        connection.protocol.check_timeouts(now + IDLE_SECONDS / 2 - 1)
        connection.send()
        assert client.pings == []
        connection.protocol.check_timeouts(now + IDLE_SECONDS / 2 + 1)
        connection.protocol.check_timeouts(now + IDLE_SECONDS / 2 + 2)
        connection.send()
        assert client.pings == [(0, b"turnpike")]
        connection.send(frame(PING, ACK, 0, b"turnpike"))
        connection.protocol._last_input = now + IDLE_SECONDS / 2 + 3
        connection.protocol.check_timeouts(now + IDLE_SECONDS + 1)
        connection.send(client.data(1, message(b"x"), end=True))
        assert (await connection.wait_for(1)).messages == [b"x"]

    run(scene)


def test_a_client_whose_machine_has_gone_is_noticed() -> None:
    """It does not answer our ping, and its calls end."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, WAIT))
        await connection.turns()
        connection.pass_time(IDLE_SECONDS / 2 + 1)
        assert connection.client.pings == [(0, b"turnpike")]
        connection.pass_time(IDLE_SECONDS + 1)
        await until(lambda: server.app.cancelled == 1)
        assert not server.shared.connections

    run(scene)


@pytest.mark.parametrize("paused", [False, True])
def test_a_channel_that_is_not_read_is_disconnected(paused: bool) -> None:
    """With much unread output, or with little."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, UNARY, b"x"))
        await connection.wait_for(1)
        connection.wire.unsent = 1000
        if paused:
            connection.protocol.pause_writing()
        connection.pass_time(0)
        connection.pass_time(IDLE_SECONDS - 1)
        assert not connection.wire.closing
        connection.pass_time(IDLE_SECONDS + 1)
        assert connection.wire.closing

    run(scene)


def test_a_client_that_reads_slowly_stays_connected() -> None:
    """Nothing is read from it in the meantime, so its silence says nothing."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM))
        head = client.head(3, UNARY)
        connection.send(head[:12])
        await connection.turns()
        connection.protocol.pause_writing()
        for second in range(3 * IDLE_SECONDS):
            connection.wire.unsent = 100_000 - second
            connection.pass_time(second)
        assert not connection.wire.closing
        connection.wire.unsent = 0
        connection.protocol._last_input -= IDLE_SECONDS + 1
        connection.protocol._head_since -= IDLE_SECONDS + 1
        connection.protocol.resume_writing()
        connection.pass_time(1)
        connection.send(head[12:], client.data(1, message(b"x"), end=True))
        assert (await connection.wait_for(1)).messages == [b"x"]

    run(scene)


def test_an_answer_whose_window_stays_closed_is_given_up() -> None:
    """It is held in memory. The other calls of the client go on."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 100_000))
        client = connection.client
        connection.send(client.allow(0, 1 << 30), client.call(1, LARGE, b"1000000"))
        await connection.turns()
        assert server.app.budget.bytes == 1_000_000
        connection.pass_time(IDLE_SECONDS - 1)
        assert client.answers[1].reset is None
        connection.send(frame(PING, ACK, 0, b"turnpike"))
        connection.pass_time(IDLE_SECONDS + 1)
        assert client.answers[1].reset == "CANCEL"
        await until(lambda: server.app.budget.bytes == 0)
        connection.send(client.call(3, UNARY, b"x"))
        assert (await connection.wait_for(3)).messages == [b"x"]
        connection.check_windows()

    run(scene)


def test_an_answer_whose_window_opens_slowly_is_not_given_up() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 0))
        client = connection.client
        connection.send(client.call(1, LARGE, b"1000"))
        await connection.turns()
        (call,) = connection.protocol.blocked
        assert call.blocked_since is not None
        call.blocked_since -= IDLE_SECONDS - 1
        connection.send(client.allow(1, 1))
        connection.pass_time(2)
        assert client.answers[1].reset is None
        call.blocked_since -= IDLE_SECONDS
        connection.pass_time(2)
        assert client.answers[1].reset == "CANCEL"

    run(scene)


@pytest.mark.parametrize("sent", [0, 3, 7])
@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_a_slow_message_is_refused(path: str, sent: int) -> None:
    """None of it has come, a part of its length, or a part of it. A stream may wait before a message."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, path), client.data(1, message(b"hello")[:sent]))
        if path == STREAM and not sent:
            await asyncio.sleep(0.1)
            assert not client.answers[1].done
            connection.send(client.data(1, message(b"hello"), end=True))
            assert (await connection.wait_for(1)).messages == [b"hello"]
            return
        answer = await connection.wait_for(1)
        assert (answer.status, answer.reset) == (4, "NO_ERROR")
        assert "within 0.05 seconds (--body-seconds)" in answer.text
        connection.check_windows()

    run(scene, body_seconds=0.05)


def test_a_late_reader_of_a_message_gets_its_own_time() -> None:
    """The time limit is that of the client, not that of the queue."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, LATE), client.data(1, message(b"hello")))
        await asyncio.sleep(0.1)
        server.app.release.set()
        await connection.turns()
        connection.send(client.data(1, end=True))
        assert (await connection.wait_for(1)).messages == [b"hello"]

    run(scene, body_seconds=0.05)
