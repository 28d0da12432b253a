"""Files for browsers: read and compressed once, with an ETag, and sent in small pieces."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnpike.service.http.accept import preferred_encoding

# bytes of a response body that are sent at a time
CHUNK_SIZE = 1 << 14
REVALIDATE = "no-cache"
CACHE_FOREVER = "public, max-age=31536000, immutable"
# of all pages: nothing is loaded from, sent to or shown in other servers' pages
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class CompressedFile:
    """Content of a file: compressed with gzip, its original size in bytes, and an ETag of the content."""

    data: bytes
    size: int
    etag: str


class StaticFile:
    """A file that is read and compressed on the first request and then kept in memory: an ASGI application.

    Args:
        media_type: The value of Content-Type.
        read: Returns the content. It is called in a thread.
        version: The version that a URL may name as `?v=` to be cached for ever.
        headers: More headers of its answers.
        vary: The headers of a request that the answer depends on.
    """

    def __init__(
        self,
        media_type: str,
        read: Callable[[], bytes],
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
        vary: str = "Accept-Encoding",
    ) -> None:
        self._read = read
        self._version = version
        self._headers = {**(headers or {}), "Content-Type": media_type, "Vary": vary}
        self._file: CompressedFile | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._response(Request(scope))
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        """The file, compressed if the client accepts gzip, or 304 if the client already has it."""
        file = self._file
        if file is None:
            file = self._file = await asyncio.to_thread(_compress, self._read)
        versioned = self._version is not None and request.query_params.get("v") == self._version
        headers = {
            **self._headers,
            "Cache-Control": CACHE_FOREVER if versioned else REVALIDATE,
            "ETag": file.etag,
        }
        if _has_current(request.headers, file.etag):
            return Response(status_code=304, headers=headers)
        if preferred_encoding(request.headers.get("accept-encoding", ""), ("gzip",)):
            headers["Content-Encoding"] = "gzip"
            return _streamed(_chunks(file.data), len(file.data), headers)
        return _streamed(_decompressed(file.data), file.size, headers)


def _compress(read: Callable[[], bytes]) -> CompressedFile:
    data = read()
    return CompressedFile(gzip.compress(data, mtime=0), len(data), f'W/"{sha256(data).hexdigest()[:32]}"')


def _streamed(chunks: AsyncIterator[bytes], size: int, headers: dict[str, str]) -> Response:
    return StreamingResponse(chunks, headers=headers | {"Content-Length": str(size)})


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    """Small pieces of the data, so that a client that reads slowly does not keep a second copy in memory."""
    for start in range(0, len(data), CHUNK_SIZE):
        yield data[start : start + CHUNK_SIZE]


async def _decompressed(data: bytes) -> AsyncIterator[bytes]:
    """For the few clients without gzip; keeping the original as well would cost memory in every worker."""
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    async for chunk in _chunks(data):
        yield decompressor.decompress(chunk)


def _has_current(headers: Headers, etag: str) -> bool:
    """Whether If-None-Match names this ETag."""
    known = headers.get("if-none-match", "").split(",")
    return etag.removeprefix("W/") in (tag.strip().removeprefix("W/") for tag in known)
