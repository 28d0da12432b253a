"""Every stream and every connection that ends is counted once, with its reason."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.support.echo_calls import FAIL, LARGE, REFUSE, STREAM, UNARY, WAIT, Connection, EchoServer, run
from tests.support.h2_client import END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, frame, message, reset
from turnpike.service.grpc.connection.http2_connection import MAX_STREAMS

HEADER_SECONDS, IDLE_SECONDS = 10, 75
WITHOUT_WINDOW = (INITIAL_WINDOW_SIZE, 0)


async def answered(connection: Connection) -> None:
    client = connection.client
    connection.send(
        client.call(1, UNARY, b"x"), client.head(3, STREAM), client.data(3, message(b"y"), end=True)
    )
    await connection.wait_for(3)
    connection.wire.close()


async def failed(connection: Connection) -> None:
    connection.send(connection.client.call(1, REFUSE, b"no"), connection.client.call(3, FAIL, b"x"))
    await connection.wait_for(3)
    connection.wire.close()


async def reset_by_the_client(connection: Connection) -> None:
    connection.send(connection.client.head(1, WAIT), reset(1), reset(1))
    await connection.turns()
    connection.wire.close()


async def invalid(connection: Connection) -> None:
    """DATA behind the end of the request, and streams that are no calls."""
    client = connection.client
    connection.send(client.call(1, WAIT, b"x"), client.data(1, b"more"))
    connection.send(client.head(3, UNARY, (":method", "GET")), client.head(5, UNARY, ("connection", "close")))
    await connection.wait_for(5)
    connection.wire.close()


async def refused(connection: Connection) -> None:
    """One call more than may be open."""
    connection.send(*(connection.client.head(2 * number + 1, WAIT) for number in range(MAX_STREAMS + 1)))
    await connection.wait_for(2 * MAX_STREAMS + 1)
    connection.wire.close()


async def client_left(connection: Connection) -> None:
    connection.send(connection.client.head(1, WAIT), connection.client.head(3, STREAM))
    await connection.turns()
    connection.wire.close()


async def client_error(connection: Connection) -> None:
    """An even number, while a call is running."""
    connection.send(connection.client.head(1, WAIT), frame(HEADERS, END_HEADERS, 2000, b"\x82"))
    connection.wire.close()


async def slow_headers(connection: Connection) -> None:
    connection.send(connection.client.head(1, WAIT), frame(HEADERS, 0, 3, b"\x82"))
    connection.pass_time(HEADER_SECONDS + 1)
    connection.wire.close()


async def unread(connection: Connection) -> None:
    """An answer for which the client gives no window, and then a connection that it does not read."""
    connection.send(connection.client.set(WITHOUT_WINDOW), connection.client.call(1, LARGE, b"100000"))
    connection.send(connection.client.head(3, WAIT))
    await connection.turns()
    connection.pass_time(IDLE_SECONDS + 1)
    assert connection.client.answers[1].reset == "CANCEL"
    connection.wire.unsent = 1000
    connection.pass_time(0)
    connection.pass_time(IDLE_SECONDS + 1)


async def silent(connection: Connection) -> None:
    connection.send(connection.client.head(1, WAIT))
    connection.pass_time(IDLE_SECONDS / 2 + 1)
    connection.pass_time(IDLE_SECONDS + 1)


async def idle(connection: Connection) -> None:
    connection.send(connection.client.call(1, UNARY, b"x"))
    connection.pass_time(IDLE_SECONDS + 1)
    connection.wire.close()


async def stopped(connection: Connection) -> None:
    """The call is cut off, and then the connection, as at the end of `drain`."""
    connection.send(connection.client.head(1, WAIT))
    await connection.turns()
    connection.protocol.begin_drain()
    for call in list(connection.server.shared.running):
        call.cut_off()
    connection.protocol.cut_off()


async def cut_off_without_a_call(connection: Connection) -> None:
    """Its client has not read an answer."""
    connection.send(connection.client.call(1, UNARY, b"x"))
    await connection.turns()
    connection.protocol.cut_off()


async def drained(connection: Connection) -> None:
    connection.protocol.begin_drain()
    connection.protocol.close_if_idle(asyncio.get_running_loop().time() + 1)
    connection.wire.close()


async def behind_the_last_goaway(connection: Connection) -> None:
    connection.send(connection.client.head(1, WAIT))
    connection.protocol.begin_drain()
    connection.protocol.close_if_idle(asyncio.get_running_loop().time() + 1)
    connection.send(connection.client.head(3, UNARY))
    connection.send(reset(1))
    connection.wire.close()


@pytest.mark.parametrize(
    ("scene", "streams", "end"),
    [
        (answered, {"answered": 2}, "client_left"),
        (failed, {"failed": 2}, "client_left"),
        (reset_by_the_client, {"reset": 1}, "client_left"),
        (invalid, {"invalid": 3}, "client_left"),
        (refused, {"refused": 1, "client_left": MAX_STREAMS}, "client_left"),
        (client_left, {"client_left": 2}, "client_left"),
        (client_error, {"client_error": 1}, "client_error"),
        (slow_headers, {"slow_headers": 1}, "slow_headers"),
        (unread, {"unread": 2}, "unread"),
        (silent, {"silent": 1}, "silent"),
        (idle, {"answered": 1}, "idle"),
        (stopped, {"stopped": 1}, "stopped"),
        (cut_off_without_a_call, {"answered": 1}, "stopped"),
        (drained, {}, "stopped"),
        (behind_the_last_goaway, {"refused": 1, "reset": 1}, "client_left"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_end_has_a_reason(scene: object, streams: dict[str, int], end: str) -> None:
    async def play(server: EchoServer) -> None:
        connection = server.connect()
        await scene(connection)  # type: ignore[operator]
        await connection.turns()
        snapshot = server.app.counters.snapshot()
        assert Counter(snapshot["stream_ends"]) == Counter(streams)
        assert snapshot["connection_ends"] == {end: 1}

    run(play)
