"""Compressed request bodies: decompressed within the limits of size, ratio, memory and time."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.body_clients import GONE, Client, body_reader, part, read
from turnpike.service.errors import (
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    TooLargeError,
    UnsupportedEncodingError,
)
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.decompression import ANY_RATIO_BYTES, SLICE_BYTES
from turnpike.service.requests.request import ClientGoneError

PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_compressed_bodies_are_decompressed(encoding: str, size: int) -> None:
    """They may come in single bytes, and may have exactly the size of the limit."""
    packed = PACK[encoding](b"abc" * 33 + b"d")
    parts = [part(packed[at : at + size], more=True) for at in range(0, len(packed), size)]
    assert read(Client(*parts, part(b"")), encoding=encoding) == b"abc" * 33 + b"d"
    assert read(Client(part(packed)), encoding=f" {encoding.upper()} ") == b"abc" * 33 + b"d"


def test_identity_encoding_is_accepted() -> None:
    assert read(Client(part(b"abc")), encoding="identity") == b"abc"


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("size", [101, 50_000_000])
def test_a_decompression_bomb_stops_at_the_limit(encoding: str, size: int) -> None:
    """One byte over the limit gives 413. So do fifty million, which are never all decompressed."""
    packed = PACK[encoding](b"\0" * size)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match="expected at most 100 bytes"):
            read(Client(part(packed)), encoding=encoding)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize(
    "spoil", [lambda d: d[:-1], lambda d: b"x" + d, lambda d: d + b"x", lambda d: b"", lambda d: d[:5]]
)
def test_damaged_compressed_bodies_are_refused(encoding: str, spoil: Callable[[bytes], bytes]) -> None:
    """They are truncated, not compressed, or followed by other bytes."""
    with pytest.raises(RequestError, match="body: expected one whole compressed stream") as raised:
        read(Client(part(spoil(PACK[encoding](b"abc" * 20)))), encoding=encoding)
    assert raised.value.status == 400


@pytest.mark.parametrize("encoding", ["br", "gzip, deflate", "zstd", "", "\xff" * 500])
def test_unsupported_encodings_are_refused(encoding: str) -> None:
    """The answer is 415, and names the encodings that are supported."""
    with pytest.raises(
        UnsupportedEncodingError, match="Content-Encoding: expected gzip, deflate or identity, got"
    ) as raised:
        read(Client(part(b"abc")), encoding=encoding)
    assert raised.value.status == 415
    assert len(str(raised.value)) < 500


# 8 MiB in 8 KiB: more than a thousand bytes for each compressed one
BOMB_BYTES = 8 << 20
BOMB = zlib.compress(bytes(BOMB_BYTES), 9)
SLICES = BOMB_BYTES // SLICE_BYTES


def bomb_reader(**options: Any) -> BodyReader:
    """A reader that lets bombs be decompressed."""
    return body_reader(16 << 20, **{"limit": 16 << 20, "seconds": 60, "max_ratio": 2000} | options)


async def turns_during(work: Coroutine[Any, Any, Any], each: Callable[[], object] = lambda: None) -> int:
    """The number of turns that another coroutine gets until the work is done; `each` is called in them."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        turns += 1
        each()
        await asyncio.sleep(0)
    await task
    return turns


@pytest.mark.parametrize("bodies", [1, 3])
def test_decompression_lets_others_run(bodies: int) -> None:
    """A slice of one body is decompressed in each turn of the event loop, however many bodies there are."""
    reader = bomb_reader(limit=2 << 20)
    part_of_bomb = zlib.compress(bytes(2 << 20), 9)

    async def scene() -> int:
        clients = [Client(part(part_of_bomb)).sending("deflate") for _ in range(bodies)]

        async def read_all() -> None:
            for body in await asyncio.gather(*map(reader.read, clients)):
                assert body == bytes(2 << 20)

        return await turns_during(read_all())

    assert asyncio.run(scene()) >= bodies * ((2 << 20) // SLICE_BYTES)


def test_memory_is_counted_during_decompression() -> None:
    """Each slice counts, and a slice beyond the budget ends the request."""
    reader, counted = bomb_reader(), set()

    async def scene() -> None:
        client = Client(part(BOMB)).sending("deflate")
        await turns_during(reader.read(client), lambda: counted.add(reader.budget.bytes))

    asyncio.run(scene())
    assert len(counted) >= SLICES
    reader = bomb_reader()
    reader.budget.bytes = 12 << 20
    with pytest.raises(OverloadedError):
        asyncio.run(reader.read(Client(part(BOMB)).sending("deflate")))
    assert 12 << 20 < reader.budget.bytes <= 16 << 20


@contextlib.contextmanager
def returning(reader: BodyReader, *clients: Client) -> Iterator[None]:
    """Check after the block that the budget holds nothing but the bodies of these clients."""
    yield
    assert reader.budget.bytes == sum(client.budgeted_bytes for client in clients)


# a body of three slices that cannot be compressed
NOISE = np.random.default_rng(0).bytes(3 * SLICE_BYTES)
PACKED_NOISE = zlib.compress(NOISE, 0)


def test_compressed_input_is_counted_while_it_waits() -> None:
    """Only one body is decompressed at a time. The input of the others takes memory meanwhile."""
    reader = body_reader(16 << 20, limit=1 << 20, seconds=60)
    clients = [Client(part(PACKED_NOISE)).sending("deflate") for _ in range(8)]

    async def scene() -> int:
        tasks = [asyncio.create_task(reader.read(client)) for client in clients]
        await asyncio.sleep(0)
        counted = reader.budget.bytes
        assert await asyncio.gather(*tasks) == [NOISE] * len(clients)
        return counted

    with returning(reader, *clients):
        assert asyncio.run(scene()) >= len(clients) * len(PACKED_NOISE) - SLICE_BYTES


def test_compressed_input_beyond_the_budget_is_refused() -> None:
    """It is refused before it waits for its turn. The others are decompressed."""
    reader = body_reader(2 << 20, limit=1 << 20, seconds=60)
    clients = [Client(part(PACKED_NOISE)).sending("deflate") for _ in range(8)]

    async def scene() -> list[bytes | BaseException]:
        return await asyncio.gather(*map(reader.read, clients), return_exceptions=True)

    with returning(reader, *clients):
        results = asyncio.run(scene())
    refused = [isinstance(result, OverloadedError) for result in results]
    assert refused == [False] * 5 + [True] * 3
    assert results[:5] == [NOISE] * 5


def test_a_body_as_large_as_the_budget_may_be_compressed() -> None:
    """Its input is given back slice by slice, to make room for the result."""
    body = bytes(SLICE_BYTES) + NOISE + bytes(SLICE_BYTES)
    packed = zlib.compress(body)
    assert len(packed) < len(body)
    reader = body_reader(len(body), limit=len(body), seconds=60)
    assert read(Client(part(packed)), reader, encoding="deflate") == body


@pytest.mark.parametrize("turns", range(1, 5))
def test_cancelled_readers_free_their_compressed_input(turns: int) -> None:
    """One of them is being decompressed, the other waits for its turn."""
    reader = body_reader(16 << 20, limit=1 << 20, seconds=60)
    clients = [Client(part(PACKED_NOISE)).sending("deflate") for _ in range(2)]

    async def scene() -> None:
        tasks = [asyncio.create_task(reader.read(client)) for client in clients]
        for _ in range(turns):
            await asyncio.sleep(0)
        assert reader.budget.bytes > len(PACKED_NOISE)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2

    with returning(reader, *clients):
        asyncio.run(scene())


def test_compressed_input_over_the_limit_is_refused() -> None:
    """As by its Content-Length: these blocks stand for no bytes, so the limit on the result never holds."""
    empty_blocks = b"x\x01" + b"\0\0\0\xff\xff" * 30
    with pytest.raises(TooLargeError, match=r"expected at most 100 bytes \(--max-body\), got more"):
        read(
            Client(*[part(empty_blocks[at : at + 10], more=True) for at in range(0, 150, 10)], GONE),
            encoding="deflate",
        )


def test_a_body_may_not_be_compressed_by_any_ratio() -> None:
    """The error gives the ratio after little more than the size that may have any."""
    reader = bomb_reader(max_ratio=200)
    client = Client(part(BOMB)).sending("deflate")
    with pytest.raises(
        TooLargeError,
        match=r"body: expected at most 200 bytes for each compressed byte \(--max-inflate-ratio\), got",
    ) as raised:
        asyncio.run(reader.read(client))
    assert raised.value.status == 413
    assert ANY_RATIO_BYTES < client.budgeted_bytes <= ANY_RATIO_BYTES + SLICE_BYTES
    assert f"got {client.budgeted_bytes} for " in str(raised.value)
    assert str(raised.value).endswith("; send it without compression")


def test_ratios_of_real_bodies_are_accepted() -> None:
    """A small body may have any ratio. The large ones are one row 400 times, and zeros with a few ones."""
    numbers = np.random.default_rng(0)
    row = b",".join(b"%.6f" % value for value in numbers.random(784))
    sparse = np.where(numbers.random(500_000) < 0.01, 1.0, 0.0).astype(np.float32)
    bodies = [bytes(ANY_RATIO_BYTES), b",".join([row] * 400), sparse.tobytes()]
    assert all(len(body) > ANY_RATIO_BYTES for body in bodies[1:])
    for body in bodies:
        reader = body_reader(16 << 20, limit=16 << 20, seconds=60)
        client = Client(part(zlib.compress(body, 9))).sending("deflate")
        assert asyncio.run(reader.read(client)) == body


def test_the_time_limit_holds_during_decompression() -> None:
    """The body has arrived in time, but it is not decompressed in time."""
    reader = bomb_reader(seconds=0.001)
    client = Client(part(BOMB)).sending("deflate")
    with pytest.raises(RequestTimeoutError, match=r"expected all of it within 0.001 seconds"):
        asyncio.run(reader.read(client))
    assert client.budgeted_bytes < BOMB_BYTES


def test_decompression_stops_when_the_client_has_gone() -> None:
    reader = bomb_reader()
    client = Client(part(BOMB)).sending("deflate")

    def leave() -> None:
        client.client_gone = reader.budget.bytes >= 3 * SLICE_BYTES

    with pytest.raises(ClientGoneError):
        asyncio.run(turns_during(reader.read(client), leave))
    assert client.budgeted_bytes <= 4 * SLICE_BYTES
