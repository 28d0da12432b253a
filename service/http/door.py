"""The outermost layer: each request gets an id, a log line, a place in the counts, and an answer in JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
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

from service.api.context import ServiceContext
from service.errors import OverloadedError
from service.http.body import ClientGoneError
from service.http.express import Carrier, Express
from service.http.lane import Lanes
from service.http.refusal import Refusal, path_of, refusal
from service.http.request_context import Course, Exchange, new_ids
from service.http.tracing import Tracing
from service.telemetry.log import access_log

log = logging.getLogger(__name__)

Client = tuple[str, int] | None

# what the log and the counts say where the caller left before an answer began; nothing is sent
GONE = 499
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# of a path, as much as is logged
SHOWN = 200
# whoever asks these asks every few seconds
PROBES = ("/live", "/ready")
# what pages of other origins may send and see
ALLOWED = ("GET", "POST")
# headers of requests that go the ordinary way
ODD = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"})
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

    def __init__(self, app: FastAPI, parts: ServiceContext, tracing: Tracing | None = None) -> None:
        self._app = app
        # the framework's own layers answer errors in ways of their own, and cost more than all of this;
        # of its routing the raw endpoints have no need
        raw = [route for route in app.router.routes if type(route) is Route]
        others = AsyncExitStackMiddleware(app.router)
        self._routes: ASGIApp = Router(raw, redirect_slashes=False, default=others).app
        self._lanes = Lanes(raw)
        # what only the ordinary way knows how to deal with
        self._odd = ODD | {b"origin"} if parts.settings.cors else ODD
        self.meter = parts.meter
        self._log = parts.settings.access_log
        self._tracing = tracing
        self.ids = new_ids()
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
        self.meter.count_response("unknown", "unknown", status, 0)
        self.meter.count_error("bad_request")
        return next(self.ids)

    def express(self, url: bytes, headers: Mapping[bytes, bytes]) -> Callable[[Carrier], Express] | None:
        """The shorter way of a POST, None where there is none; no header may be there twice."""
        lane = self._lanes.find(url)
        if lane is None or not self._odd.isdisjoint(headers):
            return None
        return partial(Express, self, lane, headers)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send, self.ids)
        exchange.task = asyncio.current_task()
        scope["app"] = self._app
        scope["exchange"] = exchange
        meter = self.meter
        meter.in_flight += 1
        try:
            await self._routes(scope, receive, exchange)
        except (ClientGoneError, ClientDisconnect):
            pass
        except asyncio.CancelledError:
            if not exchange.abandoned:
                raise
        except Exception as error:
            refused = self.refuse(error, exchange, scope)
            # an answer that has begun ends where it is
            if not exchange.status:
                await _send(refused, exchange)
        finally:
            meter.in_flight -= 1
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in METHODS else "unknown"
            self.done(exchange, route, method, path_of(scope)[:SHOWN], scope.get("client"))

    def refuse(self, error: Exception, course: Course, scope: Scope) -> Refusal:
        """What an error is answered with, counted and kept for the log."""
        refused = refusal(error, scope, course.id)
        if refused.internal:
            log.error("request %s failed", course.id, exc_info=error)
        self.meter.count_error(refused.reason)
        course.said = refused.sentence
        course.turned_away = isinstance(error, OverloadedError)
        return refused

    def done(self, course: Course, route: str, method: str, path: str, client: Client) -> None:
        """Count and log a request that is over."""
        ns = perf_counter_ns() - course.began
        status = course.status or GONE
        self.meter.count_response(route, method, status, ns)
        if self._tracing is not None:
            self._tracing.record(course, route, method, status, ns)
        if self._log:
            well = status == 200 and route.endswith(PROBES)
            line = _line(course, route, method, path, client, status, ns)
            access_log.add(line, logging.DEBUG if well else logging.INFO)


async def _send(refused: Refusal, exchange: Exchange) -> None:
    await exchange({"type": "http.response.start", "status": refused.status, "headers": refused.own_headers})
    await exchange({"type": "http.response.body", "body": refused.body})


def _line(
    course: Course, route: str, method: str, path: str, client: Client, status: int, ns: int
) -> dict[str, Any]:
    """What the log says of a request."""
    trace, answer = course.trace, course.answer
    line: dict[str, Any] = {
        "id": course.id,
        "client": client[0] if client else None,
        "method": method,
        "path": path,
        "route": route,
        "status": status,
        "ms": ns // 1000 / 1000,
    }
    if trace is not None:
        line["trace"], line["span"] = trace.id, trace.span
    if answer is not None and course.model is not None:
        line["model"] = f"{course.model.name}/{course.model.version}"
        line["queue_ms"] = answer.queue_ns // 1000 / 1000
        line["run_ms"] = answer.run_ns // 1000 / 1000
        line["batch"] = answer.batch_rows
    if course.said is not None:
        line["error"] = course.said
    return line
