"""Responses: header lines and bodies, and the response to each kind of error.

A RequestError has its status and message. Errors of FastAPI's routing get a message of our own.
Any other exception becomes a 500 that gives only the request id.
"""

from __future__ import annotations

import http

import orjson
from starlette.exceptions import HTTPException

from turnpike.service.errors import OverloadedError, RequestError, RequestTimeoutError, UnauthorizedError
from turnpike.service.requests.request import Request

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


def error_response(error: Exception, request: Request) -> ErrorResponse:
    """The response to an error. The text of an exception from elsewhere is never sent."""
    if isinstance(error, MemoryError):
        error = OverloadedError("server: this worker has no memory left for the request; try again")
    if isinstance(error, RequestError):
        return ErrorResponse(
            error.status,
            error.reason,
            str(error),
            _headers(error),
            # the rest of the slow body would be taken for the next request
            close=isinstance(error, RequestTimeoutError),
        )
    if isinstance(error, HTTPException):
        return _routing_error(error, request)
    return ErrorResponse(500, "broken", f"internal error, request id {request.id}", is_bug=True)


def _headers(error: RequestError) -> Headers:
    if isinstance(error, OverloadedError):
        return ((b"retry-after", b"%d" % max(1, error.retry_after)),)
    if isinstance(error, UnauthorizedError):
        return ((b"www-authenticate", b'Bearer realm="turnpike"'),)
    return ()


def _routing_error(error: HTTPException, request: Request) -> ErrorResponse:
    # the path is quoted as it was sent, with its escapes, so that it cannot contain a line break
    target = f"{request.head.method} {request.head.raw_path[:MAX_QUOTED_LENGTH]}"
    if error.status_code == 404:
        return ErrorResponse(404, "unknown", f"{target}: there is no such route")
    if error.status_code == 405:
        methods = set((error.headers or {}).get("Allow", "").split(", "))
        # every route for GET answers HEAD too
        allowed = sorted(methods | {"HEAD"} if "GET" in methods else methods)
        return ErrorResponse(
            405,
            "method",
            f"{target}: expected the method {' or '.join(allowed)}",
            ((b"allow", ", ".join(allowed).encode()),),
        )
    return ErrorResponse(error.status_code, "bad_request", f"{target}: expected a valid request")
