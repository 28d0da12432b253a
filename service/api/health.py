"""Health routes for probes and load balancers: is the process alive, and should it get requests?

The first protocol of KServe asks for `/`, where browsers get the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from turnpike.service.api.openapi.operation import operation
from turnpike.service.http.accept import prefers_page
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import JSON_LINES, Response
from turnpike.service.requests.router import Endpoint, Router

# the answer at `/` for clients of KServe's first protocol; browsers that accept HTML get the dashboard there
ALIVE = orjson.dumps({"status": "alive"})
ALIVE_LINES = JSON_LINES + b"cache-control: no-cache\r\nvary: Accept\r\n"

# the group of these routes on the page /docs
TAG = "Health"
LIVE = operation("Health", "Whether the process is alive", TAG)
READY = operation("Health", "Whether requests should be sent here", TAG, unready_response=True)


def add_routes(router: Router, unready_reason: Callable[[], str | None], page: Endpoint | None) -> None:
    """Add the health routes. They need no key, because probes have none.

    Args:
        router: The router that gets them.
        unready_reason: Why load balancers should send no requests here; None if they should.
        page: Answers requests for `/` from browsers; None if there is no dashboard.
    """

    async def live(_: Request) -> Response:
        return _health(unready_reason())

    async def ready(_: Request) -> Response:
        reason = unready_reason()
        return _health(reason, 200 if reason is None else 503)

    async def root(request: Request) -> Response | None:
        accept = request.head.fields.get(b"accept", b"").decode("latin-1")
        if page is not None and prefers_page(accept):
            return await page(request)
        return Response(ALIVE, ALIVE_LINES)

    router.add("GET", "/v2/health/live", "open", live, "live", LIVE, any_host=True)
    router.add("GET", "/v2/health/ready", "open", ready, "ready", READY, any_host=True)
    router.add("GET", "/", "open", root, "root", {})


def _health(unready_reason: str | None, status: int = 200) -> Response:
    health: dict[str, Any] = {"live": True, "ready": unready_reason is None}
    if unready_reason is not None:
        health["reason"] = unready_reason
    return Response(orjson.dumps(health), status=status)
