"""Reading request bodies: whole, or refused as soon as they prove to be too large, late or damaged."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from starlette.types import Message

from tests.support.body_clients import GONE, Client, body_reader, part, read, reading
from tests.support.fake_request import FakeRequest
from turnpike.service.errors import (
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    TooLargeError,
)
from turnpike.service.requests.request import ClientGoneError


def test_a_chunked_body_over_the_limit_is_refused() -> None:
    """A chunked body announces no length, so the error names none, even if all chunks have arrived."""
    reader = body_reader(1000, limit=100, seconds=5)
    for length, size in ((None, "more"), (101, "101")):
        request = FakeRequest("POST", "/", b"x" * 101, content_length=length)
        with pytest.raises(TooLargeError, match=rf"expected at most 100 bytes \(--max-body\), got {size}"):
            reader.take_complete(request)
    assert reader.budget.bytes == 0


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
    with pytest.raises(
        TooLargeError, match=r"body: expected at most 100 bytes \(--max-body\), got 101"
    ) as raised:
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
    with pytest.raises(
        RequestTimeoutError,
        match=r"body: expected all of it within 0.1 seconds \(--body-seconds\), got only a part",
    ) as raised:
        read(Client(*parts, wait=wait), body_reader(1000, limit=100, seconds=0.1))
    assert raised.value.status == 408


def test_a_missing_body_times_out() -> None:
    """A client that sends only headers must not occupy the server for ever."""
    with pytest.raises(RequestTimeoutError):
        read(Client(), body_reader(1000, limit=100, seconds=0.05))


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
    reader = body_reader(1000, limit=100, seconds=5)

    async def scene() -> None:
        async def read_it() -> None:
            async with reading(reader, Client(part(b"abc", more=True), wait=0)):
                raise AssertionError

        task = asyncio.create_task(read_it())
        await asyncio.sleep(0.02)
        assert reader.budget.bytes == 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert reader.budget.bytes == 0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(scene())


def test_the_budget_limits_the_bodies_of_all_requests() -> None:
    """A body beyond the budget is refused, and fits when another request has ended."""
    reader = body_reader(10, limit=8, seconds=5)

    async def scene() -> None:
        async with reading(reader, Client(part(b"x" * 6))):
            with pytest.raises(
                OverloadedError, match=r"server: the memory for requests \(--max-held\) is used up"
            ) as raised:
                async with reading(reader, Client(part(b"x" * 3, more=True), part(b"x" * 3))):
                    raise AssertionError
            assert raised.value.status == 503
            assert reader.budget.bytes == 6
            async with reading(reader, Client(part(b"x" * 4))):
                assert reader.budget.bytes == 10
        async with reading(reader, Client(part(b"x" * 6))):
            assert reader.budget.bytes == 6

    asyncio.run(scene())


def test_unread_responses_count_in_the_budget() -> None:
    """Answers that clients have not read count in the same budget as the bodies of other requests."""
    reader = body_reader(10, limit=8, seconds=5)

    async def scene() -> None:
        with reader.budget.hold(7):
            with pytest.raises(OverloadedError):
                async with reading(reader, Client(part(b"x" * 4))):
                    raise AssertionError
            with pytest.raises(OverloadedError), reader.budget.hold(4):
                raise AssertionError
            async with reading(reader, Client(part(b"x" * 3))):
                assert reader.budget.bytes == 10
        assert reader.budget.bytes == 0

    asyncio.run(scene())


def test_an_error_returns_the_bytes_to_the_budget() -> None:
    reader = body_reader(10, limit=8, seconds=5)

    async def scene() -> None:
        async with reading(reader, Client(part(b"abc"))):
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(scene())
    assert reader.budget.bytes == 0


def complete(body: bytes, *headers: tuple[bytes, bytes]) -> FakeRequest:
    return FakeRequest("POST", "/", body, headers=list(headers), content_length=len(body))


def test_a_complete_body_is_taken_without_waiting() -> None:
    """It counts in the budget until the request is released, and the same limits hold."""
    reader = body_reader(10, limit=8, seconds=5)
    first, second = complete(b"x" * 7), complete(b"x" * 4)
    assert reader.take_complete(first) == b"x" * 7
    with pytest.raises(OverloadedError):
        reader.take_complete(second)
    assert reader.budget.bytes == 7
    reader.budget.release(first)
    assert reader.budget.bytes == 0
    assert reader.take_complete(second) == b"x" * 4
    with pytest.raises(TooLargeError, match=r"body: expected at most 8 bytes \(--max-body\), got 9"):
        reader.take_complete(complete(b"x" * 9))


def test_compressed_and_incomplete_bodies_are_not_taken() -> None:
    reader = body_reader(100, limit=80, seconds=5)
    assert reader.take_complete(FakeRequest("POST", "/", b"ab", b"c")) is None
    assert reader.take_complete(complete(b"abc", (b"content-encoding", b"identity"))) is None
    assert reader.budget.bytes == 0
