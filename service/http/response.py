"""Answers: their bytes on the wire, and what each error is answered with.

RequestError and its kinds become their status and message, errors of routing and validation a sentence of
ours, and everything else a 500 that names only the request id.
"""

from __future__ import annotations

import http

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service.errors import OverloadedError, RequestError, RequestTimeoutError, UnauthorizedError
from service.http.request import Request

# a response body, and how many bytes of it are JSON if the bytes of tensors follow (else None)
ResponseBody = tuple[bytes, int | None]

JSON_LINES = b"content-type: application/json\r\n"
BINARY_LINES = b"content-type: application/octet-stream\r\ninference-header-content-length: %d\r\n"
# larger answers count against the memory budget until the client has read them; smaller ones fit into the
# write buffer of a transport (64 KiB)
LARGE_RESPONSE_BYTES = 1 << 16
# how much of the path or value that a caller sent is quoted in an error message
MAX_QUOTED_LENGTH = 80

STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n"
    % (status, http.HTTPStatus(status).phrase.encode() if status in set(http.HTTPStatus) else b"")
    for status in range(100, 600)
}


class Response:
    """A whole answer. `lines` are its header lines other than those that every answer has."""

    __slots__ = ("body", "close", "lines", "status")

    def __init__(
        self, body: bytes, lines: bytes = JSON_LINES, status: int = 200, *, close: bool = False
    ) -> None:
        self.body = body
        self.lines = lines
        self.status = status
        # whether the connection ends with this answer
        self.close = close


class ErrorResponse(Response):
    """The answer to an error: `{"error": message}`."""

    __slots__ = ("is_bug", "message", "reason")

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        lines: bytes = b"",
        *,
        close: bool = False,
        is_bug: bool = False,
    ) -> None:
        super().__init__(orjson.dumps({"error": message}), JSON_LINES + lines, status, close=close)
        # the word that metrics count it under
        self.reason = reason
        self.message = message
        # not foreseen: the log needs the traceback
        self.is_bug = is_bug


def body_response(body: ResponseBody) -> Response:
    """The answer with this body: JSON, or JSON followed by the bytes of tensors."""
    content, json_length = body
    return Response(content, JSON_LINES if json_length is None else BINARY_LINES % json_length)


def error_response(error: Exception, request: Request) -> ErrorResponse:
    """What an error is answered with; the text of a foreign exception is never sent."""
    if isinstance(error, RequestError):
        return ErrorResponse(
            error.status,
            error.reason,
            str(error),
            _lines(error),
            # the rest of a body that is too slow would be taken for the next request
            close=isinstance(error, RequestTimeoutError),
        )
    if isinstance(error, RequestValidationError):
        return ErrorResponse(400, "bad_request", _first_invalid_field(error))
    if isinstance(error, HTTPException):
        return _routing_error(error, request)
    return ErrorResponse(500, "broken", f"internal error, request id {request.id}", is_bug=True)


def _lines(error: RequestError) -> bytes:
    if isinstance(error, OverloadedError):
        return b"retry-after: %d\r\n" % max(1, error.retry_after)
    if isinstance(error, UnauthorizedError):
        return b'www-authenticate: Bearer realm="turnpike"\r\n'
    return b""


def _routing_error(error: HTTPException, request: Request) -> ErrorResponse:
    # a path is quoted as it was sent, with its escapes, so that nothing in it can forge a log line
    target = f"{request.head.method} {request.head.raw_path[:MAX_QUOTED_LENGTH]}"
    if error.status_code == 404:
        return ErrorResponse(404, "unknown", f"{target}: there is no such route")
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return ErrorResponse(
            405, "method", f"{target}: expected the method {allowed}", b"allow: %b\r\n" % allowed.encode()
        )
    return ErrorResponse(error.status_code, "bad_request", f"{target}: this request cannot be understood")


def _first_invalid_field(error: RequestValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{field}: expected a value, got none"
    expected = str(first["msg"])
    if not expected.startswith("Input should be "):
        return f"{field}: expected another value"
    value = str(first["input"])[:MAX_QUOTED_LENGTH]
    return f"{field}: expected {expected.removeprefix('Input should be ')}, got {value!r}"
