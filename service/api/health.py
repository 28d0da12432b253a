"""Health routes for probes and load balancers: is the process alive, and should it get requests?

The first protocol of KServe asks for `/`, where browsers get the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from service.api.openapi.operation import operation
from service.http.request import Request
from service.http.response import JSON_LINES, Response
from service.http.router import Router

# the answer at `/` for clients of KServe's first protocol; browsers that accept HTML get the dashboard there
ALIVE = orjson.dumps({"status": "alive"})
ALIVE_HEADERS = {"Cache-Control": "no-cache", "Vary": "Accept"}

# the group of these routes on the page /docs
TAG = "Health"
LIVE = operation("Health", "Whether the process is alive", TAG)
READY = operation("Health", "Whether requests should be sent here", TAG, unready_response=True)


def add_routes(router: Router, is_ready: Callable[[], bool], *, root: bool) -> None:
    """Add the health routes, and `/` if `root`. They need no key, because probes have none."""

    async def live(_: Request) -> Response:
        return _health(is_ready())

    async def ready(_: Request) -> Response:
        is_ready_now = is_ready()
        return _health(is_ready_now, 200 if is_ready_now else 503)

    async def alive(_: Request) -> Response:
        lines = b"".join(f"{name.lower()}: {value}\r\n".encode() for name, value in ALIVE_HEADERS.items())
        return Response(ALIVE, JSON_LINES + lines)

    router.add("GET", "/v2/health/live", "open", live, "live", LIVE)
    router.add("GET", "/v2/health/ready", "open", ready, "ready", READY)
    if root:
        router.add("GET", "/", "open", alive, "alive", {})


def _health(ready: bool, status: int = 200) -> Response:
    return Response(orjson.dumps({"live": True, "ready": ready}), status=status)
