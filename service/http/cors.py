"""Cross-origin requests (CORS): Starlette's rules, with errors as JSON."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response as StarletteResponse
from starlette.types import Receive, Scope, Send

from turnpike.service.requests.request import Request
from turnpike.service.requests.response import MAX_QUOTED_LENGTH, ErrorResponse, Response

METHODS = ("GET", "POST")
EXPOSED_HEADERS = ("Inference-Header-Content-Length", "X-Request-Id", "Retry-After")


class Cors:
    """Answers preflight requests, and adds headers to answers for allowed origins."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._rules = CORSMiddleware(
            _no_application,
            allow_origins=list(origins),
            allow_methods=METHODS,
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )

    def apply(self, request: Request) -> Response | None:
        """The answer to a preflight request; None for others, whose answer gets CORS headers if needed."""
        fields = request.head.fields
        if b"origin" not in fields:
            return None
        if request.head.method == "OPTIONS" and b"access-control-request-method" in fields:
            return self._preflight(Headers(raw=request.head.headers))
        headers = MutableHeaders(self._rules.simple_headers)
        origin = fields[b"origin"].decode("latin-1")
        if (self._rules.allow_all_origins and b"cookie" in fields) or (
            not self._rules.allow_all_origins and self._rules.is_allowed_origin(origin)
        ):
            self._rules.allow_explicit_origin(headers, origin)
        request.extra_lines = _lines(headers)
        return None

    def _preflight(self, headers: Headers) -> Response:
        answer: StarletteResponse = self._rules.preflight_response(headers)
        if answer.status_code == 200:
            return Response(bytes(answer.body), _lines(answer.headers))
        origin = headers["origin"][:MAX_QUOTED_LENGTH]
        message = f"origin {origin!r}: expected an origin, method and headers that are allowed here"
        return ErrorResponse(answer.status_code, "bad_request", message, ((b"vary", b"Origin"),))


def _lines(headers: Headers) -> bytes:
    return b"".join(
        b"%b: %b\r\n" % (name, value) for name, value in headers.raw if name.lower() != b"content-length"
    )


async def _no_application(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("only the rules of CORSMiddleware are used")
