"""Reading request bodies: whole, or refused as soon as they prove to be too large, late or damaged."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tracemalloc
import warnings
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.types import Message

from service.errors import (
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    TooLargeError,
    UnsupportedEncodingError,
)
from service.http.body import MemoryBudget
from service.http.request import ClientGoneError, RequestHead
from tests.support.fake_request import FakeRequest

GONE: Message = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Client(FakeRequest):
    """Sends its messages in order, each after `wait` seconds, then nothing more."""

    def __init__(self, *messages: Message, wait: float | None = None) -> None:
        super().__init__("POST")
        self.messages, self.wait = list(messages), wait

    async def next_chunk(self, deadline: float | None = None) -> tuple[bytes, bool]:
        async with asyncio.timeout_at(deadline):
            if self.wait is not None:
                await asyncio.sleep(self.wait)
            if not self.messages:
                await asyncio.Event().wait()
        message = self.messages.pop(0)
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    def sending(self, encoding: str | None = None, length: int | None = None) -> Client:
        """The same client with these headers."""
        headers = [] if encoding is None else [(b"content-encoding", encoding.encode())]
        self.head = RequestHead("POST", "/", "/", b"", headers, content_length=length)
        return self


@contextlib.asynccontextmanager
async def reading(budget: MemoryBudget, client: Client) -> AsyncIterator[bytes]:
    """Read the body; its bytes count in the budget until the end of the block."""
    try:
        yield await budget.read(client)
    finally:
        budget.release(client)


def read(client: Client, budget: MemoryBudget | None = None, **headers: Any) -> bytes:
    """Read a body, and check that the budget holds nothing afterwards, also after an error."""
    budget = budget or MemoryBudget(1000, limit=100, seconds=5)

    async def scene() -> bytes:
        async with reading(budget, client.sending(**headers)) as body:
            assert budget.bytes == len(body)
            return body

    try:
        return asyncio.run(scene())
    finally:
        assert budget.bytes == 0


def test_a_chunked_body_over_the_limit_is_refused() -> None:
    """A chunked body announces no length, so the error names none, even if all chunks have arrived."""
    budget = MemoryBudget(1000, limit=100, seconds=5)
    for length, size in ((None, "more"), (101, "101")):
        request = FakeRequest("POST", "/", b"x" * 101, content_length=length)
        with pytest.raises(TooLargeError, match=f"expected at most 100 bytes, got {size}"):
            budget.take_complete(request)
    assert budget.bytes == 0


@pytest.mark.parametrize("wait", [None, 0, 0.001])
def test_a_body_is_read_in_any_number_of_parts(wait: float | None) -> None:
    """The parts have already been received or are still to come."""
    assert read(Client(part(b"abc"), wait=wait), length=3) == b"abc"
    assert read(Client(part(b"a", more=True), part(b"", more=True), part(b"bc"), wait=wait)) == b"abc"
    assert read(Client(part(b""), wait=wait)) == b""
    assert read(Client({"type": "http.request"}, wait=wait)) == b""


def test_a_content_length_over_the_limit_is_refused_unread() -> None:
    """A Content-Length over the limit is enough to refuse it."""
    client = Client(part(b"x" * 101))
    with pytest.raises(TooLargeError, match="body: expected at most 100 bytes, got 101") as raised:
        read(client, length=101)
    assert raised.value.status == 413
    assert len(client.messages) == 1
    assert len(read(Client(part(b"x" * 100)), length=100)) == 100


def test_reading_stops_at_the_size_limit() -> None:
    """Reading stops at the first part beyond the limit."""
    client = Client(part(b"x" * 60, more=True), part(b"x" * 41, more=True), part(b"x"))
    with pytest.raises(TooLargeError, match="got more"):
        read(client)
    assert len(client.messages) == 1
    with pytest.raises(TooLargeError, match="got more"):
        read(Client(part(b"x" * 101)))


@pytest.mark.parametrize("wait", [None, 0.03])
def test_a_slow_body_times_out(wait: float | None) -> None:
    """The limit is on the whole body: a client that sends a byte now and then does not extend it."""
    parts = [part(b"x", more=True)] * (1 if wait is None else 50)
    with pytest.raises(RequestTimeoutError, match=r"body: expected all of it within 0.1 s") as raised:
        read(Client(*parts, wait=wait), MemoryBudget(1000, limit=100, seconds=0.1))
    assert raised.value.status == 408


def test_a_missing_body_times_out() -> None:
    """A client that sends only headers must not occupy the server for ever."""
    with pytest.raises(RequestTimeoutError):
        read(Client(), MemoryBudget(1000, limit=100, seconds=0.05))


@pytest.mark.parametrize("messages", [(GONE,), (part(b"a", more=True), GONE)])
@pytest.mark.parametrize("wait", [None, 0])
def test_a_disconnected_client_raises_client_gone_error(
    messages: tuple[Message, ...], wait: float | None
) -> None:
    """It is no RequestError because those are sent to the client."""
    with pytest.raises(ClientGoneError):
        read(Client(*messages, wait=wait))
    assert not issubclass(ClientGoneError, RequestError)


def test_a_cancelled_reader_frees_its_memory() -> None:
    """No bytes stay in the budget, and no coroutine is left behind."""
    budget = MemoryBudget(1000, limit=100, seconds=5)

    async def scene() -> None:
        async def read_it() -> None:
            async with reading(budget, Client(part(b"abc", more=True), wait=0)):
                raise AssertionError

        task = asyncio.create_task(read_it())
        await asyncio.sleep(0.02)
        assert budget.bytes == 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert budget.bytes == 0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(scene())


def test_the_budget_limits_the_bodies_of_all_requests() -> None:
    """A body beyond the budget is refused, and fits when another request has ended."""
    budget = MemoryBudget(10, limit=8, seconds=5)

    async def scene() -> None:
        async with reading(budget, Client(part(b"x" * 6))):
            with pytest.raises(
                OverloadedError, match="server: the memory budget for requests is used up"
            ) as raised:
                async with reading(budget, Client(part(b"x" * 3, more=True), part(b"x" * 3))):
                    raise AssertionError
            assert raised.value.status == 503
            assert budget.bytes == 6
            async with reading(budget, Client(part(b"x" * 4))):
                assert budget.bytes == 10
        async with reading(budget, Client(part(b"x" * 6))):
            assert budget.bytes == 6

    asyncio.run(scene())


def test_unread_responses_count_in_the_budget() -> None:
    """Answers that clients have not read count in the same budget as the bodies of other requests."""
    budget = MemoryBudget(10, limit=8, seconds=5)

    async def scene() -> None:
        with budget.hold(7):
            with pytest.raises(OverloadedError):
                async with reading(budget, Client(part(b"x" * 4))):
                    raise AssertionError
            with pytest.raises(OverloadedError), budget.hold(4):
                raise AssertionError
            async with reading(budget, Client(part(b"x" * 3))):
                assert budget.bytes == 10
        assert budget.bytes == 0

    asyncio.run(scene())


def test_an_error_returns_the_bytes_to_the_budget() -> None:
    budget = MemoryBudget(10, limit=8, seconds=5)

    async def scene() -> None:
        async with reading(budget, Client(part(b"abc"))):
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(scene())
    assert budget.bytes == 0


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


def complete(body: bytes, *headers: tuple[bytes, bytes]) -> FakeRequest:
    return FakeRequest("POST", "/", body, headers=list(headers), content_length=len(body))


def test_a_complete_body_is_taken_without_waiting() -> None:
    """It counts in the budget until the request is released, and the same limits hold."""
    budget = MemoryBudget(10, limit=8, seconds=5)
    first, second = complete(b"x" * 7), complete(b"x" * 4)
    assert budget.take_complete(first) == b"x" * 7
    with pytest.raises(OverloadedError):
        budget.take_complete(second)
    assert budget.bytes == 7
    budget.release(first)
    assert budget.bytes == 0
    assert budget.take_complete(second) == b"x" * 4
    with pytest.raises(TooLargeError, match="body: expected at most 8 bytes, got 9"):
        budget.take_complete(complete(b"x" * 9))


def test_compressed_and_incomplete_bodies_are_not_taken() -> None:
    budget = MemoryBudget(100, limit=80, seconds=5)
    assert budget.take_complete(FakeRequest("POST", "/", b"ab", b"c")) is None
    assert budget.take_complete(complete(b"abc", (b"content-encoding", b"identity"))) is None
    assert budget.bytes == 0
