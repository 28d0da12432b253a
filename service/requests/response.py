"""Responses: a status, header lines and a body."""

from __future__ import annotations

import http

import orjson

# names in lower case, and values
Headers = tuple[tuple[bytes, bytes], ...]

# a response body, and the number of its bytes that are JSON (None if all are, without binary tensors)
ResponseBody = tuple[bytes, int | None]

JSON_LINES = b"content-type: application/json\r\n"
BINARY_LINES = b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"
# larger answers count against the memory budget until the client has read them; smaller ones fit into the
# write buffer of a transport (64 KiB)
LARGE_RESPONSE_BYTES = 1 << 16
# characters of a path or value from the caller that an error message quotes
MAX_QUOTED_LENGTH = 80

STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n"
    % (status, http.HTTPStatus(status).phrase.encode() if status in set(http.HTTPStatus) else b"")
    for status in range(100, 600)
}


class Response:
    """A whole response. `lines` are its header lines, without those that every response has."""

    __slots__ = ("body", "close", "lines", "status")

    # whether its body may be compressed, if the client accepts that
    compressible = True

    def __init__(
        self, body: bytes, lines: bytes = JSON_LINES, status: int = 200, *, close: bool = False
    ) -> None:
        self.body = body
        self.lines = lines
        self.status = status
        # whether the connection ends with this answer
        self.close = close


class UncompressedResponse(Response):
    """A response that is never compressed: to a request that tritonclient sends.

    The one for asyncio says of all its requests that it accepts gzip, and decompresses only the answers to
    infer.
    """

    __slots__ = ()
    compressible = False


class ErrorResponse(Response):
    """The answer to an error: `{"error": message}`."""

    __slots__ = ("headers", "is_bug", "message", "reason")

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        headers: Headers = (),
        *,
        close: bool = False,
        is_bug: bool = False,
    ) -> None:
        lines = JSON_LINES + b"".join(b"%b: %b\r\n" % header for header in headers)
        super().__init__(orjson.dumps({"error": message}), lines, status, close=close)
        # beside those of JSON, such as Retry-After
        self.headers = headers
        # label in the metrics
        self.reason = reason
        self.message = message
        # an unexpected exception, which is logged with its traceback
        self.is_bug = is_bug


def body_response(body: ResponseBody) -> Response:
    """The response with this body: JSON, or JSON followed by the bytes of tensors."""
    content, json_length = body
    return Response(content, JSON_LINES if json_length is None else BINARY_LINES % json_length)
