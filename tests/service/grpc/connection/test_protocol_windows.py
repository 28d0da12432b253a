"""Flow control: every byte of a request is credited once, and answers stay within the client's windows."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.echo_calls import LARGE, LATE, STREAM, UNARY, WAIT, EchoServer, run
from tests.support.h2_client import (
    DATA,
    INITIAL_WINDOW_SIZE,
    WINDOW_UPDATE,
    data,
    message,
    reset,
)

STREAM_WINDOW, CONNECTION_WINDOW = 1 << 18, 1 << 20


@pytest.mark.parametrize(("padding", "frame_bytes"), [(None, 16_384), (0, 16_384), (255, 1024)])
def test_a_message_larger_than_the_windows(padding: int | None, frame_bytes: int) -> None:
    """The padding is credited too. Few frames are sent for it."""
    body = random.Random(1).randbytes(2 * CONNECTION_WINDOW)

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        connection.send(connection.client.allow(0, 1 << 30), connection.client.head(1, UNARY))
        await connection.upload(1, message(body), padding=padding, frame_bytes=frame_bytes)
        assert (await connection.wait_for(1)).messages == [body]
        updates = [stream for kind, stream in connection.client.frames if kind == WINDOW_UPDATE]
        assert updates.count(1) <= 2 * len(body) // STREAM_WINDOW + 2
        connection.check_windows()

    run(scene)


def test_windows_hold_for_any_calls() -> None:
    """Calls that are answered, refused, cancelled, answered early, and that have padding, in random order."""

    async def scene(server: EchoServer) -> None:
        draw = random.Random(3)
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        client = connection.client
        connection.send(client.allow(0, 1 << 30))
        server.app.release.set()
        for number in range(300):
            stream_id = 2 * number + 1
            path = draw.choice((UNARY, STREAM, LATE, "/test.Echo/Fail", WAIT))
            connection.send(client.head(stream_id, path))
            body = b"".join(
                message(bytes(draw.choice((0, 1, 100, 20_000, 50_000)))) for _ in range(draw.randrange(4))
            )
            frames = [body[start : start + 16_000] for start in range(0, len(body), 16_000)] or [b""]
            is_over = False
            for place, part in enumerate(frames):
                while client.room(stream_id) <= 16_384:
                    await connection.turns(1)
                padding = draw.choice((None, None, 0, 200))
                is_over = place == len(frames) - 1 and draw.random() < 0.8
                connection.send(client.data(stream_id, part, end=is_over, padding=padding))
                if draw.random() < 0.1:
                    connection.send(reset(stream_id))
                    is_over = True
                    break
                if draw.random() < 0.5:
                    await connection.turns(draw.randrange(3))
            if draw.random() < 0.1 and not is_over:
                # it is no message, or comes after the answer
                connection.send(client.data(stream_id, b"more"))
            if number % 20 == 19:
                for opened in range(1, stream_id + 1, 2):
                    if not client.answers[opened].done:
                        connection.send(reset(opened))
                await connection.turns(20)
                connection.check_windows()
        assert not client.goaways

    run(scene)


def test_bytes_of_a_cancelled_call_are_credited_once() -> None:
    """Also if the call goes on to read them, as it was about to when it was cancelled."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, LATE), client.data(1, message(bytes(1000))))
        await connection.turns()
        server.app.release.set()
        connection.send(reset(1))
        await connection.turns()
        assert server.app.counters.in_flight == 0
        connection.check_windows()

    run(scene)


def test_empty_messages_need_no_window() -> None:
    """A WINDOW_UPDATE of 0 would be an error."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, STREAM))
        for _ in range(3):
            connection.send(connection.client.data(1, message(b"")))
            await connection.turns()
        connection.send(connection.client.data(1, end=True))
        assert (await connection.wait_for(1)).messages == [b"", b"", b""]
        connection.check_windows()

    run(scene)


def test_data_beyond_the_window_of_its_stream_ends_it() -> None:
    """The others go on."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, LATE))
        for _ in range(STREAM_WINDOW // 16_384):
            connection.send(client.data(1, bytes(16_384)))
        assert client.answers[1].reset is None
        connection.send(client.data(1, b"x"))
        assert client.answers[1].reset == "FLOW_CONTROL_ERROR"
        connection.send(client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]
        connection.check_windows()

    run(scene)


def test_data_beyond_the_window_of_the_connection_ends_it() -> None:
    """This bounds what one client can make us hold."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        for stream_id in (1, 3, 5, 7):
            connection.send(connection.client.head(stream_id, LATE))
            for _ in range(STREAM_WINDOW // 16_384):
                connection.send(data(stream_id, bytes(16_384)))
        assert connection.client.goaways == []
        connection.send(connection.client.head(9, LATE) + data(9, b"x"))
        ((_, error, _),) = connection.client.goaways
        assert error == "FLOW_CONTROL_ERROR"

    run(scene)


def test_an_answer_waits_for_the_windows() -> None:
    """Each update is used up, and not exceeded."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 0))
        client = connection.client
        connection.send(client.call(1, LARGE, b"1000"))
        await connection.turns()
        assert (client.answers[1].headers[":status"], client.answers[1].body) == ("200", b"")
        connection.send(client.allow(1, 10))
        assert len(client.answers[1].body) == 10
        connection.send(client.allow(1, 1), client.allow(1, 4))
        assert len(client.answers[1].body) == 15
        connection.send(client.allow(1, 10_000))
        assert (await connection.wait_for(1)).messages == [bytes(1000)]
        connection.check_windows()

    run(scene)


def test_settings_may_make_a_window_negative() -> None:
    """The answer goes on when it is positive again."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 100))
        client = connection.client
        connection.send(client.call(1, LARGE, b"300"))
        await connection.turns()
        assert len(client.answers[1].body) == 100
        connection.send(client.set((INITIAL_WINDOW_SIZE, 10)))
        assert connection.protocol._calls[1].send_window == -90
        connection.send(client.allow(1, 90))
        assert len(client.answers[1].body) == 100
        connection.send(client.allow(1, 1))
        assert len(client.answers[1].body) == 101
        # a small answer must not overtake its window either
        connection.send(client.set((INITIAL_WINDOW_SIZE, 0)), client.call(3, UNARY, b"x"))
        await connection.turns()
        assert client.answers[3].body == b""
        connection.send(client.set((INITIAL_WINDOW_SIZE, 1000)))
        assert (await connection.wait_for(1)).messages == [bytes(300)]
        assert (await connection.wait_for(3)).messages == [b"x"]
        connection.check_windows()

    run(scene)


def test_settings_are_acknowledged_before_a_larger_window_is_used() -> None:
    """Until then, a client counts by the old one, and takes more for an error."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 0))
        client = connection.client
        connection.send(client.call(1, LARGE, b"1000"))
        await connection.turns()
        connection.send(client.set((INITIAL_WINDOW_SIZE, 100)) + client.call(3, UNARY, b"small"))
        assert len(client.answers[1].body) == 100
        assert client.answers[3].messages == [b"small"]
        connection.send(client.set((INITIAL_WINDOW_SIZE, 200)) + client.allow(1, 10))
        assert len(client.answers[1].body) == 210
        connection.send(client.set((INITIAL_WINDOW_SIZE, 2000)))
        assert (await connection.wait_for(1)).messages == [bytes(1000)]

    run(scene)


def test_settings_that_make_a_window_too_large_end_the_connection() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 10))
        connection.send(connection.client.call(1, LARGE, b"1000"))
        connection.send(
            connection.client.allow(1, 2**31 - 11 - 10),
            connection.client.set((INITIAL_WINDOW_SIZE, 2**31 - 1)),
        )
        ((_, error, _),) = connection.client.goaways
        assert error == "FLOW_CONTROL_ERROR"

    run(scene)


def test_windows_may_be_as_large_as_http2_allows() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 0))
        client = connection.client
        connection.send(client.call(1, LARGE, b"1000"), client.call(3, LARGE, b"1000"))
        connection.send(client.allow(0, 2**31 - 1 - 65_535), client.allow(1, 2**31 - 1))
        assert (await connection.wait_for(1)).messages == [bytes(1000)]
        connection.send(client.set((INITIAL_WINDOW_SIZE, 2**31 - 1)))
        assert (await connection.wait_for(3)).messages == [bytes(1000)]
        connection.check_windows()

    run(scene)


def test_blocked_answers_take_turns() -> None:
    """With little room for all of them, none waits for the end of another."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        client = connection.client
        streams = range(1, 9, 2)
        connection.send(*(client.call(stream_id, LARGE, b"400000") for stream_id in streams))
        await connection.turns()
        for _ in range(len(streams)):
            connection.send(client.allow(0, 16_384))
        # the first one has also used up the first window of the connection
        assert [len(client.answers[stream_id].body) for stream_id in streams[1:]] == [16_384] * 3
        connection.send(client.allow(0, 1 << 30))
        for stream_id in streams:
            assert (await connection.wait_for(stream_id)).messages == [bytes(400_000)]
        connection.check_windows()

    run(scene)


def test_a_cancelled_answer_takes_no_room() -> None:
    """Whether it is cancelled while it waits, or together with an update of the window."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        client = connection.client
        connection.send(*(client.call(stream_id, LARGE, b"100000") for stream_id in (1, 3, 5)))
        await connection.turns()
        connection.send(reset(1), client.allow(0, 10))
        connection.send(reset(3) + client.allow(0, 10))
        await connection.turns()
        assert [len(client.answers[stream_id].body) for stream_id in (3, 5)] == [10, 10]
        connection.send(client.allow(0, 100_000))
        assert (await connection.wait_for(5)).messages == [bytes(100_000)]
        connection.check_windows()

    run(scene)


def test_an_answer_that_is_ready_when_it_is_cancelled_takes_no_room() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, WAIT, b"x"))
        await connection.turns()
        server.app.release.set()
        connection.send(reset(1))
        await connection.turns()
        assert (DATA, 1) not in connection.client.frames
        connection.check_windows()

    run(scene)


def test_small_updates_resume_one_answer_each() -> None:
    """A client that opens its window by single bytes must not make us resume a thousand answers for each."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        client = connection.client
        for stream_id in range(1, 401, 2):
            connection.send(client.call(stream_id, LARGE, b"100000"))
        await connection.turns(20)
        steps = 0
        for call in connection.protocol._calls.values():
            send_more = call.send_more

            def count(send_more: object = send_more) -> bool:
                nonlocal steps
                steps += 1
                return send_more()  # type: ignore[operator, no-any-return]

            call.send_more = count  # type: ignore[method-assign]
        for _ in range(100):
            connection.send(client.allow(0, 1))
            await asyncio.sleep(0)
        assert steps == 100
        connection.send(*(reset(stream_id) for stream_id in range(1, 401, 2)))

    run(scene)
