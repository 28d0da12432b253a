"""Streams of a connection: when calls start and end, how many there may be, and what is left of them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from tests.support.echo_calls import FAIL, LARGE, LATE, STREAM, UNARY, WAIT, EchoServer, run
from tests.support.h2_client import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    data,
    frame,
    message,
    reset,
)
from tests.support.in_process_worker import until

MAX_STREAMS = 1024


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytes", "whole"])
@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_trailers_end_a_request(path: str, step: int) -> None:
    """Also if they are in one segment with the headers."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        sent = client.head(1, path) + client.data(1, message(b"x"))
        trailers = client.encoder.encode([("a", "b")])
        sent += frame(HEADERS, END_STREAM, 1, trailers[:1])
        sent += frame(CONTINUATION, END_HEADERS, 1, trailers[1:])
        for start in range(0, len(sent), step):
            connection.send(sent[start : start + step])
        assert (await connection.wait_for(1)).messages == [b"x"]
        connection.check_windows()

    run(scene)


def test_a_call_whose_body_arrives_before_its_turn_is_run_once() -> None:
    """More calls are started than in one turn, and the bodies of the last ones come in the meantime."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        streams = range(1, 401, 2)
        connection.send(b"".join(client.head(stream_id, UNARY) for stream_id in streams))
        connection.send(b"".join(client.data(stream_id, message(b"x"), end=True) for stream_id in streams))
        for stream_id in streams:
            assert (await connection.wait_for(stream_id)).messages == [b"x"]
        await connection.turns()
        assert server.app.started == len(streams)
        connection.check_windows()

    run(scene)


def test_many_calls_do_not_delay_other_connections() -> None:
    """Some are started in each turn of the event loop."""

    async def scene(server: EchoServer) -> None:
        busy, other = server.connect(), server.connect()
        streams = range(1, 1001, 2)
        busy.send(b"".join(busy.client.call(stream_id, UNARY, b"x") for stream_id in streams))
        first = server.app.started
        busy.send(b"".join(busy.client.call(stream_id, UNARY, b"x") for stream_id in range(1001, 2001, 2)))
        assert server.app.started == first == 64
        other.send(other.client.call(1, UNARY, b"mine"))
        assert other.client.answers[1].messages == [b"mine"]
        await busy.wait_for(1999)
        assert server.app.started == 1001

    run(scene)


def test_a_call_over_the_limit_is_refused() -> None:
    """It can be tried again: no part of it was handled."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        for number in range(MAX_STREAMS):
            connection.send(client.call(2 * number + 1, WAIT, b"x"))
        await until(lambda: server.app.started == MAX_STREAMS)
        connection.send(client.call(2 * MAX_STREAMS + 1, UNARY, b"one more"))
        assert client.answers[2 * MAX_STREAMS + 1].reset == "REFUSED_STREAM"
        assert server.app.read == []
        connection.send(reset(1), client.call(2 * MAX_STREAMS + 3, UNARY, b"next"))
        assert (await connection.wait_for(2 * MAX_STREAMS + 3)).messages == [b"next"]
        server.app.release.set()
        for number in range(1, MAX_STREAMS):
            assert (await connection.wait_for(2 * number + 1)).messages == [b"released"]
        connection.check_windows()

    run(scene)


def test_a_call_that_is_reset_before_it_starts_never_does() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(
            connection.client.call(1, UNARY, b"x") + reset(1) + connection.client.call(3, UNARY, b"y")
        )
        await connection.wait_for(3)
        assert server.app.read == [b"y"]
        connection.check_windows()

    run(scene)


@pytest.mark.parametrize("path", [WAIT, STREAM, UNARY, LARGE])
def test_a_call_that_is_reset_ends(path: str) -> None:
    """Whatever it waits for: a run, the rest of its request, or room for its answer."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, LARGE, b"1000000") if path == LARGE else client.head(1, path))
        await connection.turns()
        assert server.app.counters.in_flight == 1
        connection.send(reset(1))
        await until(lambda: server.app.counters.in_flight == 0)
        assert server.app.cancelled == (path == WAIT)
        assert client.answers[1].status is None
        connection.check_windows()

    run(scene)


def test_a_call_may_be_reset_after_its_answer() -> None:
    """The answer and RST_STREAM cross."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, UNARY, b"x"), reset(1), client.call(3, UNARY, b"y"))
        assert (await connection.wait_for(3)).messages == [b"y"]
        assert client.goaways == []

    run(scene)


def test_an_answer_before_the_end_of_the_request_stops_the_client() -> None:
    """What the client had sent in the meantime is credited."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, FAIL), client.data(1, bytes(100)))
        answer = await connection.wait_for(1)
        assert (answer.status, answer.ended, answer.reset) == (13, True, "NO_ERROR")
        connection.send(client.data(1, bytes(16_384)), client.data(1, bytes(16_384), end=True))
        connection.send(client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]
        connection.check_windows()

    run(scene)


def test_an_error_hides_its_text() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, FAIL, b"x"))
        answer = await connection.wait_for(1)
        assert answer.status == 13
        assert answer.text.startswith("internal error, request id ")
        assert answer.reset is None

    run(scene)


def test_numbers_of_streams_may_be_left_out() -> None:
    """The next one must be larger: a smaller one ends the connection."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(2**31 - 3, UNARY, b"x"))
        assert (await connection.wait_for(2**31 - 3)).messages == [b"x"]
        connection.send(client.call(2**31 - 1, UNARY, b"z"))
        assert (await connection.wait_for(2**31 - 1)).messages == [b"z"]
        connection.send(client.call(7, UNARY, b"y"))
        assert [code for _, code, _ in client.goaways] == ["PROTOCOL_ERROR"]
        assert server.app.read == [b"x", b"z"]

    run(scene)


def test_nothing_is_left_of_a_finished_call() -> None:
    """A connection that is kept holds no bytes of earlier calls."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, LATE), client.call(3, LATE, bytes(20_000)), client.head(5, LATE))
        connection.send(client.data(5, message(bytes(1000)))[:500])
        calls = [weakref.ref(call) for call in connection.protocol._calls.values()]
        await connection.turns()
        server.app.release.set()
        connection.send(client.data(5, message(bytes(1000)))[500:])
        connection.send(client.data(1, message(b"x"), end=True), reset(5))
        await connection.wait_for(1)
        await connection.wait_for(3)
        server.app.read.clear()
        await until(lambda: server.app.counters.in_flight == 0)
        await connection.turns()
        assert [call() for call in calls] == [None] * 3

    gc.collect()
    gc.disable()
    try:
        run(scene)
    finally:
        gc.enable()


@pytest.mark.parametrize("path", [WAIT, STREAM, UNARY, LARGE])
def test_a_closed_channel_leaves_nothing_behind(path: str) -> None:
    """Its calls end, and it is freed without a garbage collection."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, LARGE, b"1000000") if path == LARGE else client.head(1, path))
        connection.send(client.head(3, UNARY)[:-3])
        await connection.turns()
        protocol = weakref.ref(connection.protocol)
        connection.wire.close()
        await until(lambda: server.app.counters.in_flight == 0)
        assert not server.shared.connections
        assert not server.shared.running
        del connection.protocol, connection.wire.protocol, connection.wire, connection, client
        await asyncio.sleep(0.01)
        assert protocol() is None

    gc.collect()
    gc.disable()
    try:
        run(scene)
    finally:
        gc.enable()


def test_a_call_that_waits_for_its_turn_ends_with_its_connection() -> None:
    """It never runs."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(b"".join(client.call(2 * number + 1, UNARY, b"x") for number in range(200)))
        connection.wire.close()
        await connection.turns()
        # one more turn was on its way
        assert server.app.started == 128

    run(scene)


def test_a_segment_with_an_error_answers_the_calls_before_it_or_says_that_they_can_be_retried() -> None:
    """GOAWAY has the number of the last stream that was started."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, WAIT, b"x"))
        connection.send(client.call(3, UNARY, b"x") + client.call(5, UNARY, b"y") + data(99, b"an error"))
        ((last, error, _),) = client.goaways
        assert (last, error) == (1, "PROTOCOL_ERROR")
        await connection.turns()
        assert server.app.read == []

    run(scene)
