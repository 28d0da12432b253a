"""Valid connections of gRPC: what a client sends after its preface, with all kinds of frames."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from tests.support.echo_calls import REFUSE, STREAM, UNARY
from tests.support.h2_client import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    H2Client,
    frame,
    message,
    settings,
)


def unary_calls(client: H2Client) -> bytes:
    return b"".join(client.call(2 * number + 1, UNARY, b"%d" % number) for number in range(10))


def other_messages(client: H2Client) -> bytes:
    return (
        client.call(1, UNARY, b"")
        + client.call(3, UNARY, bytes(40_000))
        + client.call(5, UNARY)
        + client.call(7, UNARY, b"a", b"b")
        + client.head(9, UNARY, end=True)
    )


def interleaved_streams(client: H2Client) -> bytes:
    first, second = message(b"x" * 20_000), message(b"yy")
    return b"".join(
        (
            client.head(1, STREAM),
            client.head(3, STREAM),
            client.data(1, first[:3]),
            client.data(3, second + second[:6]),
            client.data(1, first[3:16_000], padding=40),
            client.data(3, second[6:], end=True),
            frame(PING, 0, 0, bytes(8)),
            client.data(1, first[16_000:]),
            client.data(1, end=True),
        )
    )


def compressed_messages(client: H2Client) -> bytes:
    body = message(gzip.compress(b"hello" * 1000, mtime=0), flag=1) + message(b"plain")
    return client.head(1, STREAM, ("grpc-encoding", "gzip")) + client.data(1, body, end=True)


def odd_frames(client: H2Client) -> bytes:
    block = client.block(UNARY)
    trailers = client.encoder.encode([("a", "b")])
    return b"".join(
        (
            frame(HEADERS, PADDED, 1, b"\x02" + block[:5] + b"\0\0"),
            frame(CONTINUATION, 0, 1),
            frame(CONTINUATION, END_HEADERS, 1, block[5:]),
            client.data(1, message(b"x"), padding=3),
            settings((4, 70_000)),
            frame(99, 255, 1, b"unknown"),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, trailers),
        )
    )


def priorities(client: H2Client) -> bytes:
    priority = (0).to_bytes(4) + b"\x10"
    return (
        frame(PRIORITY, 0, 9, priority)
        + frame(HEADERS, END_HEADERS | HAS_PRIORITY, 1, priority + client.block(UNARY))
        + frame(PRIORITY, 0, 1, priority)
        + client.data(1, message(b"first"), end=True)
    )


def refused_calls(client: H2Client) -> bytes:
    return (
        client.head(1, "/test.Echo/Absent", end=True)
        + client.call(3, REFUSE, b"no")
        + client.call(5, UNARY, b"x", headers=((":method", "GET"),))
        + client.call(7, UNARY, b"x", headers=(("content-type", "text/plain"),))
        + client.call(9, "/test.Echo/Unary", b"yes")
    )


CONNECTIONS: list[Callable[[H2Client], bytes]] = [
    *(unary_calls, other_messages, interleaved_streams, compressed_messages, odd_frames, priorities),
    refused_calls,
]
