"""Every case of h2spec's list, against the port of gRPC of a running service, with the errors of RFC 9113.

h2spec is the usual test suite for servers of HTTP/2. Its numbers are kept, so that a case can be looked up.
RFC 9113 has removed dependencies of streams (5.3.1): a stream that depends on itself is no error any more.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.support.h2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
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
from tests.support.live_server import Server, serving

LIVE, INDEX = "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/RepositoryIndex"
# what a stream gets: an answer, or RST_STREAM with an error. "connection" stands for GOAWAY.
ANSWERED = "answered"
PING_BYTES = b"conform!"
Build = Callable[[H2Client], bytes]


class Case(NamedTuple):
    """What is sent after the preface, and the errors of which one is expected; none if calls go on."""

    sent: Build
    connection: tuple[str, ...] = ()
    # errors of stream 1, or that it is answered
    stream: tuple[str, ...] = ()


def goes_on(sent: Build, *stream: str) -> Case:
    return Case(sent, (), stream)


def ends(sent: Build, *errors: str) -> Case:
    return Case(sent, errors)


def one(client: H2Client, *headers: tuple[str, str], stream_id: int = 1) -> bytes:
    """A whole call."""
    return client.call(stream_id, LIVE, b"", headers=headers)


def opened(client: H2Client, stream_id: int = 1) -> bytes:
    """The headers of a call whose body is to come."""
    return client.head(stream_id, LIVE)


def raw_head(client: H2Client, *fields: tuple[str, str], end: bool = True) -> bytes:
    """The headers of stream 1, exactly these."""
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), 1, client.encoder.encode(list(fields)))


PSEUDO = ((":method", "POST"), (":scheme", "http"), (":path", LIVE), (":authority", "localhost"))
GRPC = (("content-type", "application/grpc"), ("te", "trailers"))


def with_fields(*more: tuple[str, str], without: str = "") -> Build:
    """A call with these headers behind the usual ones, and without one of them."""
    pseudo = [pair for pair in PSEUDO if pair[0] != without]
    return lambda client: raw_head(client, *pseudo, *GRPC, *more)


def block_in_parts(*between: bytes, stream_id: int = 1) -> Build:
    """HEADERS, other frames, and CONTINUATION."""

    def build(client: H2Client) -> bytes:
        block = client.block(LIVE)
        return (
            frame(HEADERS, END_STREAM, 1, block[:5])
            + b"".join(between)
            + frame(CONTINUATION, END_HEADERS, stream_id, block[5:])
        )

    return build


def hpack_head(block: bytes) -> Build:
    """The usual headers, and this behind them in the same block."""
    return lambda client: frame(HEADERS, END_HEADERS | END_STREAM, 1, client.block(LIVE) + block)


TRAILERS = b"\x00\x01a\x01b"
CASES: dict[str, Case] = {
    # ---- generic
    "generic 2.1: PRIORITY on an idle stream": goes_on(lambda c: frame(PRIORITY, 0, 1, bytes(5)) + one(c)),
    "generic 2.2: WINDOW_UPDATE on a half-closed stream": goes_on(lambda c: one(c) + window_update(1, 1)),
    "generic 2.3: PRIORITY on a half-closed stream": goes_on(
        lambda c: one(c) + frame(PRIORITY, 0, 1, bytes(5))
    ),
    "generic 2.4: RST_STREAM on a half-closed stream": goes_on(lambda c: one(c) + reset(1)),
    "generic 2.5: PRIORITY on a closed stream": goes_on(
        lambda c: opened(c) + reset(1) + frame(PRIORITY, 0, 1, bytes(5))
    ),
    "generic 3.1.1: DATA": goes_on(one, ANSWERED),
    "generic 3.1.2: several DATA": goes_on(
        lambda c: opened(c) + data(1, message(b"")[:2]) + data(1, message(b"")[2:], end=True), ANSWERED
    ),
    "generic 3.1.3: DATA with padding": goes_on(
        lambda c: opened(c) + data(1, message(b""), end=True, padding=6), ANSWERED
    ),
    "generic 3.2.2: HEADERS with padding": goes_on(
        lambda c: (
            frame(HEADERS, END_HEADERS | PADDED, 1, b"\x06" + c.block(LIVE) + bytes(6))
            + data(1, message(b""), end=True)
        ),
        ANSWERED,
    ),
    "generic 3.2.3: HEADERS with priority": goes_on(
        lambda c: (
            frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, bytes(4) + b"\xff" + c.block(LIVE))
            + data(1, message(b""), end=True)
        ),
        ANSWERED,
    ),
    "generic 3.3.1: PRIORITY with a weight of 1": goes_on(lambda c: frame(PRIORITY, 0, 1, bytes(5)) + one(c)),
    "generic 3.3.4: PRIORITY with an exclusive flag": goes_on(
        lambda c: frame(PRIORITY, 0, 1, b"\x80" + bytes(3) + b"\xff") + one(c), ANSWERED
    ),
    "generic 3.4.1: RST_STREAM": goes_on(lambda c: opened(c) + reset(1)),
    "generic 3.5.1: SETTINGS": goes_on(lambda c: settings((3, 100)) + one(c), ANSWERED),
    "generic 3.7.1: PING": goes_on(lambda c: frame(PING, 0, 0, b"whatever")),
    "generic 3.8.1: GOAWAY": goes_on(lambda c: frame(GOAWAY, 0, 0, bytes(8))),
    "generic 3.9.1: WINDOW_UPDATE of the connection": goes_on(lambda c: window_update(0, 1) + one(c)),
    "generic 3.9.2: WINDOW_UPDATE of a stream": goes_on(lambda c: opened(c) + window_update(1, 1)),
    "generic 3.10.1: CONTINUATION": goes_on(block_in_parts(), ANSWERED),
    "generic 3.10.2: several CONTINUATION": goes_on(block_in_parts(frame(CONTINUATION, 0, 1)), ANSWERED),
    "generic 4.4: POST with trailers": goes_on(
        lambda c: (
            opened(c) + data(1, message(b"")) + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x00\x01a\x01b")
        ),
        ANSWERED,
    ),
    "generic 5: an indexed field": goes_on(
        lambda c: frame(HEADERS, 5, 1, b"\x82\x84\x86\x41\x01a"),
        ANSWERED,
    ),
    "generic 5.7: a literal that is never indexed": goes_on(
        lambda c: frame(HEADERS, 5, 1, b"\x82\x84\x86\x10\x01a\x01b"), ANSWERED
    ),
    "generic 5.15: a resize of the table": goes_on(
        lambda c: frame(HEADERS, 5, 1, b"\x20\x3f\xe1\x1f\x82\x84\x86"), ANSWERED
    ),
    # ---- http2
    "http2 4.1.1: an unknown type": goes_on(lambda c: frame(0x16, 0, 0, bytes(8)) + one(c), ANSWERED),
    "http2 4.1.2: undefined flags": goes_on(lambda c: frame(PING, 0x16, 0, bytes(8)) + one(c), ANSWERED),
    "http2 4.1.3: a reserved bit": goes_on(lambda c: frame(PING, 0, 1 << 31, bytes(8)) + one(c), ANSWERED),
    "http2 4.2.1: DATA of 2^14 bytes": goes_on(lambda c: opened(c) + data(1, bytes(1 << 14))),
    "http2 4.2.2: a long DATA": ends(lambda c: opened(c) + data(1, bytes((1 << 14) + 1)), "FRAME_SIZE_ERROR"),
    "http2 4.2.3: a long HEADERS": ends(
        lambda c: frame(HEADERS, 5, 1, bytes((1 << 14) + 1)), "FRAME_SIZE_ERROR"
    ),
    "http2 4.3.1: an invalid header block": ends(
        lambda c: frame(HEADERS, 5, 1, b"\x40\x01\xff"), "COMPRESSION_ERROR"
    ),
    "http2 4.3.2: PRIORITY in a header block": ends(
        block_in_parts(frame(PRIORITY, 0, 1, bytes(5))), "PROTOCOL_ERROR"
    ),
    "http2 4.3.3: HEADERS of another stream in a header block": ends(
        block_in_parts(frame(HEADERS, 5, 3, b"\x82")), "PROTOCOL_ERROR"
    ),
    "http2 5.1.1: DATA on an idle stream": ends(lambda c: data(1, b"x", end=True), "PROTOCOL_ERROR"),
    "http2 5.1.2: RST_STREAM on an idle stream": ends(lambda c: reset(1), "PROTOCOL_ERROR"),
    "http2 5.1.3: WINDOW_UPDATE on an idle stream": ends(lambda c: window_update(1, 100), "PROTOCOL_ERROR"),
    "http2 5.1.4: CONTINUATION on an idle stream": ends(
        lambda c: frame(CONTINUATION, END_HEADERS, 1, c.block(LIVE)), "PROTOCOL_ERROR"
    ),
    "http2 5.1.5: DATA on a half-closed stream": Case(
        lambda c: one(c) + data(1, b"x", end=True), ("STREAM_CLOSED",), ("STREAM_CLOSED",)
    ),
    "http2 5.1.6: HEADERS on a half-closed stream": Case(
        lambda c: one(c) + frame(HEADERS, 5, 1, TRAILERS), ("STREAM_CLOSED",), ("STREAM_CLOSED",)
    ),
    "http2 5.1.7: CONTINUATION on a half-closed stream": ends(
        lambda c: one(c) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "STREAM_CLOSED", "PROTOCOL_ERROR"
    ),
    "http2 5.1.8: DATA after RST_STREAM": ends(
        lambda c: opened(c) + reset(1) + data(1, b"x", end=True), "STREAM_CLOSED"
    ),
    "http2 5.1.9: HEADERS after RST_STREAM": ends(
        lambda c: opened(c) + reset(1) + frame(HEADERS, 5, 1, TRAILERS), "STREAM_CLOSED"
    ),
    "http2 5.1.10: CONTINUATION after RST_STREAM": ends(
        lambda c: opened(c) + reset(1) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"),
        "STREAM_CLOSED",
        "PROTOCOL_ERROR",
    ),
    "http2 5.1.1.1: an even stream": ends(lambda c: one(c, stream_id=2), "PROTOCOL_ERROR"),
    "http2 5.1.1.2: a lower stream": ends(
        lambda c: one(c, stream_id=5) + one(c, stream_id=3), "PROTOCOL_ERROR"
    ),
    "http2 5.4.1.1: GOAWAY before the connection ends": ends(
        lambda c: frame(PING, 0, 3, bytes(8)), "PROTOCOL_ERROR"
    ),
    "http2 5.5.1: an unknown frame with a stream": goes_on(lambda c: frame(0x16, 0, 1, bytes(8)) + one(c)),
    "http2 5.5.2: an unknown frame in a header block": ends(
        block_in_parts(frame(0x16, 0, 0, bytes(8))), "PROTOCOL_ERROR"
    ),
    "http2 6.1.1: DATA without a stream": ends(lambda c: data(0, b"x"), "PROTOCOL_ERROR"),
    "http2 6.1.3: padding that is too long": ends(
        lambda c: opened(c) + frame(DATA, PADDED | END_STREAM, 1, b"\x10test"), "PROTOCOL_ERROR"
    ),
    "http2 6.2.1: HEADERS without END_HEADERS, then PRIORITY": ends(
        lambda c: frame(HEADERS, END_STREAM, 1, c.block(LIVE)) + frame(PRIORITY, 0, 1, bytes(5)),
        "PROTOCOL_ERROR",
    ),
    "http2 6.2.3: HEADERS without a stream": ends(
        lambda c: frame(HEADERS, 5, 0, c.block(LIVE)), "PROTOCOL_ERROR"
    ),
    "http2 6.2.4: padding of HEADERS that is too long": ends(
        lambda c: frame(HEADERS, 5 | PADDED, 1, b"\xff" + c.block(LIVE)), "PROTOCOL_ERROR"
    ),
    "http2 6.3.1: PRIORITY of no stream": ends(lambda c: frame(PRIORITY, 0, 0, bytes(5)), "PROTOCOL_ERROR"),
    "http2 6.3.2: PRIORITY of 4 bytes": ends(
        lambda c: opened(c) + frame(PRIORITY, 0, 1, bytes(4)), "FRAME_SIZE_ERROR"
    ),
    "http2 6.4.1: RST_STREAM without a stream": ends(lambda c: reset(0), "PROTOCOL_ERROR"),
    "http2 6.4.3: RST_STREAM of 3 bytes": ends(
        lambda c: opened(c) + frame(RST_STREAM, 0, 1, bytes(3)), "FRAME_SIZE_ERROR"
    ),
    "http2 6.5.1: SETTINGS with ACK and values": ends(
        lambda c: frame(SETTINGS, ACK, 0, bytes(6)), "FRAME_SIZE_ERROR"
    ),
    "http2 6.5.2: SETTINGS of a stream": ends(lambda c: frame(SETTINGS, 0, 1, bytes(6)), "PROTOCOL_ERROR"),
    "http2 6.5.3: SETTINGS of 3 bytes": ends(lambda c: frame(SETTINGS, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"),
    "http2 6.5.2.1: push of 2": ends(lambda c: settings((2, 2)), "PROTOCOL_ERROR"),
    "http2 6.5.2.2: a window of 2^31": ends(lambda c: settings((4, 1 << 31)), "FLOW_CONTROL_ERROR"),
    "http2 6.5.2.3: frames below 2^14": ends(lambda c: settings((5, (1 << 14) - 1)), "PROTOCOL_ERROR"),
    "http2 6.5.2.4: frames over 2^24-1": ends(lambda c: settings((5, 1 << 24)), "PROTOCOL_ERROR"),
    "http2 6.5.2.5: an unknown setting": goes_on(lambda c: settings((0xFF, 1)) + one(c), ANSWERED),
    "http2 6.5.3.1: several values of a setting": goes_on(
        lambda c: c.set((4, 1), (4, FIRST_WINDOW)) + one(c), ANSWERED
    ),
    "http2 6.7.2: an ACK of PING": goes_on(lambda c: frame(PING, ACK, 0, b"invalid!") + one(c), ANSWERED),
    "http2 6.7.3: PING of a stream": ends(lambda c: frame(PING, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    "http2 6.7.4: PING of 6 bytes": ends(lambda c: frame(PING, 0, 0, bytes(6)), "FRAME_SIZE_ERROR"),
    "http2 6.8.1: GOAWAY of a stream": ends(lambda c: frame(GOAWAY, 0, 1, bytes(8)), "PROTOCOL_ERROR"),
    "http2 6.8: GOAWAY of 3 bytes": ends(lambda c: frame(GOAWAY, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"),
    "http2 6.9.1: WINDOW_UPDATE of 0": ends(lambda c: window_update(0, 0), "PROTOCOL_ERROR"),
    "http2 6.9.2: WINDOW_UPDATE of 0 of a stream": goes_on(
        lambda c: opened(c) + window_update(1, 0), "PROTOCOL_ERROR"
    ),
    "http2 6.9.3: WINDOW_UPDATE of 3 bytes": ends(
        lambda c: frame(WINDOW_UPDATE, 0, 0, bytes(3)), "FRAME_SIZE_ERROR"
    ),
    "http2 6.9.1.2: a window of the connection over 2^31-1": ends(
        lambda c: window_update(0, 2**31 - 1) * 2, "FLOW_CONTROL_ERROR"
    ),
    "http2 6.9.1.3: a window of a stream over 2^31-1": goes_on(
        lambda c: opened(c) + window_update(1, 2**31 - 1) * 2, "FLOW_CONTROL_ERROR"
    ),
    "http2 6.9.2.3: SETTINGS that make a window too large": ends(
        lambda c: opened(c) + window_update(1, 2**31 - 1 - FIRST_WINDOW) + settings((4, 2**31 - 1)),
        "FLOW_CONTROL_ERROR",
    ),
    "http2 6.10.2: CONTINUATION, and another frame": ends(
        block_in_parts(frame(CONTINUATION, 0, 1), frame(PING, 0, 0, bytes(8))), "PROTOCOL_ERROR"
    ),
    "http2 6.10.3: CONTINUATION without a stream": ends(block_in_parts(stream_id=0), "PROTOCOL_ERROR"),
    "http2 6.10.4: CONTINUATION after END_HEADERS": ends(
        lambda c: opened(c) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"
    ),
    "http2 6.10.5: CONTINUATION after the last CONTINUATION": ends(
        lambda c: block_in_parts()(c) + frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"
    ),
    "http2 6.10.6: CONTINUATION after DATA": ends(
        lambda c: opened(c) + data(1, b"") + frame(CONTINUATION, END_HEADERS, 1, b"\x82"), "PROTOCOL_ERROR"
    ),
    "http2 7.1: GOAWAY of an unknown error": goes_on(lambda c: frame(GOAWAY, 0, 0, bytes(4) + b"\0\0\0\xff")),
    "http2 7.2: RST_STREAM with an unknown error": goes_on(lambda c: opened(c) + reset(1, 0xFF)),
    "http2 8.1.1: HEADERS twice without END_STREAM": goes_on(
        lambda c: opened(c) + frame(HEADERS, END_HEADERS, 1, TRAILERS), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.1: an upper-case name": goes_on(with_fields(("X-TEST", "ok")), "PROTOCOL_ERROR"),
    "http2 8.1.2.1.1: an unknown pseudo-header": goes_on(
        lambda c: raw_head(c, *PSEUDO, (":test", "ok"), *GRPC), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.1.2: a pseudo-header of answers": goes_on(
        lambda c: raw_head(c, *PSEUDO, (":status", "200"), *GRPC), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.1.3: a pseudo-header in trailers": goes_on(
        lambda c: (
            opened(c) + data(1, message(b"")) + frame(HEADERS, 5, 1, c.encoder.encode([(":method", "200")]))
        ),
        "PROTOCOL_ERROR",
    ),
    "http2 8.1.2.1.4: a pseudo-header behind others": goes_on(
        lambda c: raw_head(c, *PSEUDO[1:], *GRPC, PSEUDO[0]), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.2.1: a header of the connection": goes_on(
        with_fields(("connection", "keep-alive")), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.2.2: te with another value": goes_on(
        with_fields(("te", "trailers, deflate")), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.3.1: an empty path": goes_on(
        lambda c: raw_head(c, *PSEUDO[:2], (":path", ""), *GRPC), "PROTOCOL_ERROR"
    ),
    **{
        f"http2 8.1.2.3.{number}: no {name}": goes_on(with_fields(without=name), "PROTOCOL_ERROR")
        for number, name in ((2, ":method"), (3, ":scheme"), (4, ":path"))
    },
    **{
        f"http2 8.1.2.3.{number}: {name} twice": goes_on(
            lambda c, name=name: raw_head(c, *PSEUDO, (name, dict(PSEUDO)[name]), *GRPC),  # type: ignore[misc]
            "PROTOCOL_ERROR",
        )
        for number, name in ((5, ":method"), (6, ":scheme"), (7, ":path"))
    },
    "http2 8.1.2.6.1: another length than announced": goes_on(
        lambda c: c.head(1, LIVE, ("content-length", "1")) + data(1, message(b""), end=True), "PROTOCOL_ERROR"
    ),
    "http2 8.1.2.6.2: another length than announced, in two": goes_on(
        lambda c: (
            c.head(1, LIVE, ("content-length", "1"))
            + data(1, message(b"")[:2])
            + data(1, message(b"")[2:], end=True)
        ),
        "PROTOCOL_ERROR",
    ),
    "http2 8.2.1: PUSH_PROMISE": ends(
        lambda c: opened(c) + frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4) + b"\x82"), "PROTOCOL_ERROR"
    ),
    # ---- hpack
    "hpack 2.3.3.1: an indexed field with a number that is too large": ends(
        hpack_head(b"\xff\xff\x7f"), "COMPRESSION_ERROR"
    ),
    "hpack 2.3.3.2: a literal with a number that is too large": ends(
        hpack_head(b"\x7f\xff\x7f\x01a"), "COMPRESSION_ERROR"
    ),
    "hpack 4.2.1: a resize of the table at the end": ends(hpack_head(b"\x20"), "COMPRESSION_ERROR"),
    "hpack 5.2.1: padding of a Huffman code over 7 bits": ends(
        hpack_head(b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"), "COMPRESSION_ERROR"
    ),
    "hpack 5.2.2: padding of a Huffman code with zeros": ends(
        hpack_head(b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"), "COMPRESSION_ERROR"
    ),
    "hpack 5.2.3: the end in a Huffman code": ends(
        hpack_head(b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"), "COMPRESSION_ERROR"
    ),
    "hpack 6.1.1: the number 0": ends(hpack_head(b"\x80"), "COMPRESSION_ERROR"),
    "hpack 6.3.1: a table that is too large": ends(
        lambda c: frame(HEADERS, 5, 1, b"\x3f\xe2\x1f\x82\x84\x86"), "COMPRESSION_ERROR"
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--grpc-port", 0, "--workers", 1, "--no-access-log") as running:
        yield running


class Peer:
    """A connection to the service."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.grpc_address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.client = H2Client()

    def read_until(self, done: Callable[[H2Client], object]) -> bool:
        """Read until the condition holds; False if the service closed before."""
        while not done(self.client):
            received = self.socket.recv(65_536)
            if not received:
                return False
            self.client.receive(received)
        return True


@pytest.mark.parametrize("name", CASES)
def test_case(server: Server, name: str) -> None:
    """The connection ends with the error, or goes on: a PING and a new call on it are answered."""
    case = CASES[name]
    peer = Peer(server)
    with peer.socket:
        peer.socket.sendall(peer.client.start() + case.sent(peer.client) + frame(PING, 0, 0, PING_BYTES))
        ponged = peer.read_until(
            lambda client: client.goaways or any(content == PING_BYTES for _, content in client.pings)
        )
        if peer.client.goaways:
            ((_, error, text),) = peer.client.goaways
            assert error in case.connection
            assert text
            # the end of the stream follows
            assert not peer.read_until(lambda client: False)
            return
        assert ponged
        answer = peer.client.answers[1]
        if case.stream:
            assert peer.read_until(lambda client: answer.done)
            assert answer.reset in case.stream or (answer.reset is None and ANSWERED in case.stream)
        else:
            assert not case.connection
        peer.socket.sendall(peer.client.call(101, LIVE, b""))
        assert peer.read_until(lambda client: client.answers[101].done)
        assert peer.client.answers[101].status == 0


def test_the_settings_come_first(server: Server) -> None:
    """generic 1.1, http2 3.5.1: the service's SETTINGS, and an ACK of ours."""
    peer = Peer(server)
    with peer.socket:
        peer.socket.sendall(peer.client.start())
        assert peer.read_until(lambda client: len(client.frames) >= 3)
        assert peer.client.frames[0] == (SETTINGS, 0)


def test_another_preface_ends_the_connection(server: Server) -> None:
    """http2 3.5.2."""
    peer = Peer(server)
    with peer.socket:
        peer.socket.sendall(b"INVALID CONNECTION PREFACE\r\n\r\n")
        assert not peer.read_until(lambda client: False)
        assert [error for _, error, _ in peer.client.goaways] == ["PROTOCOL_ERROR"]


def test_more_streams_than_allowed_are_refused(server: Server) -> None:
    """http2 5.1.2.1: the others go on."""
    peer = Peer(server)
    client = peer.client
    with peer.socket:
        peer.socket.sendall(client.start())
        assert peer.read_until(lambda client: client.settings)
        limit = client.settings[3]
        peer.socket.sendall(b"".join(opened(client, 2 * number + 1) for number in range(limit + 1)))
        last = 2 * limit + 1
        assert peer.read_until(lambda client: client.answers[last].done)
        assert client.answers[last].reset == "REFUSED_STREAM"
        peer.socket.sendall(data(1, message(b""), end=True))
        assert peer.read_until(lambda client: client.answers[1].done)
        assert client.answers[1].status == 0


@pytest.mark.parametrize("first_window", [1, 0])
def test_the_client_s_window_is_kept(server: Server, first_window: int) -> None:
    """http2 6.9.1.1, 6.9.2.1 and 6.9.2.2: also if it is 0 or becomes negative, and grows later."""
    peer = Peer(server)
    client = peer.client
    with peer.socket:
        peer.socket.sendall(client.start((4, first_window)) + client.call(1, INDEX, b""))
        assert peer.read_until(lambda client: client.answers[1].headers)
        peer.socket.sendall(frame(PING, 0, 0, PING_BYTES))
        assert peer.read_until(lambda client: client.pings)
        answer = client.answers[1]
        assert len(answer.body) == first_window
        # a smaller window than what was sent: the next byte comes when the update has made up for it
        peer.socket.sendall(client.set((4, 0)) + client.allow(1, first_window + 3))
        assert peer.read_until(lambda client: len(answer.body) >= first_window + 3)
        peer.socket.sendall(client.allow(1, 10_000))
        assert peer.read_until(lambda client: answer.done)
        assert answer.status == 0
        assert b"digits-10" in answer.messages[0]


def test_the_preface_may_come_in_any_parts(server: Server) -> None:
    peer = Peer(server)
    client = peer.client
    sent = client.start() + one(client)
    assert sent.startswith(PREFACE)
    with peer.socket:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(len(sent)):
            peer.socket.sendall(sent[start : start + 1])
        assert peer.read_until(lambda client: client.answers[1].done)
        assert client.answers[1].status == 0
