"""`/traffic`: the figures of the last minutes, which the page shows."""

from __future__ import annotations

import math
from urllib.parse import parse_qs

import orjson

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.openapi.operation import operation, parameter
from turnpike.service.errors import RequestError
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Router

AFTER = parameter(
    "after", "query", "Only moments later than this `at`.", {"type": "number", "default": 0, "minimum": 0}
)
TRAFFIC = operation("Traffic", "The traffic of the last 15 minutes", "Metrics", parameters=[AFTER])


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the route. It is read every few seconds by each open page, so it can return only what is new."""

    async def traffic(request: Request) -> Response:
        query = parse_qs(request.head.query.decode("latin-1"), keep_blank_values=True)
        after = _seconds(query.get("after", ["0"])[-1])
        return Response(orjson.dumps(await context.supervisor.ask("traffic", after)))

    router.add("GET", "/traffic", "api", traffic, "traffic", TRAFFIC)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise RequestError(f"after: expected seconds from 0, got {text[:40]!r}")
    return seconds
