"""How the bytes of a connection arrive changes nothing: whole, byte by byte, or cut anywhere."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.echo_calls import FAIL, REFUSE, STREAM, UNARY, Connection, EchoServer, run
from tests.support.h2_client import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
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


def refused_calls(client: H2Client) -> bytes:
    return (
        client.head(1, FAIL, end=True)
        + client.call(3, REFUSE, b"no")
        + client.call(5, UNARY, b"x", headers=((":method", "GET"),))
        + client.call(7, UNARY, b"x", headers=(("content-type", "text/plain"),))
        + client.call(9, "/test.Echo/Unary", b"yes")
    )


SCENES: list[Callable[[H2Client], bytes]] = [
    *(unary_calls, other_messages, interleaved_streams, compressed_messages, odd_frames, refused_calls),
]


async def outcome(
    server: EchoServer, write: Callable[[H2Client], bytes], cuts: Callable[[int], list[int]]
) -> Any:
    """What the client gets on each stream, if what it sends is cut where `cuts` says for its size."""
    connection = Connection(server)
    client = connection.client
    sent = client.start((4, 1 << 20)) + client.allow(0, 1 << 20) + write(client)
    for start, stop in itertools.pairwise([0, *cuts(len(sent)), len(sent)]):
        connection.send(sent[start:stop])
        if start % 3 == 0:
            await asyncio.sleep(0)
    await connection.until(lambda client: all(answer.done for answer in client.answers.values()))
    await connection.turns()
    connection.check_windows()
    for answer in client.answers.values():
        for fields in (answer.headers, answer.trailers):
            fields.pop("x-request-id", None)
            if fields.get("grpc-message", "").startswith("internal error"):
                fields["grpc-message"] = "internal error"
    return (
        {stream_id: vars(answer) for stream_id, answer in client.answers.items()},
        client.pings,
        client.goaways,
    )


@pytest.mark.parametrize("write", SCENES, ids=lambda write: write.__name__)
def test_answers_do_not_depend_on_segments(write: Callable[[H2Client], bytes]) -> None:
    """Whole, byte by byte as far as it is short, and cut at random."""
    draw = random.Random(2)

    def random_places(size: int) -> list[int]:
        return sorted(draw.choices(range(size), k=draw.choice((1, 2, 5, 30))))

    async def scene(server: EchoServer) -> None:
        whole = await outcome(server, write, lambda size: [])
        assert whole[0]
        assert await outcome(server, write, lambda size: [*range(1, size, 1 + size // 2000)]) == whole
        for _ in range(40):
            assert await outcome(server, write, random_places) == whole

    run(scene)
