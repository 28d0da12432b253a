"""Health routes for probes and load balancers: is the process alive, and should it get requests?

The first protocol of KServe asks for `/`, where browsers get the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson
from fastapi import APIRouter, Depends, FastAPI, Response

from service.api.openapi.operation import operation
from service.http.auth import Authenticator


def fastapi_routes(auth: Authenticator, is_ready: Callable[[], bool]) -> APIRouter:
    """The health routes. They need no key, because probes have none."""
    routes = APIRouter(prefix="/v2/health", tags=["Health"], dependencies=[Depends(auth.require("open"))])

    @routes.get("/live", summary="Whether the process is alive", openapi_extra=operation("Health"))
    async def live() -> Response:
        return _health(is_ready())

    @routes.get(
        "/ready",
        summary="Whether requests should be sent here",
        openapi_extra=operation("Health", unready_response=True),
    )
    async def ready() -> Response:
        is_ready_now = is_ready()
        return _health(is_ready_now, 200 if is_ready_now else 503)

    return routes


def add_root(app: FastAPI, auth: Authenticator) -> None:
    """Add the route `/` for a service without a dashboard."""

    @app.get("/", include_in_schema=False, dependencies=[Depends(auth.require("open"))])
    async def root() -> Response:
        return alive()


def alive() -> Response:
    """The answer at `/` for clients of KServe's first protocol."""
    return Response(
        orjson.dumps({"status": "alive"}),
        media_type="application/json",
        headers={"Cache-Control": "no-cache", "Vary": "Accept"},
    )


def _health(ready: bool, status: int = 200) -> Response:
    return Response(
        orjson.dumps({"live": True, "ready": ready}), status_code=status, media_type="application/json"
    )
