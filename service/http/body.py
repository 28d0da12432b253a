"""The body of a request: read whole, within its limits of bytes and time, decompressed."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Generator, Iterator, Mapping
from types import coroutine
from typing import Any

from starlette.types import Message, Receive

from service.errors import (
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    TooLargeError,
    UnsupportedEncodingError,
)
from service.protocol.json_document import quoted

# how zlib calls the two kinds of stream
STREAMS = {"gzip": 31, "deflate": 15}


class ClientGoneError(Exception):
    """The client closed the connection before its request was whole; nobody waits for an answer."""


class MemoryBudget:
    """What all requests and answers of this worker hold: at most `most` bytes, one body at most `limit`.

    A body that takes longer than `seconds` to arrive is not waited for.
    """

    def __init__(self, most: int, *, limit: int, seconds: float) -> None:
        self.most, self.limit, self.seconds = most, limit, seconds
        self.bytes = 0

    def body(self, headers: Mapping[bytes, bytes], receive: Receive) -> IncomingBody:
        """The request's body as an async context, which holds its bytes until it is left."""
        return IncomingBody(self, headers, receive)

    def whole(self, body: bytes) -> CompleteBody:
        """The same of a body that is there."""
        return CompleteBody(self, body)

    @contextlib.contextmanager
    def answer(self, size: int) -> Iterator[None]:
        """Hold an answer of so many bytes until it is sent; Overloaded where that would be too many."""
        self.expect_room(size)
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size

    def too_large(self, got: str) -> TooLargeError:
        return TooLargeError(f"body: expected at most {self.limit} bytes, got {got}")

    def expect_room(self, size: int) -> None:
        """Stop with Overloaded where so many bytes more would be too many."""
        if self.bytes + size > self.most:
            raise OverloadedError("server: as many bytes are held as may be; try again")


class CompleteBody:
    """A body that has arrived, as it is."""

    __slots__ = ("_body", "_held")

    def __init__(self, held: MemoryBudget, body: bytes) -> None:
        self._held, self._body = held, body

    async def __aenter__(self) -> bytes:
        held, size = self._held, len(self._body)
        if size > held.limit:
            raise held.too_large(str(size))
        held.expect_room(size)
        held.bytes += size
        return self._body

    async def __aexit__(self, *error: object) -> None:
        self._held.bytes -= len(self._body)


class IncomingBody:
    """One body on its way in."""

    __slots__ = ("_bytes", "_headers", "_held", "_receive")

    def __init__(self, held: MemoryBudget, headers: Mapping[bytes, bytes], receive: Receive) -> None:
        self._held, self._headers, self._receive = held, headers, receive
        self._bytes = 0

    async def __aenter__(self) -> bytes:
        try:
            return await self._read()
        except BaseException:
            self._free()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._free()

    def _free(self) -> None:
        self._held.bytes -= self._bytes
        self._bytes = 0

    async def _read(self) -> bytes:
        headers = self._headers
        self._expect_length(headers.get(b"content-length"))
        encoding = headers.get(b"content-encoding")
        stream = None if encoding is None else _stream(encoding)
        message, waiting = _begun(self._receive())
        # most bodies are there at once, and need no timer
        if stream is None and message is not None and _is_whole(message):
            return self._taken(message.get("body", b""))
        try:
            async with asyncio.timeout(self._held.seconds):
                return await self._rest(message or await waiting, stream)
        except TimeoutError as error:
            raise RequestTimeoutError(f"body: expected all of it within {self._held.seconds:g} s") from error

    async def _rest(self, message: Message, stream: Any) -> bytes:
        """The body that begins with a message, and goes on in those after it."""
        parts = []
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            parts.append(self._taken(part if stream is None else self._inflated(part, stream)))
            if not message.get("more_body"):
                break
            message = await self._receive()
        if stream is not None and not stream.eof:
            raise _damaged()
        return b"".join(parts)

    def _inflated(self, part: bytes, stream: Any) -> bytes:
        try:
            # one byte more than there may be tells that there are too many
            data: bytes = stream.decompress(part, self._held.limit - self._bytes + 1)
        except zlib.error as error:
            raise _damaged() from error
        if stream.unused_data:
            raise _damaged()
        return data

    def _taken(self, part: bytes) -> bytes:
        """Count the bytes as held."""
        held = self._held
        if self._bytes + len(part) > held.limit:
            raise held.too_large("more")
        held.expect_room(len(part))
        held.bytes += len(part)
        self._bytes += len(part)
        return part

    def _expect_length(self, given: bytes | None) -> None:
        if given is not None and int(given) > self._held.limit:
            raise self._held.too_large(str(int(given)))


def _stream(encoding: bytes) -> Any:
    """What decompresses a body; None where nothing is to be done."""
    name = encoding.decode("latin-1").strip().lower()
    if name == "identity":
        return None
    if name not in STREAMS:
        raise UnsupportedEncodingError(
            f"Content-Encoding: expected gzip, deflate or identity, got {quoted(name)}"
        )
    return zlib.decompressobj(STREAMS[name])


def _is_whole(message: Message) -> bool:
    return message["type"] == "http.request" and not message.get("more_body")


def _damaged() -> RequestError:
    return RequestError("body: expected one whole compressed stream, got a damaged one")


def _begun(coming: Awaitable[Message]) -> tuple[Message | None, Awaitable[Message]]:
    """A message where it is there already; else what is to be awaited for it."""
    steps = coming.__await__()
    try:
        pending = next(steps)
    except StopIteration as done:
        return done.value, coming
    return None, _resumed(steps, pending)


@coroutine
def _resumed(steps: Generator[Any, Any, Message], pending: Any) -> Generator[Any, Any, Message]:
    """Go on as `await` would have done, from what the first step waits for."""
    try:
        while True:
            try:
                yield pending
            except BaseException as error:
                pending = steps.throw(error)
            else:
                pending = next(steps)
    except StopIteration as done:
        return done.value
