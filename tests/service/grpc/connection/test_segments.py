"""How the bytes of a connection arrive changes nothing: whole, byte by byte, or cut anywhere."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.echo_calls import Connection, EchoServer, run
from tests.support.h2_client import H2Client
from tests.support.h2_connections import CONNECTIONS


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


@pytest.mark.parametrize("write", CONNECTIONS, ids=lambda write: write.__name__)
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
