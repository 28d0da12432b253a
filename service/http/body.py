"""Reads and decompresses the body of a request, within limits on bytes, time and the memory of the worker."""

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

# the argument `wbits` of zlib for each Content-Encoding
WINDOW_BITS = {"gzip": 31, "deflate": 15}


class MemoryBudget:
    """Limits the bytes of all request bodies and large answers in this worker's memory to `capacity`.

    One body may have at most `limit` bytes, also when decompressed, and may take `seconds` to arrive.
    """

    def __init__(self, capacity: int, *, limit: int, seconds: float) -> None:
        self.capacity, self.limit, self.seconds = capacity, limit, seconds
        self.bytes = 0

    def take_complete(self, request: Request) -> bytes | None:
        """The body if all of it has arrived and it is not compressed; else None, then call `read`."""
        body = request.complete_body
        if body is None or b"content-encoding" in request.head.fields:
            return None
        size = len(body)
        if size > self.limit:
            # a body in chunks is refused as soon as it exceeds the limit, so its full size is not known
            raise self._too_large("more" if request.head.content_length is None else str(size))
        if self.bytes + size > self.capacity:
            raise self._used_up()
        self.bytes += size
        request.budgeted_bytes = size
        return body

    async def read(self, request: Request) -> bytes:
        """Wait for the whole body. Its bytes count against the budget until `release` is called."""
        content_length = request.head.content_length
        if content_length is not None and content_length > self.limit:
            raise self._too_large(str(content_length))
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
                chunk = self._decompress(chunk, decompressor, request.budgeted_bytes)
            self._take(request, len(chunk))
            chunks.append(chunk)
        if decompressor is not None and not decompressor.eof:
            raise _damaged()
        return b"".join(chunks)

    def release(self, request: Request) -> None:
        """Give the bytes of the request's body back to the budget."""
        self.bytes -= request.budgeted_bytes
        request.budgeted_bytes = 0

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Count an answer of this size against the budget while it is sent. Raises OverloadedError."""
        if self.bytes + size > self.capacity:
            raise self._used_up()
        self.bytes += size
        try:
            yield
        finally:
            self.bytes -= size

    def _take(self, request: Request, size: int) -> None:
        if request.budgeted_bytes + size > self.limit:
            raise self._too_large("more")
        if self.bytes + size > self.capacity:
            raise self._used_up()
        self.bytes += size
        request.budgeted_bytes += size

    def _used_up(self) -> OverloadedError:
        return OverloadedError("server: the memory budget for requests is used up; try again")

    def _too_large(self, size: str) -> TooLargeError:
        return TooLargeError(f"body: expected at most {self.limit} bytes, got {size}")

    def _decompress(self, chunk: bytes, decompressor: Any, size_so_far: int) -> bytes:
        try:
            # one byte more than allowed is enough to notice that a body is too large
            data: bytes = decompressor.decompress(chunk, self.limit - size_so_far + 1)
        except zlib.error as error:
            raise _damaged() from error
        if decompressor.unused_data:
            raise _damaged()
        return data


def _decompressor(encoding: bytes | None) -> Any:
    """The zlib object for a Content-Encoding; None if the body is not compressed."""
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
