"""What a request that failed is answered with: one sentence of ours, whatever it was that failed."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from service.errors import OverloadedError, RequestError, RequestTimeoutError, UnauthorizedError
from service.http.request_context import CLOSE

Headers = tuple[tuple[bytes, bytes], ...]

# of what a caller sent, as much as is said back
SHOWN = 80


@dataclass(frozen=True, slots=True)
class Refusal:
    """Status, sentence and headers of an error, and the word that it is counted by."""

    status: int
    reason: str
    sentence: str
    headers: Headers = ()
    # nobody foresaw it, so the log has to say all there is to know
    internal: bool = False

    @property
    def body(self) -> bytes:
        return orjson.dumps({"error": self.sentence})

    @property
    def own_headers(self) -> Headers:
        """All headers of its answer but those that every answer has."""
        length = b"%d" % len(self.body)
        return ((b"content-type", b"application/json"), (b"content-length", length), *self.headers)


def refusal(error: Exception, scope: Scope, request_id: str) -> Refusal:
    """The refusal that stands for an error; of what is not for callers it says nothing."""
    if isinstance(error, RequestError):
        return Refusal(error.status, error.reason, str(error), _headers(error))
    if isinstance(error, RequestValidationError):
        return Refusal(400, "bad_request", _invalid(error))
    if isinstance(error, HTTPException):
        return _routing(error, scope)
    return Refusal(500, "broken", f"internal error, request id {request_id}", internal=True)


def _headers(error: RequestError) -> Headers:
    if isinstance(error, OverloadedError):
        return ((b"retry-after", b"%d" % max(1, error.retry_after)),)
    if isinstance(error, UnauthorizedError):
        return ((b"www-authenticate", b'Bearer realm="turnpike"'),)
    if isinstance(error, RequestTimeoutError):
        # the rest of what it was sending would be taken for the next request
        return (CLOSE,)
    return ()


def path_of(scope: Scope) -> str:
    """The path as it was sent, with whatever is not printable escaped; nothing in it can forge a line."""
    return scope["raw_path"].decode("latin-1")


def _routing(error: HTTPException, scope: Scope) -> Refusal:
    asked = f"{scope['method']} {path_of(scope)[:SHOWN]}"
    if error.status_code == 404:
        return Refusal(404, "unknown", f"{asked}: there is no such route")
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return Refusal(
            405,
            "method",
            f"{asked}: expected the method {allowed}",
            ((b"allow", allowed.encode()),),
        )
    return Refusal(error.status_code, "bad_request", f"{asked}: this request cannot be understood")


def _invalid(error: RequestValidationError) -> str:
    """The first of the fields that make no sense, with what was expected in its place."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where}: expected a value, got none"
    expected = str(first["msg"])
    if not expected.startswith("Input should be "):
        return f"{where}: expected another value"
    return (
        f"{where}: expected {expected.removeprefix('Input should be ')}, got {str(first['input'])[:SHOWN]!r}"
    )
