"""The model repository: what lies in it, and models loaded and unloaded by whoever holds the admin key."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request, Response

from service.api.context import ServiceContext
from service.api.open_inference import ModelName
from service.errors import NotFoundError, NotReadyError, RequestError


def router(parts: ServiceContext) -> APIRouter:
    """The index is for every key; the rest changes what all workers serve."""
    routes = APIRouter(prefix="/v2/repository", tags=["Model repository"])
    everyone, admin = Depends(parts.access.needs("api")), Depends(parts.access.needs("admin"))

    @routes.post("/index", summary="Every version there is, with its state", dependencies=[everyone])
    async def index(request: Request) -> Any:
        wanted = await _body(request, parts)
        ready = wanted.get("ready", False)
        if not isinstance(ready, bool):
            raise RequestError(f"ready: expected true or false, got {ready!r}")
        return [entry for entry in parts.shelf.index() if not ready or entry["state"] == "READY"]

    @routes.post("/models/{model}/load", summary="Load what the repository has", dependencies=[admin])
    async def load(model: ModelName, request: Request) -> Response:
        await _body(request, parts)
        return _done(await parts.control.ask("load", model))

    @routes.post("/models/{model}/unload", summary="Serve it no more", dependencies=[admin])
    async def unload(model: ModelName, request: Request) -> Response:
        await _body(request, parts)
        return _done(await parts.control.ask("unload", model))

    return routes


def _done(answer: dict[str, Any]) -> Response:
    """Nothing to say, or the reason why not."""
    if answer["ok"]:
        return Response(b"{}", media_type="application/json")
    raise (NotReadyError if answer.get("known", True) else NotFoundError)(answer["reason"])


async def _body(request: Request, parts: ServiceContext) -> dict[str, Any]:
    """A small JSON object, which may be left out."""
    async with parts.held.body(dict(request.scope["headers"]), request.receive) as body:
        if not body.strip():
            return {}
        try:
            found = orjson.loads(body)
        except ValueError as error:
            raise RequestError("the body: expected JSON or nothing, got what is no JSON") from error
    if not isinstance(found, dict):
        raise RequestError(f"the body: expected a JSON object or nothing, got {type(found).__name__}")
    return found
