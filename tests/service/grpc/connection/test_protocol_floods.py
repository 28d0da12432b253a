"""Floods of frames that carry no request, and headers that take more than they seem to."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.echo_calls import FAIL, LARGE, LATE, STREAM, UNARY, WAIT, Connection, EchoServer, run
from tests.support.h2_client import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    data,
    frame,
    message,
    reset,
    settings,
    window_update,
)
from tests.support.in_process_worker import until
from turnpike.service.grpc.connection.frame_counts import MAX_CONTROL_FRAMES

MAX_HEADER = 4096
HEADER_LIMIT = f"headers: expected at most {MAX_HEADER} bytes (--max-header), got more"


def flood(connection: Connection, kind: str) -> bytes:
    """A frame of a flood, or several that belong together, for a connection with an open call on stream 1."""
    client = connection.client
    stream_id = connection.protocol._last_stream_id + 2
    return {
        "PING": lambda: frame(PING, 0, 0, bytes(8)),
        "ACK of PING": lambda: frame(PING, ACK, 0, bytes(8)),
        "SETTINGS": lambda: settings((INITIAL_WINDOW_SIZE, 1000)),
        "ACK of SETTINGS": lambda: frame(SETTINGS, ACK),
        "RST_STREAM": lambda: frame(RST_STREAM, 0, 1, bytes(4)),
        "rapid reset": lambda: client.call(stream_id, WAIT, b"x") + reset(stream_id),
        "resets by the server": lambda: client.call(stream_id, WAIT, b"x") + window_update(stream_id, 0),
        "PRIORITY": lambda: frame(PRIORITY, 0, 1, bytes(5)),
        "unknown frames": lambda: frame(99, 0, 1),
        "empty DATA": lambda: data(1),
        "DATA that is all padding": lambda: client.data(1, padding=0),
        "empty DATA on a stream that has ended": lambda: frame(0, 0, 3),
        "WINDOW_UPDATE of the connection": lambda: window_update(0, 1),
        "WINDOW_UPDATE of a stream": lambda: window_update(1, 1),
        "trailers": lambda: frame(HEADERS, END_HEADERS, 3, b"\x00\x01a\x01b"),
        "refused streams": lambda: client.call(stream_id, WAIT),
    }[kind]()


def check_flood(kind: str) -> None:
    """The connection ends after a thousand of these frames in a second, and not before."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        # the service ends stream 3, and the client does not
        connection.send(client.head(1, STREAM), client.head(3, FAIL))
        await connection.wait_for(3)
        if kind == "refused streams":
            connection.send(*(client.head(2 * number + 5, WAIT) for number in range(1023)))
        # forget these calls
        connection.protocol.frame_counts.reset()
        connection.protocol.frame_counts.reset()
        for _ in range(MAX_CONTROL_FRAMES - 10):
            connection.send(flood(connection, kind))
            while not connection.wire.reading:
                # many headers are decoded in several turns
                await connection.turns(1)
        assert client.goaways == []
        # a flood with requests may have more frames of some kinds
        for _ in range(8 * MAX_CONTROL_FRAMES):
            connection.send(flood(connection, kind))
            while not connection.wire.reading:
                await connection.turns(1)
            if client.goaways:
                break
        ((_, error, text),) = client.goaways
        assert error == "ENHANCE_YOUR_CALM"
        assert "in a second" in text
        await until(lambda: server.app.counters.in_flight == 0)

    run(scene)


@pytest.mark.parametrize(
    "kind", ["PING", "ACK of PING", "SETTINGS", "ACK of SETTINGS", "RST_STREAM", "PRIORITY", "unknown frames"]
)
def test_a_flood_of_control_frames_ends_the_connection(kind: str) -> None:
    check_flood(kind)


def test_rapid_resets_end_the_connection() -> None:
    """CVE-2023-44487: calls that are reset at once take time, and do not count as open."""
    check_flood("rapid reset")


def test_resets_that_we_send_count_too() -> None:
    """CVE-2025-8671: a client can make us reset its calls by small errors."""
    check_flood("resets by the server")


def test_streams_that_are_refused_count_too() -> None:
    check_flood("refused streams")


@pytest.mark.parametrize("kind", ["empty DATA", "DATA that is all padding"])
def test_a_flood_of_empty_data_ends_the_connection(kind: str) -> None:
    check_flood(kind)


def test_a_flood_of_trailers_ends_the_connection() -> None:
    """Each is decoded, although its stream has ended."""
    check_flood("trailers")


@pytest.mark.parametrize(
    "kind",
    ["WINDOW_UPDATE of the connection", "WINDOW_UPDATE of a stream", "empty DATA on a stream that has ended"],
)
def test_a_flood_about_streams_ends_the_connection(kind: str) -> None:
    check_flood(kind)


@pytest.mark.parametrize("kind", ["PING", "WINDOW_UPDATE of the connection"])
def test_many_frames_in_more_than_a_second_are_no_flood(kind: str) -> None:
    """The count begins again once a second."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, STREAM))
        for _ in range(3):
            for _ in range(MAX_CONTROL_FRAMES - 1):
                connection.send(flood(connection, kind))
            connection.pass_time(0)
        assert connection.client.goaways == []

    run(scene)


def test_updates_for_what_was_sent_are_no_flood() -> None:
    """A client may update both windows after every frame of ours, also some time after it was sent."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        client = connection.client
        connection.send(client.allow(0, 1 << 30), client.call(1, LARGE, b"20000000"), client.head(3, STREAM))
        await connection.wait_for(1)
        frames = len(client.frames)
        assert frames > 1.2 * MAX_CONTROL_FRAMES
        connection.pass_time(0)
        connection.send(*(client.allow(0, 1) + client.allow(3, 1) for _ in range(frames)))
        # the same for small answers
        connection.pass_time(0)
        connection.pass_time(0)
        for number in range(1000):
            stream_id = 2 * number + 5
            connection.send(client.call(stream_id, UNARY, b"x"))
            connection.send(client.allow(0, 1), client.allow(stream_id, 1))
        assert client.goaways == []
        connection.send(reset(3))

    run(scene)


def test_settings_with_many_values_take_little_time() -> None:
    """Each value would change the windows of all streams."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(*(client.head(2 * number + 1, WAIT) for number in range(1000)))
        changes = 0

        class CountedCalls(dict[int, object]):
            def values(self) -> object:  # type: ignore[override]
                nonlocal changes
                changes += 1
                return super().values()

        connection.protocol._calls = CountedCalls(connection.protocol._calls)  # type: ignore[assignment]
        connection.send(settings(*((INITIAL_WINDOW_SIZE, value) for value in range(2700))))
        assert connection.protocol.initial_send_window == 2699
        assert changes == 1

    run(scene)


def test_headers_over_the_limit_end_the_connection() -> None:
    """Those within the limit do not."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, UNARY, b"x", headers=(("x", "y" * (MAX_HEADER - 500)),)))
        assert (await connection.wait_for(1)).messages == [b"x"]
        connection.send(connection.client.head(3, UNARY, ("x", "y" * MAX_HEADER)))
        assert connection.client.goaways == [(1, "ENHANCE_YOUR_CALM", HEADER_LIMIT)]

    run(scene, max_header=MAX_HEADER)


def test_headers_without_an_end_end_the_connection() -> None:
    """CVE-2024-27316: they would fill the memory before they are decoded."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(frame(HEADERS, 0, 1, bytes(1000)))
        for _ in range(3):
            connection.send(frame(CONTINUATION, 0, 1, bytes(1000)))
        assert connection.client.goaways == []
        connection.send(frame(CONTINUATION, 0, 1, bytes(1000)))
        assert connection.client.goaways == [(0, "ENHANCE_YOUR_CALM", HEADER_LIMIT)]

    run(scene, max_header=MAX_HEADER)


def test_empty_continuations_end_the_connection() -> None:
    """They never reach the limit on bytes."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(frame(HEADERS, 0, 1, b"\x82"))
        connection.send(frame(CONTINUATION, 0, 1) * (MAX_CONTROL_FRAMES + 1))
        ((_, error, _),) = connection.client.goaways
        assert error == "ENHANCE_YOUR_CALM"

    run(scene)


def test_an_hpack_bomb_ends_the_connection() -> None:
    """A block of a thousand bytes that refer to a long header which an earlier one has put into the table."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, UNARY, ("x", "y" * 3000), end=True))
        assert client.goaways == []
        # entry 62 is the first of the table
        connection.send(frame(HEADERS, END_HEADERS, 3, b"\xbe" * 1000))
        ((_, error, _),) = client.goaways
        assert error == "ENHANCE_YOUR_CALM"

    run(scene, max_header=MAX_HEADER)


def test_many_sizes_of_the_table_of_headers_end_the_connection() -> None:
    """HPACK allows them at the start of a block, where they count as no headers."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        # to 0, and to 4096
        block = b"\x20\x3f\xe1\x1f"
        connection.send(frame(HEADERS, END_HEADERS, 1, block + connection.client.block(UNARY)))
        assert connection.client.goaways == []
        connection.send(frame(HEADERS, END_HEADERS, 3, block + b"\x20"))
        ((_, error, _),) = connection.client.goaways
        assert error == "COMPRESSION_ERROR"

    run(scene)


def test_the_texts_of_errors_are_short() -> None:
    """A library's error has all of the block in it."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(frame(HEADERS, END_HEADERS, 1, b"\x00\x7f" + b"\xff" * 16_000))
        ((_, error, text),) = connection.client.goaways
        assert error == "COMPRESSION_ERROR"
        assert text == "headers: expected a valid block of HPACK"

    run(scene)


def test_a_client_that_does_not_read_is_not_read() -> None:
    """Answers to its pings must not fill the memory."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.protocol.pause_writing()
        assert not connection.wire.reading
        connection.send(frame(PING, 0, 0, b"12345678"))
        assert connection.client.pings == []
        connection.protocol.resume_writing()
        await connection.turns()
        assert connection.client.pings == [(ACK, b"12345678")]

    run(scene)


def test_an_answer_waits_while_the_client_does_not_read() -> None:
    """A small one as well as the rest of a large one."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect((INITIAL_WINDOW_SIZE, 2**31 - 1))
        client = connection.client
        connection.send(client.allow(0, 1 << 30))
        connection.send(client.call(1, LATE, b"small"), client.call(3, LATE, bytes(100_000)))
        await connection.turns()
        connection.protocol.pause_writing()
        server.app.release.set()
        await connection.turns()
        assert client.answers[1].body + client.answers[3].body == b""
        connection.protocol.resume_writing()
        assert (await connection.wait_for(1)).messages == [b"small"]
        assert (await connection.wait_for(3)).messages == [bytes(100_000)]
        connection.check_windows()

    run(scene)


def test_a_stream_of_small_messages_is_no_flood() -> None:
    """They carry requests."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM))
        for _ in range(2 * MAX_CONTROL_FRAMES):
            connection.send(client.data(1, message(b"")))
            await asyncio.sleep(0)
        connection.send(client.data(1, end=True))
        await connection.until(lambda client: client.answers[1].done)
        assert client.answers[1].messages == [b""] * 2 * MAX_CONTROL_FRAMES
        connection.check_windows()

    run(scene)
