"""Whether the process lives, and whether it should be given requests."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from fastapi import APIRouter, Depends, Response

from service.http.auth import Authenticator


def router(access: Authenticator, is_ready: Callable[[], bool]) -> APIRouter:
    """Open to everyone, since probes have no keys."""
    routes = APIRouter(prefix="/v2/health", tags=["Health"], dependencies=[Depends(access.needs("open"))])

    # HEAD, too, as some balancers probe
    @routes.head("/live", include_in_schema=False)
    @routes.get("/live", summary="Whether the process answers at all")
    async def live() -> Response:
        return _state(True, is_ready())

    @routes.head("/ready", include_in_schema=False)
    @routes.get("/ready", summary="Whether requests should be sent here")
    async def ready() -> Response:
        state = is_ready()
        return _state(True, state, 200 if state else 503)

    return routes


def _state(live: bool, ready: bool, status: int = 200) -> Response:
    return Response(
        orjson.dumps({"live": live, "ready": ready}), status_code=status, media_type="application/json"
    )
