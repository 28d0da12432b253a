"""Health routes for probes and load balancers: is the process alive, and should it get requests?

The first protocol of KServe asks for `/`, where browsers get the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from turnpike.service.api.openapi.operation import operation
from turnpike.service.http.accept import prefers_page
from turnpike.service.http.request import Request
from turnpike.service.http.response import JSON_LINES, Response
from turnpike.service.http.router import Endpoint, Router

# the answer at `/` for clients of KServe's first protocol; browsers that accept HTML get the dashboard there
ALIVE = orjson.dumps({"status": "alive"})
ALIVE_LINES = JSON_LINES + b"cache-control: no-cache\r\nvary: Accept\r\n"

# the group of these routes on the page /docs
TAG = "Health"
LIVE = operation("Health", "Whether the process is alive", TAG)
READY = operation("Health", "Whether requests should be sent here", TAG, unready_response=True)


def add_routes(router: Router, is_ready: Callable[[], bool], page: Endpoint | None) -> None:
    """Add the health routes. They need no key, because probes have none.

    Args:
        router: The router that gets them.
        is_ready: Whether load balancers should send requests here.
        page: Answers requests for `/` from browsers; None if there is no dashboard.
    """

    async def live(_: Request) -> Response:
        return _health(is_ready())

    async def ready(_: Request) -> Response:
        is_ready_now = is_ready()
        return _health(is_ready_now, 200 if is_ready_now else 503)

    async def root(request: Request) -> Response | None:
        accept = request.head.fields.get(b"accept", b"").decode("latin-1")
        if page is not None and prefers_page(accept):
            return await page(request)
        return Response(ALIVE, ALIVE_LINES)

    router.add("GET", "/v2/health/live", "open", live, "live", LIVE)
    router.add("GET", "/v2/health/ready", "open", ready, "ready", READY)
    router.add("GET", "/", "open", root, "root", {})


def _health(ready: bool, status: int = 200) -> Response:
    return Response(orjson.dumps({"live": True, "ready": ready}), status=status)
