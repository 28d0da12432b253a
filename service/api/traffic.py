"""`/traffic`: the figures of the last minutes, which the page shows."""

from __future__ import annotations

import math

import orjson
from fastapi import APIRouter, Depends, Request, Response

from service.api.context import ServiceContext
from service.api.openapi.operation import operation, parameter
from service.errors import RequestError


def fastapi_routes(context: ServiceContext) -> APIRouter:
    """The route. It is read every few seconds by each open page, so it can return only what is new."""
    routes = APIRouter(tags=["Metrics"], dependencies=[Depends(context.auth.require("api"))])
    after = parameter(
        "after", "query", "Only moments later than this `at`.", {"type": "number", "default": 0, "minimum": 0}
    )

    @routes.get(
        "/traffic",
        summary="The traffic of the last 15 minutes",
        openapi_extra=operation("Traffic", parameters=[after]),
    )
    async def traffic(request: Request) -> Response:
        answer = await context.supervisor.ask("traffic", _seconds(request.query_params.get("after", "0")))
        return Response(orjson.dumps(answer), media_type="application/json")

    return routes


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise RequestError(f"after: expected seconds from 0, got {text[:40]!r}")
    return seconds
