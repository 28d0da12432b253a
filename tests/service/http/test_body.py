"""Bodies on their way in: whole, or refused as soon as it is known that they will not do."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import warnings
import zlib
from collections.abc import Awaitable, Callable
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
from service.http.body import ClientGoneError, MemoryBudget

GONE: Message = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Client:
    """Sends its messages one after the other, each after `wait` seconds, then never again."""

    def __init__(self, *messages: Message, wait: float | None = None) -> None:
        self.messages, self.wait = list(messages), wait

    async def __call__(self) -> Message:
        if self.wait is not None:
            await asyncio.sleep(self.wait)
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)


def told(encoding: str | None = None, length: int | None = None) -> dict[bytes, bytes]:
    """The headers."""
    headers = {} if encoding is None else {b"content-encoding": encoding.encode()}
    return headers if length is None else headers | {b"content-length": str(length).encode()}


def read(client: Client, held: MemoryBudget | None = None, **headers: Any) -> bytes:
    """The body that is read; afterwards nothing is held, whatever came of it."""
    held = held or MemoryBudget(1000, limit=100, seconds=5)

    async def story() -> bytes:
        async with held.body(told(**headers), client) as body:
            assert held.bytes == len(body)
            return body

    try:
        return asyncio.run(story())
    finally:
        assert held.bytes == 0


@pytest.mark.parametrize("wait", [None, 0, 0.001])
def test_a_body_is_read_whole(wait: float | None) -> None:
    """In one part or many, there at once or later."""
    assert read(Client(part(b"abc"), wait=wait), length=3) == b"abc"
    assert read(Client(part(b"a", more=True), part(b"", more=True), part(b"bc"), wait=wait)) == b"abc"
    assert read(Client(part(b""), wait=wait)) == b""
    assert read(Client({"type": "http.request"}, wait=wait)) == b""


def test_a_body_that_is_there_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit costs nothing where nothing is waited for."""

    def timer(seconds: float) -> None:
        raise AssertionError

    monkeypatch.setattr(asyncio, "timeout", timer)
    assert read(Client(part(b"abc"))) == b"abc"


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    """Nothing is asked of a client whose Content-Length is over the limit."""
    client = Client(part(b"x" * 101))
    with pytest.raises(TooLargeError, match="body: expected at most 100 bytes, got 101") as caught:
        read(client, length=101)
    assert caught.value.status == 413
    assert len(client.messages) == 1
    assert len(read(Client(part(b"x" * 100)), length=100)) == 100


def test_a_body_that_turns_out_too_large_is_read_no_further() -> None:
    """At the first part beyond the limit, whatever its Content-Length was."""
    client = Client(part(b"x" * 60, more=True), part(b"x" * 41, more=True), part(b"x"))
    with pytest.raises(TooLargeError, match="got more"):
        read(client)
    assert len(client.messages) == 1
    with pytest.raises(TooLargeError, match="got more"):
        read(Client(part(b"x" * 101)))


@pytest.mark.parametrize("wait", [None, 0.03])
def test_a_body_that_takes_too_long_is_given_up(wait: float | None) -> None:
    """The limit is on the whole, so that a drip of bytes does not renew it."""
    parts = [part(b"x", more=True)] * (1 if wait is None else 50)
    with pytest.raises(RequestTimeoutError, match=r"body: expected all of it within 0.1 s") as caught:
        read(Client(*parts, wait=wait), MemoryBudget(1000, limit=100, seconds=0.1))
    assert caught.value.status == 408


def test_a_body_that_never_begins_is_given_up() -> None:
    """Headers alone hold nobody for ever."""
    with pytest.raises(RequestTimeoutError):
        read(Client(), MemoryBudget(1000, limit=100, seconds=0.05))


@pytest.mark.parametrize("messages", [(GONE,), (part(b"a", more=True), GONE)])
@pytest.mark.parametrize("wait", [None, 0])
def test_a_client_that_has_gone_gets_no_answer(messages: tuple[Message, ...], wait: float | None) -> None:
    """It is told apart from every error that is answered."""
    with pytest.raises(ClientGoneError):
        read(Client(*messages, wait=wait))
    assert not issubclass(ClientGoneError, RequestError)


def test_a_reader_that_is_cancelled_holds_nothing() -> None:
    """Neither bytes nor a place in what it waits for."""
    held = MemoryBudget(1000, limit=100, seconds=5)

    async def story() -> None:
        async def reading() -> None:
            async with held.body(told(), Client(part(b"abc", more=True), wait=0)):
                raise AssertionError

        task = asyncio.create_task(reading())
        await asyncio.sleep(0.02)
        assert held.bytes == 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held.bytes == 0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(story())


def test_what_all_requests_hold_is_limited() -> None:
    """The body that would be too much is turned away, and fits when another has gone."""
    held = MemoryBudget(10, limit=8, seconds=5)

    async def story() -> None:
        async with held.body(told(), Client(part(b"x" * 6))):
            with pytest.raises(OverloadedError, match="server: as many bytes are held as may be") as caught:
                async with held.body(told(), Client(part(b"x" * 3, more=True), part(b"x" * 3))):
                    raise AssertionError
            assert caught.value.status == 503
            assert held.bytes == 6
            async with held.body(told(), Client(part(b"x" * 4))):
                assert held.bytes == 10
        async with held.body(told(), Client(part(b"x" * 6))):
            assert held.bytes == 6

    asyncio.run(story())


def test_answers_are_held_too() -> None:
    """Those that clients do not read count beside the bodies of others."""
    held = MemoryBudget(10, limit=8, seconds=5)

    async def story() -> None:
        with held.answer(7):
            with pytest.raises(OverloadedError):
                async with held.body(told(), Client(part(b"x" * 4))):
                    raise AssertionError
            with pytest.raises(OverloadedError), held.answer(4):
                raise AssertionError
            async with held.body(told(), Client(part(b"x" * 3))):
                assert held.bytes == 10
        assert held.bytes == 0

    asyncio.run(story())


def test_an_error_inside_gives_the_bytes_back() -> None:
    """Whatever becomes of the request."""
    held = MemoryBudget(10, limit=8, seconds=5)

    async def story() -> None:
        async with held.body(told(), Client(part(b"abc"))):
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(story())
    assert held.bytes == 0


PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_compressed_bodies_are_unpacked(encoding: str, size: int) -> None:
    """Whole or in parts, even byte by byte, and up to just the limit."""
    packed = PACK[encoding](b"abc" * 33 + b"d")
    parts = [part(packed[at : at + size], more=True) for at in range(0, len(packed), size)]
    assert read(Client(*parts, part(b"")), encoding=encoding) == b"abc" * 33 + b"d"
    assert read(Client(part(packed)), encoding=f" {encoding.upper()} ") == b"abc" * 33 + b"d"


def test_identity_is_no_encoding() -> None:
    """It may be named."""
    assert read(Client(part(b"abc")), encoding="identity") == b"abc"


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("size", [101, 50_000_000])
def test_a_bomb_is_unpacked_no_further_than_the_limit(encoding: str, size: int) -> None:
    """One byte too many is 413, and so are fifty million, which are never all made."""
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
def test_damaged_streams_are_refused(encoding: str, spoil: Callable[[bytes], bytes]) -> None:
    """Cut, foreign or followed by something else."""
    with pytest.raises(RequestError, match="body: expected one whole compressed stream") as caught:
        read(Client(part(spoil(PACK[encoding](b"abc" * 20)))), encoding=encoding)
    assert caught.value.status == 400


@pytest.mark.parametrize("encoding", ["br", "gzip, deflate", "zstd", "", "\xff" * 500])
def test_other_encodings_are_not_spoken(encoding: str) -> None:
    """415, and what is spoken."""
    with pytest.raises(
        UnsupportedEncodingError, match="Content-Encoding: expected gzip, deflate or identity, got"
    ) as caught:
        read(Client(part(b"abc")), encoding=encoding)
    assert caught.value.status == 415
    assert len(str(caught.value)) < 500


def test_a_server_may_put_right_what_fails_while_it_waits() -> None:
    """An error or a cancellation reaches the server's own code first, as if it had been awaited plainly."""
    cleaned = []

    async def failing() -> Message:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, OSError())
        try:
            await future
        except OSError:
            await asyncio.sleep(0)
        return GONE

    async def hanging() -> Message:
        try:
            return await asyncio.Event().wait() and GONE
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async def story(receive: Callable[[], Awaitable[Message]]) -> None:
        async with MemoryBudget(1000, limit=100, seconds=0.05).body(told(), receive):
            raise AssertionError

    with pytest.raises(ClientGoneError):
        asyncio.run(story(failing))
    with pytest.raises(RequestTimeoutError):
        asyncio.run(story(hanging))
    assert cleaned == [True]


def test_a_server_that_answers_without_a_coroutine_is_understood() -> None:
    """Any awaitable gives a message, a future too, and so does a coroutine that only steps aside once."""

    async def story(receive: Callable[[], Awaitable[Message]]) -> bytes:
        async with MemoryBudget(1000, limit=100, seconds=5).body(told(), receive) as body:
            return body

    def later() -> asyncio.Future[Message]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        loop.call_soon(future.set_result, part(b"abc"))
        return future

    assert asyncio.run(story(later)) == b"abc"
