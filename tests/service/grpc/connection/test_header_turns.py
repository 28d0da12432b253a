"""Headers that take long to decode delay nobody else: a connection with many of them waits for its turns."""

from __future__ import annotations

import asyncio

from tests.support.echo_calls import UNARY, WAIT, Connection, EchoServer, run
from tests.support.h2_client import END_HEADERS, END_STREAM, HEADERS, frame, message
from turnpike.service.grpc.connection.header_blocks import MAX_FIELDS
from turnpike.service.grpc.connection.header_turns import MAX_WORK_AT_ONCE, MAX_WORK_PER_TURN

HEADER_SECONDS, IDLE_SECONDS = 10, 75
# references to the newest entry of the table; all blocks differ, so that none is known
FIELDS = 90


def heavy_calls(connection: Connection, count: int, path: str = UNARY, *, bodies: bool = True) -> bytes:
    """Calls whose headers take long to decode, after one that puts two entries into the table."""
    client = connection.client
    connection.send(client.call(1, path, b"first", headers=(("a", "b"), ("c", "d"))))
    base = client.block(path)
    calls = []
    for number in range(count):
        stream_id = 3 + 2 * number
        marks = bytes(0xBE + (number >> bit & 1) for bit in range(FIELDS))
        calls.append(frame(HEADERS, END_HEADERS | (0 if bodies else END_STREAM), stream_id, base + marks))
        if bodies:
            calls.append(client.data(stream_id, message(b"%d" % number), end=True))
    return b"".join(calls)


def test_many_headers_do_not_delay_other_connections() -> None:
    """A connection decodes a few at once, and is not read until it has decoded the others."""

    async def scene(server: EchoServer) -> None:
        busy, other = server.connect(), server.connect()
        busy.send(heavy_calls(busy, 300))
        assert server.app.started <= 1 + MAX_WORK_AT_ONCE // FIELDS + 1
        assert not busy.wire.reading
        other.send(other.client.call(1, UNARY, b"mine"))
        assert other.client.answers[1].messages == [b"mine"]
        await busy.wait_for(601)
        assert server.app.started == 302
        assert [int(text) for text in server.app.read if text.isdigit()] == list(range(300))
        assert busy.wire.reading
        busy.check_windows()

    run(scene)


def test_all_connections_together_decode_few_headers_in_a_turn() -> None:
    async def scene(server: EchoServer) -> None:
        connections = [server.connect() for _ in range(30)]
        heavy = [heavy_calls(connection, 20) for connection in connections]
        await asyncio.sleep(0)
        before = server.app.started
        most = MAX_WORK_PER_TURN // FIELDS + MAX_WORK_AT_ONCE // FIELDS + 1
        for connection, calls in zip(connections, heavy, strict=True):
            connection.send(calls)
        # all in one turn
        assert server.app.started - before <= most
        while any(not connection.wire.reading for connection in connections):
            before = server.app.started
            await asyncio.sleep(0)
            assert server.app.started - before <= most
        assert server.app.started == 30 * 21
        for connection in connections:
            assert (await connection.wait_for(41)).messages == [b"19"]

    run(scene)


def test_usual_headers_are_decoded_at_once() -> None:
    """Equal headers are decoded once, and those of a few calls with an id of their own are few."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(*(client.call(stream_id, UNARY, b"x") for stream_id in (1, 3)))
        equal = b"".join(client.call(stream_id, UNARY, b"x") for stream_id in range(5, 105, 2))
        connection.send(equal)
        assert server.app.started == 52
        own = (
            client.call(number, UNARY, b"x", headers=(("x-request-id", f"{number}"),))
            for number in (105, 107)
        )
        connection.send(b"".join(own))
        assert server.app.started == 54
        assert connection.wire.pauses == 0

    run(scene)


def test_the_time_of_a_client_does_not_run_while_its_headers_wait() -> None:
    """Its bytes have arrived, so neither the limit on headers nor the one on silence applies."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        # the last frame is not complete
        heavy = heavy_calls(connection, 100, bodies=False)
        connection.send(heavy + connection.client.call(203, UNARY, b"y")[:12])
        assert not connection.wire.reading
        connection.pass_time(HEADER_SECONDS + 1)
        connection.pass_time(2 * IDLE_SECONDS)
        assert connection.client.goaways == []
        await connection.wait_for(201)
        connection.pass_time(HEADER_SECONDS - 1)
        assert connection.client.goaways == []
        connection.pass_time(HEADER_SECONDS + 1)
        ((_, error, _),) = connection.client.goaways
        assert error == "ENHANCE_YOUR_CALM"

    run(scene)


def test_headers_that_wait_are_answered_when_the_server_stops() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        calls = heavy_calls(connection, 50)
        await connection.wait_for(1)
        connection.send(calls)
        server.shared.draining = True
        connection.protocol.begin_drain()
        assert connection.protocol.has_pending_output
        connection.protocol.close_if_idle(asyncio.get_running_loop().time() + 1)
        assert (await connection.wait_for(101)).messages == [b"49"]

    run(scene)


def test_an_error_behind_headers_that_wait_ends_the_connection() -> None:
    """What comes after it is read and ignored, because unread input would reset the connection."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(heavy_calls(connection, 50) + frame(HEADERS, END_HEADERS, 1000, b"\x82"))
        await connection.until(lambda client: client.goaways)
        assert connection.client.goaways[0][1] == "PROTOCOL_ERROR"
        assert connection.wire.reading

    run(scene)


def test_a_client_that_leaves_while_its_headers_wait() -> None:
    """Nothing of it is decoded or run any more."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(heavy_calls(connection, 200, WAIT))
        connection.wire.close()
        await connection.turns()
        started = server.app.started
        await connection.turns(50)
        assert server.app.started == started < 30

    run(scene)


def test_headers_wait_while_the_client_does_not_read() -> None:
    """Else the answers would fill the memory. They are decoded when it reads again."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(heavy_calls(connection, 100))
        connection.protocol.pause_writing()
        await connection.turns(5)
        started = server.app.started
        await connection.turns(50)
        assert server.app.started == started < 101
        connection.protocol.resume_writing()
        assert (await connection.wait_for(201)).messages == [b"99"]
        assert connection.wire.reading

    run(scene)


def test_headers_with_too_many_fields_end_the_connection() -> None:
    """Each takes a byte to send, and 2 µs to decode."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, UNARY, b"x", headers=(("a", "b"),)))
        usual = len(client.block(UNARY))
        flags = END_HEADERS | END_STREAM
        connection.send(frame(HEADERS, flags, 3, client.block(UNARY) + b"\xbe" * (MAX_FIELDS - usual)))
        assert client.goaways == []
        connection.send(frame(HEADERS, flags, 5, client.block(UNARY) + b"\xbe" * (MAX_FIELDS - usual + 1)))
        ((_, error, text),) = client.goaways
        assert (error, text) == ("ENHANCE_YOUR_CALM", "headers: expected at most 100 fields, got more")

    run(scene)
