"""Health routes for probes and load balancers: is the process alive, and should it get requests?"""

from __future__ import annotations

from collections.abc import Callable

import orjson
from fastapi import APIRouter, Depends, Response

from service.api.openapi.operation import operation
from service.http.auth import Authenticator


def fastapi_routes(auth: Authenticator, is_ready: Callable[[], bool]) -> APIRouter:
    """The health routes. They need no key, because probes have none."""
    routes = APIRouter(prefix="/v2/health", tags=["Health"], dependencies=[Depends(auth.require("open"))])

    # some load balancers probe with HEAD
    @routes.head("/live", include_in_schema=False)
    @routes.get("/live", summary="Whether the process is alive", openapi_extra=operation("Health"))
    async def live() -> Response:
        return _health(is_ready())

    @routes.head("/ready", include_in_schema=False)
    @routes.get(
        "/ready",
        summary="Whether requests should be sent here",
        openapi_extra=operation("Health", unready_response=True),
    )
    async def ready() -> Response:
        is_ready_now = is_ready()
        return _health(is_ready_now, 200 if is_ready_now else 503)

    return routes


def _health(ready: bool, status: int = 200) -> Response:
    return Response(
        orjson.dumps({"live": True, "ready": ready}), status_code=status, media_type="application/json"
    )
