"""The response to each kind of error.

A RequestError has its status and message. Errors of routing get a message of our own. Any other exception
becomes a 500 that gives only the request id.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException

from turnpike.service.errors import OverloadedError, RequestError, RequestTimeoutError, UnauthorizedError
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import MAX_QUOTED_LENGTH, ErrorResponse, Headers


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
