"""The body of a request: read whole, within the limits on bytes and time, and decompressed."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

from service.errors import (
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    TooLargeError,
    UnsupportedEncodingError,
)
from service.http.request import Request
from service.protocol.json_document import quoted

# the window bits by which zlib tells the two kinds of stream apart
WINDOW_BITS = {"gzip": 31, "deflate": 15}


class MemoryBudget:
    """The bytes of all bodies and large answers that this worker holds: at most `capacity`.

    One body may have at most `limit` bytes, also when decompressed, and may take `seconds` to arrive.
    """

    def __init__(self, capacity: int, *, limit: int, seconds: float) -> None:
        self.capacity, self.limit, self.seconds = capacity, limit, seconds
        self.bytes = 0

    def take_complete(self, request: Request) -> bytes | None:
        """The body if it is there and not compressed, else None: then `read` it."""
        body = request.complete_body
        if body is None or b"content-encoding" in request.head.fields:
            return None
        if len(body) > self.limit:
            # what comes in chunks is refused at the limit, wherever its end may be
            raise self._too_large("more" if request.head.content_length is None else str(len(body)))
        self._take(request, len(body))
        return body

    async def read(self, request: Request) -> bytes:
        """The whole body. Its bytes are held until `release` is called at the end of the request."""
        announced = request.head.content_length
        if announced is not None and announced > self.limit:
            raise self._too_large(str(announced))
        decompressor = _decompressor(request.head.fields.get(b"content-encoding"))
        deadline = asyncio.get_running_loop().time() + self.seconds
        chunks: list[bytes] = []
        more = True
        while more:
            try:
                chunk, more = await request.next_chunk(deadline)
            except TimeoutError as error:
                raise RequestTimeoutError(f"body: expected all of it within {self.seconds:g} s") from error
            if decompressor is not None:
                chunk = self._decompress(chunk, decompressor, request.held_bytes)
            self._take(request, len(chunk))
            chunks.append(chunk)
        if decompressor is not None and not decompressor.eof:
            raise _damaged()
        return b"".join(chunks)

    def release(self, request: Request) -> None:
        """Hold the request's body no longer."""
        self.bytes -= request.held_bytes
        request.held_bytes = 0

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold an answer of this size while it is sent; raises OverloadedError if there is no room."""
        self._check_room(size)
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size

    def _take(self, request: Request, size: int) -> None:
        if request.held_bytes + size > self.limit:
            raise self._too_large("more")
        self._check_room(size)
        self.bytes += size
        request.held_bytes += size

    def _check_room(self, size: int) -> None:
        if self.bytes + size > self.capacity:
            raise OverloadedError("server: as many bytes are held as may be; try again")

    def _too_large(self, size: str) -> TooLargeError:
        return TooLargeError(f"body: expected at most {self.limit} bytes, got {size}")

    def _decompress(self, chunk: bytes, decompressor: Any, taken: int) -> bytes:
        try:
            # one byte more than allowed shows that there are too many
            data: bytes = decompressor.decompress(chunk, self.limit - taken + 1)
        except zlib.error as error:
            raise _damaged() from error
        if decompressor.unused_data:
            raise _damaged()
        return data


def _decompressor(encoding: bytes | None) -> Any:
    """The zlib object that decompresses a body; None if it is not compressed."""
    if encoding is None:
        return None
    name = encoding.decode("latin-1").strip().lower()
    if name == "identity":
        return None
    if name not in WINDOW_BITS:
        raise UnsupportedEncodingError(
            f"Content-Encoding: expected gzip, deflate or identity, got {quoted(name)}"
        )
    return zlib.decompressobj(WINDOW_BITS[name])


def _damaged() -> RequestError:
    return RequestError("body: expected one whole compressed stream, got a damaged one")
