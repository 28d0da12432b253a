"""The outermost layer: each request gets an id, a log line, a place in the counts, and an answer in JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from time import perf_counter_ns
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from service.body import ClientGone
from service.errors import Overloaded
from service.exchange import Exchange, new_ids
from service.log import lines
from service.parts import Parts
from service.refusal import Refusal, path_of, refusal
from service.tracing import Tracing

log = logging.getLogger(__name__)

# what the log and the counts say where the caller left before an answer began; nothing is sent
GONE = 499
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# of a path, as much as is logged
SHOWN = 200
# whoever asks these asks every few seconds
PROBES = ("/live", "/ready")
# what pages of other origins may send and see
ALLOWED = ("GET", "POST")
EXPOSED = ("Inference-Header-Content-Length", "X-Request-Id", "Retry-After")


class Origins(CORSMiddleware):
    """Whose pages may call; it refuses as everything here does."""

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code == 200:
            return answer
        origin = request_headers["origin"][:SHOWN]
        sentence = f"origin {origin!r}: expected an origin, method and headers that are allowed here"
        return JSONResponse({"error": sentence}, answer.status_code, headers={"Vary": "Origin"})


class Door:
    """Stands before the application's routes, in place of the layers that a framework would put there."""

    def __init__(self, app: FastAPI, parts: Parts, tracing: Tracing | None = None) -> None:
        self._app = app
        # the framework's own layers answer errors in ways of their own, and cost more than all of this;
        # of its routing the raw endpoints have no need
        raw = [route for route in app.router.routes if type(route) is Route]
        others = AsyncExitStackMiddleware(app.router)
        self._routes: ASGIApp = Router(raw, redirect_slashes=False, default=others).app
        self._meter = parts.meter
        self._log = parts.settings.access_log
        self._tracing = tracing
        self._ids = new_ids()
        self._enter: ASGIApp = self._serve
        if parts.settings.cors:
            self._enter = Origins(
                self._serve,
                allow_origins=parts.settings.cors,
                allow_methods=ALLOWED,
                allow_headers=("*",),
                expose_headers=EXPOSED,
            )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._enter if scope["type"] == "http" else self._app)(scope, receive, send)

    def refused(self, status: int, sentence: str) -> str:
        """Count what a connection refused before it was a request, and logs itself; gives it an id."""
        self._meter.answered("unknown", "unknown", status, 0)
        self._meter.refused("bad_request")
        return next(self._ids)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send, self._ids)
        exchange.task = asyncio.current_task()
        scope["app"] = self._app
        scope["exchange"] = exchange
        meter = self._meter
        meter.in_flight += 1
        try:
            await self._routes(scope, receive, exchange)
        except (ClientGone, ClientDisconnect):
            pass
        except asyncio.CancelledError:
            if not exchange.abandoned:
                raise
        except Exception as error:
            await self._refuse(error, scope, exchange)
        finally:
            meter.in_flight -= 1
            self._done(scope, exchange)

    async def _refuse(self, error: Exception, scope: Scope, exchange: Exchange) -> None:
        """Answer with an error, unless an answer has begun, which then ends where it is."""
        refused = refusal(error, scope, exchange.id)
        if refused.internal:
            log.error("request %s failed", exchange.id, exc_info=error)
        self._meter.refused(refused.reason)
        exchange.said = refused.sentence
        exchange.turned_away = isinstance(error, Overloaded)
        if not exchange.status:
            await _send(refused, exchange)

    def _done(self, scope: Scope, exchange: Exchange) -> None:
        ns = perf_counter_ns() - exchange.began
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in METHODS else "unknown"
        status = exchange.status or GONE
        self._meter.answered(route, method, status, ns)
        if self._tracing is not None:
            self._tracing.record(exchange, route, method, status, ns)
        if self._log:
            well = status == 200 and route.endswith(PROBES)
            lines.request(_line(scope, exchange, route, status, ns), logging.DEBUG if well else logging.INFO)


async def _send(refused: Refusal, exchange: Exchange) -> None:
    body = refused.body
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *refused.headers,
    ]
    await exchange({"type": "http.response.start", "status": refused.status, "headers": headers})
    await exchange({"type": "http.response.body", "body": body})


def _line(scope: Scope, exchange: Exchange, route: str, status: int, ns: int) -> dict[str, Any]:
    """What the log says of a request."""
    client, trace, answer = scope.get("client"), exchange.trace, exchange.answer
    line: dict[str, Any] = {
        "id": exchange.id,
        "client": client[0] if client else None,
        "method": scope["method"],
        "path": path_of(scope)[:SHOWN],
        "route": route,
        "status": status,
        "ms": ns // 1000 / 1000,
    }
    if trace is not None:
        line["trace"], line["span"] = trace.id, trace.span
    if answer is not None and exchange.model is not None:
        line["model"] = f"{exchange.model.name}/{exchange.model.version}"
        line["queue_ms"] = answer.queue_ns // 1000 / 1000
        line["run_ms"] = answer.run_ns // 1000 / 1000
        line["batch"] = answer.batch
    if exchange.said is not None:
        line["error"] = exchange.said
    return line
