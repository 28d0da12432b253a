"""Routes of the model repository: the index of versions, and loading and unloading with the admin key."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Request, Response

from service.api.context import ServiceContext
from service.api.openapi.operation import PATH_PARAMETERS, operation
from service.errors import NotFoundError, NotReadyError, RequestError
from service.protocol.json_document import expect_shallow, expect_short, kind, syntax_error

ModelName = Annotated[
    str, Path(description=PATH_PARAMETERS["model"][0], examples=[PATH_PARAMETERS["model"][1]])
]


def fastapi_routes(context: ServiceContext) -> APIRouter:
    """The routes. The index is open to every API key; load and unload change what all workers serve."""
    routes = APIRouter(prefix="/v2/repository", tags=["Model repository"])
    any_key, admin = Depends(context.auth.require("api")), Depends(context.auth.require("admin"))

    @routes.post(
        "/index",
        summary="All versions with their state",
        dependencies=[any_key],
        openapi_extra=operation("Index", body="IndexRequest", body_required=False),
    )
    async def index(request: Request) -> Any:
        only_ready = (await _read_body(request, context)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise RequestError(f"ready: expected true or false, got {only_ready!r}")
        return [entry for entry in context.registry.index() if not only_ready or entry["state"] == "READY"]

    @routes.post(
        "/models/{model}/load",
        summary="Load a model from the repository",
        dependencies=[admin],
        openapi_extra=operation("Change", body="Nothing", body_required=False),
    )
    async def load(model: ModelName, request: Request) -> Response:
        await _read_body(request, context)
        return _response(await context.supervisor.ask("load", model))

    @routes.post(
        "/models/{model}/unload",
        summary="Stop serving a model",
        dependencies=[admin],
        openapi_extra=operation("Change", body="Nothing", body_required=False),
    )
    async def unload(model: ModelName, request: Request) -> Response:
        await _read_body(request, context)
        return _response(await context.supervisor.ask("unload", model))

    return routes


def _response(outcome: dict[str, Any]) -> Response:
    """An object for success, empty unless there is a warning, or an error with the reason."""
    if outcome["ok"]:
        answer = {"warning": outcome["warning"]} if "warning" in outcome else {}
        return Response(orjson.dumps(answer), media_type="application/json")
    raise (NotReadyError if outcome.get("known", True) else NotFoundError)(outcome["reason"])


async def _read_body(request: Request, context: ServiceContext) -> dict[str, Any]:
    """The request's JSON object, empty if there is no body."""
    body = await context.bodies.read(request.scope["turnpike.request"])
    expect_short(body, context.limits.max_json_bytes)
    if not body.strip():
        return {}
    try:
        record = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise syntax_error(error) from error
    expect_shallow(body, context.limits.max_depth)
    if not isinstance(record, dict):
        raise RequestError(f"body: expected a JSON object or nothing, got {kind(record)}")
    return record
