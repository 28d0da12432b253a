"""Frames that break the protocol: some end the connection, some only their stream, and others are ignored."""

from __future__ import annotations

import json

import pytest

from tests.support.echo_calls import FAIL, LATE, UNARY, EchoServer, run
from tests.support.h2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    H2Client,
    data,
    frame,
    message,
    reset,
    settings,
    window_update,
)
from turnpike.service.grpc.connection.http2_connection import MAX_REMEMBERED

# what follows the preface and the headers of an open call on stream 1, and the error of the connection
CONNECTION_ERRORS = {
    "a long frame": (frame(DATA, 0, 1, bytes(16_385)), "FRAME_SIZE_ERROR"),
    "a very long frame": (b"\xff\xff\xff" + frame(DATA, 0, 1)[3:], "FRAME_SIZE_ERROR"),
    "DATA without a stream": (data(0, b"x"), "PROTOCOL_ERROR"),
    "DATA on an idle stream": (data(3, b"x"), "PROTOCOL_ERROR"),
    "HEADERS without a stream": (frame(HEADERS, END_HEADERS, 0, b"\x82"), "PROTOCOL_ERROR"),
    "HEADERS on a stream of the server": (frame(HEADERS, END_HEADERS, 2, b"\x82"), "PROTOCOL_ERROR"),
    "padding of DATA beyond the frame": (frame(DATA, PADDED, 1, b"\x03ab"), "PROTOCOL_ERROR"),
    "padding of DATA without its length": (frame(DATA, PADDED, 1), "FRAME_SIZE_ERROR"),
    "padding of HEADERS beyond the frame": (
        frame(HEADERS, PADDED | END_HEADERS, 3, b"\x02\x82"),
        "PROTOCOL_ERROR",
    ),
    "HEADERS without its priority": (
        frame(HEADERS, HAS_PRIORITY | END_HEADERS, 3, b"\0\0\0\0"),
        "PROTOCOL_ERROR",
    ),
    "RST_STREAM without a stream": (reset(0), "PROTOCOL_ERROR"),
    "RST_STREAM on an idle stream": (reset(3), "PROTOCOL_ERROR"),
    "a short RST_STREAM": (frame(RST_STREAM, 0, 1, b"\0"), "FRAME_SIZE_ERROR"),
    "WINDOW_UPDATE on an idle stream": (window_update(3, 1), "PROTOCOL_ERROR"),
    "WINDOW_UPDATE of 0": (window_update(0, 0), "PROTOCOL_ERROR"),
    "a long WINDOW_UPDATE": (frame(WINDOW_UPDATE, 0, 0, bytes(5)), "FRAME_SIZE_ERROR"),
    "a window beyond 2^31-1": (window_update(0, 2**31 - 1), "FLOW_CONTROL_ERROR"),
    "SETTINGS on a stream": (frame(SETTINGS, 0, 1), "PROTOCOL_ERROR"),
    "SETTINGS with a part of a setting": (frame(SETTINGS, 0, 0, bytes(5)), "FRAME_SIZE_ERROR"),
    "SETTINGS with ACK and values": (frame(SETTINGS, ACK, 0, bytes(6)), "FRAME_SIZE_ERROR"),
    "a window in SETTINGS beyond 2^31-1": (settings((4, 2**31)), "FLOW_CONTROL_ERROR"),
    "a short frame size in SETTINGS": (settings((5, 16_383)), "PROTOCOL_ERROR"),
    "a long frame size in SETTINGS": (settings((5, 2**24)), "PROTOCOL_ERROR"),
    "push of 2 in SETTINGS": (settings((2, 2)), "PROTOCOL_ERROR"),
    "PING on a stream": (frame(PING, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    "a short PING": (frame(PING, 0, 0, bytes(7)), "FRAME_SIZE_ERROR"),
    "GOAWAY on a stream": (frame(GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    "a short GOAWAY": (frame(GOAWAY, 0, 0, bytes(7)), "FRAME_SIZE_ERROR"),
    "PRIORITY without a stream": (frame(PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR"),
    "a short PRIORITY": (frame(PRIORITY, 0, 1, bytes(4)), "FRAME_SIZE_ERROR"),
    "PUSH_PROMISE": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), "PROTOCOL_ERROR"),
    "CONTINUATION without HEADERS": (frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"),
    "CONTINUATION on another stream": (
        frame(HEADERS, 0, 3, b"\x82") + frame(CONTINUATION, END_HEADERS, 5, b"\x82"),
        "PROTOCOL_ERROR",
    ),
    "a frame within a header block": (
        frame(HEADERS, 0, 3, b"\x82") + frame(PING, 0, 0, bytes(8)),
        "PROTOCOL_ERROR",
    ),
    "a header block that is not HPACK": (frame(HEADERS, END_HEADERS, 3, b"\xff"), "COMPRESSION_ERROR"),
}


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytes", "whole"])
@pytest.mark.parametrize("case", CONNECTION_ERRORS)
def test_errors_that_end_the_connection(case: str, step: int) -> None:
    """GOAWAY says why. The calls of the connection are dropped, and what follows is ignored."""
    sent, error = CONNECTION_ERRORS[case]
    sent += frame(PING, 0, 0, b"ignored!")

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, LATE))
        for start in range(0, len(sent), step):
            connection.send(sent[start : start + step])
        ((last, code, text),) = connection.client.goaways
        assert (last, code) == (1, error)
        assert text
        assert connection.wire.eof_written
        assert connection.client.pings == []
        await connection.turns()
        assert server.app.counters.in_flight == 0

    run(scene)


# what follows the preface and a call on stream 1 that is open or that the client has ended, and the error
STREAM_ERRORS = {
    "WINDOW_UPDATE of 0": (False, window_update(1, 0), "PROTOCOL_ERROR"),
    "a window beyond 2^31-1": (False, window_update(1, 2**31 - 1), "FLOW_CONTROL_ERROR"),
    "trailers that do not end the stream": (
        False,
        frame(HEADERS, END_HEADERS, 1, b"\x00\x01a\x01b"),
        "PROTOCOL_ERROR",
    ),
    "DATA after its end": (True, data(1, b"x"), "STREAM_CLOSED"),
    "HEADERS after its end": (
        True,
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x01a\x01b"),
        "STREAM_CLOSED",
    ),
}


@pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytes", "whole"])
@pytest.mark.parametrize("case", STREAM_ERRORS)
def test_errors_that_end_the_stream(case: str, step: int) -> None:
    """Other calls of the connection are answered."""
    is_ended, sent, error = STREAM_ERRORS[case]

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(
            connection.client.call(1, LATE, b"x") if is_ended else connection.client.head(1, LATE)
        )
        for start in range(0, len(sent), step):
            connection.send(sent[start : start + step])
        assert connection.client.answers[1].reset == error
        connection.send(connection.client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]
        assert connection.client.goaways == []

    run(scene)


IGNORED = {
    "PRIORITY on an idle stream": frame(PRIORITY, 0, 9, bytes(5)),
    "an unknown type of frame": frame(0xBB, 0xFF, 7, b"anything"),
    "an unknown setting": settings((99, 7)),
    "settings with their largest values": settings((2, 1), (5, 2**24 - 1)),
    "settings with their smallest values": settings((1, 0), (2, 0), (3, 0), (5, 16_384), (6, 0)),
    "a window in SETTINGS that is valid": settings((4, 2**31 - 1)),
    "an ACK of SETTINGS": frame(SETTINGS, ACK),
    "an ACK of PING": frame(PING, ACK, 0, bytes(8)),
    "GOAWAY": frame(GOAWAY, 0, 0, bytes(8) + b"bye"),
    "RST_STREAM on a stream that has ended": reset(1),
    "WINDOW_UPDATE on a stream that has ended": window_update(1, 1),
    "a reserved bit": window_update(0, 1 | 1 << 31),
}


@pytest.mark.parametrize("case", IGNORED)
def test_frames_that_change_nothing(case: str) -> None:
    """They come after the answer to a call, and the next call is answered."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, UNARY, b"first"))
        await connection.wait_for(1)
        connection.send(IGNORED[case] + connection.client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]
        assert connection.client.goaways == []

    run(scene)


# on a stream that the service has ended with RST_STREAM, which the client has not read yet
LATE_FRAMES = {
    "DATA": data(1, b"x" * 1000),
    "DATA twice": data(1, b"x" * 1000) * 2,
    "DATA that ends it": data(1, b"x" * 1000, end=True),
    "trailers": frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x01a\x01b"),
    "RST_STREAM": reset(1),
    "WINDOW_UPDATE": window_update(1, 1),
}


@pytest.mark.parametrize("case", LATE_FRAMES)
def test_frames_that_come_too_late_change_nothing(case: str) -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, FAIL))
        assert (await connection.wait_for(1)).reset is not None
        connection.send(LATE_FRAMES[case] + connection.client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]
        assert connection.client.goaways == []

    run(scene)


# on stream 1, which the client has ended, or ended with RST_STREAM; and on streams that it has passed over
CLOSED_STREAM_ERRORS = {
    "DATA": (data(1, b"x"), "STREAM_CLOSED"),
    "the end again": (data(1, end=True), "STREAM_CLOSED"),
    "HEADERS": (frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82"), "STREAM_CLOSED"),
    "CONTINUATION": (frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"),
    "HEADERS of a lower stream": (frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x82"), "PROTOCOL_ERROR"),
    "DATA of a lower stream": (data(5, b"x"), "PROTOCOL_ERROR"),
    "HEADERS of an even stream": (frame(HEADERS, END_HEADERS | END_STREAM, 2, b"\x82"), "PROTOCOL_ERROR"),
    "DATA of an even stream": (data(2, b"x"), "PROTOCOL_ERROR"),
    "RST_STREAM of an even stream": (reset(4), "PROTOCOL_ERROR"),
    "WINDOW_UPDATE of an even stream": (window_update(4, 1), "PROTOCOL_ERROR"),
}


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("case", CLOSED_STREAM_ERRORS)
def test_frames_of_closed_streams_end_the_connection(case: str, is_reset: bool) -> None:
    sent, error = CLOSED_STREAM_ERRORS[case]

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        if is_reset:
            connection.send(client.head(1, LATE), reset(1))
        else:
            connection.send(client.call(1, UNARY, b"x"))
            await connection.wait_for(1)
        connection.send(client.call(7, UNARY, b"y"))
        await connection.wait_for(7)
        assert client.goaways == []
        connection.send(sent)
        assert [code for _, code, _ in client.goaways] == [error]

    run(scene)


def test_late_frames_of_forgotten_streams_are_ignored() -> None:
    """A connection remembers some hundred streams; a client that is slower than that is no offender."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        streams = range(1, 2 * MAX_REMEMBERED + 20, 2)
        for stream_id in streams:
            connection.send(client.head(stream_id, FAIL))
            await connection.wait_for(stream_id)
        for stream_id in streams:
            connection.send(data(stream_id, b"x"))
        assert len(connection.protocol._ended_here) == MAX_REMEMBERED
        assert client.goaways == []
        # what it remembers, it still knows: the client ends this stream twice
        connection.send(data(streams[-1], end=True))
        assert client.goaways == []
        connection.send(data(streams[-1], end=True))
        assert [code for _, code, _ in client.goaways] == ["STREAM_CLOSED"]

    run(scene)


# bytes that Content-Length announces, the frames of the body, and whether the two agree
BODIES = {
    "one frame": ("6", (data(1, message(b"x"), end=True),), True),
    "two frames": ("6", (data(1, message(b"x")[:3]), data(1, message(b"x")[3:], end=True)), True),
    "an empty frame": ("6", (data(1, message(b"x")), data(1, end=True)), True),
    "padding": ("6", (data(1, message(b"x"), end=True, padding=9),), True),
    "trailers": ("6", (data(1, message(b"x")), frame(HEADERS, 5, 1, b"\x00\x01a\x01b")), True),
    "too little": ("7", (data(1, message(b"x"), end=True),), False),
    "too little in two": ("7", (data(1, message(b"x")), data(1, end=True)), False),
    "too little before trailers": (
        "7",
        (data(1, message(b"x")), frame(HEADERS, 5, 1, b"\x00\x01a\x01b")),
        False,
    ),
    "too much": ("5", (data(1, message(b"x")),), False),
    "no number": ("x", (), False),
    "a sign": ("+6", (), False),
    "a long number": ("9" * 30, (), False),
}


@pytest.mark.parametrize("case", BODIES)
def test_the_body_has_the_length_that_was_announced(case: str) -> None:
    length, frames, is_valid = BODIES[case]

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, UNARY, ("content-length", length)), *frames)
        answer = await connection.wait_for(1)
        assert answer.reset == (None if is_valid else "PROTOCOL_ERROR")
        assert answer.messages == ([b"x"] if is_valid else [])
        connection.send(connection.client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]

    run(scene)


def test_a_call_that_ends_with_its_headers_announces_nothing() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, UNARY, ("content-length", "1"), end=True))
        assert (await connection.wait_for(1)).reset == "PROTOCOL_ERROR"
        connection.send(connection.client.head(3, UNARY, ("content-length", "0"), end=True))
        assert (await connection.wait_for(3)).reset is None

    run(scene)


@pytest.mark.parametrize("name", [":path", ":unknown", "Upper", "connection"])
def test_trailers_are_checked(name: str) -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        block = bytes((0, len(name))) + name.encode() + b"\x01/"
        connection.send(
            connection.client.head(1, UNARY),
            data(1, message(b"x")),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, block),
        )
        assert (await connection.wait_for(1)).reset == "PROTOCOL_ERROR"

    run(scene)


def test_padding_and_priority_are_left_out() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        block = connection.client.block(UNARY)
        payload = b"\x05" + bytes(5) + block + bytes(5)
        connection.send(
            frame(HEADERS, END_HEADERS | PADDED | HAS_PRIORITY, 1, payload),
            data(1, message(b"padded"), padding=0),
            data(1, end=True, padding=255),
        )
        assert (await connection.wait_for(1)).messages == [b"padded"]

    run(scene)


def test_a_header_block_in_parts() -> None:
    """One byte in each frame, and empty frames between them."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        block = connection.client.block(UNARY)
        parts = [frame(CONTINUATION, 0, 1, block[place : place + 1]) for place in range(1, len(block))]
        connection.send(
            frame(HEADERS, 0, 1, block[:1]) + b"".join(parts) + frame(CONTINUATION, END_HEADERS, 1)
        )
        connection.send(data(1, message(b"parts"), end=True))
        assert (await connection.wait_for(1)).messages == [b"parts"]

    run(scene)


def test_pings_are_answered_and_settings_acknowledged() -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        assert connection.client.frames.count((SETTINGS, 0)) == 2
        connection.send(frame(PING, 0, 0, b"12345678"))
        assert connection.client.pings == [(ACK, b"12345678")]

    run(scene)


MALFORMED = {
    "no path": [(":method", "POST"), (":scheme", "http")],
    "no scheme": [(":method", "POST"), (":path", UNARY)],
    "two paths": [(":method", "POST"), (":scheme", "http"), (":path", UNARY), (":path", "/other")],
    "an unknown pseudo-header": [
        *((":method", "POST"), (":scheme", "http"), (":path", UNARY), (":status", "200")),
    ],
    "a pseudo-header at the end": [(":method", "POST"), (":scheme", "http"), ("a", "b"), (":path", UNARY)],
    "a name in capitals": [(":method", "POST"), (":scheme", "http"), (":path", UNARY), ("Key", "x")],
    "a name with a space": [(":method", "POST"), (":scheme", "http"), (":path", UNARY), ("a b", "x")],
    "an empty name": [(":method", "POST"), (":scheme", "http"), (":path", UNARY), ("", "x")],
    "a line break in a value": [(":method", "POST"), (":scheme", "http"), (":path", UNARY), ("a", "x\ny: z")],
    "a line break in the path": [(":method", "POST"), (":scheme", "http"), (":path", UNARY + "\n")],
    "a header of HTTP/1.1": [
        *((":method", "POST"), (":scheme", "http"), (":path", UNARY), ("transfer-encoding", "chunked")),
    ],
    "another TE": [(":method", "POST"), (":scheme", "http"), (":path", UNARY), ("te", "gzip")],
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_headers_end_their_stream(case: str) -> None:
    """Another server could read them in another way. The table of headers is kept for the next call."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        block = connection.client.encoder.encode([*MALFORMED[case], ("content-type", "application/grpc")])
        connection.send(frame(HEADERS, END_HEADERS, 1, block) + data(1, message(b"x"), end=True))
        assert connection.client.answers[1].reset == "PROTOCOL_ERROR"
        connection.send(connection.client.call(3, UNARY, b"next"))
        assert (await connection.wait_for(3)).messages == [b"next"]
        assert server.app.read == [b"next"]

    run(scene)


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize(
    "header",
    [
        (":method", "GET"),
        ("content-type", "application/json"),
        ("content-type", "application/grpc-web"),
        ("content-type", "application/grpc-web+proto"),
    ],
)
def test_other_requests_of_http2_get_415(header: tuple[str, str], end: bool) -> None:
    """With RST_STREAM if the client goes on sending."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.head(1, UNARY, header, end=end))
        answer = connection.client.answers[1]
        assert (answer.headers[":status"], answer.ended) == ("415", True)
        assert json.loads(answer.body)["error"].startswith("this port speaks gRPC; HTTP is on the port of")
        assert answer.reset == (None if end else "NO_ERROR")

    run(scene)


@pytest.mark.parametrize("value", ["application/grpc", "application/grpc+proto", "application/grpc;v=1"])
def test_content_types_of_grpc(value: str) -> None:
    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, UNARY, b"x", headers=(("content-type", value),)))
        assert (await connection.wait_for(1)).messages == [b"x"]

    run(scene)


def test_a_settings_frame_counts_as_a_whole() -> None:
    """The last of several values is the one that counts, and takes no more time than one."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(settings((4, 0), (4, 2**31 - 1), (4, 5), (5, 16_384)))
        assert connection.protocol.initial_send_window == 5
        assert connection.client.frames.count((SETTINGS, 0)) == 3

    run(scene)


def test_the_client_of_these_tests_writes_frames() -> None:
    """As in the examples of RFC 9113."""
    assert frame(PING, ACK, 0, b"12345678") == b"\0\0\x08\x06\x01\0\0\0\0" + b"12345678"
    assert H2Client().start((4, 1)).endswith(b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x04\0\0\0\x01")
