"""Routes of the model repository: the index of versions, and loading and unloading with the admin key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import orjson

from turnpike.service.api.context import ServiceContext
from turnpike.service.api.openapi.operation import operation
from turnpike.service.codec.json_document import (
    expect_shallow,
    expect_short,
    kind,
    quoted,
    syntax_error,
)
from turnpike.service.errors import NotFoundError, NotReadyError, RequestError, TooLargeError
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response, UncompressedResponse
from turnpike.service.requests.router import Router

# the group of these routes on the page /docs
TAG = "Model repository"
INDEX = operation("Index", "All versions with their state", TAG, body="IndexRequest", body_required=False)
LOAD = operation("Change", "Load a model from the repository", TAG, body="LoadRequest", body_required=False)
UNLOAD = operation("Change", "Stop serving a model", TAG, body="UnloadRequest", body_required=False)
# what Triton's clients send with each unload; no model here is a part of another
UNLOAD_DEPENDENTS = "unload_dependents"
# bytes of a body: JSON of a few short members, read in less than 20 ms whatever they are
MAX_BODY_BYTES = 1 << 18


def add_routes(router: Router, context: ServiceContext) -> None:
    """Add the routes. The index is open to every API key; load and unload change what all workers serve."""

    async def index(request: Request) -> Response:
        only_ready = (await _read_body(request, context)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise RequestError(f"ready: expected true or false, got {only_ready!r}")
        entries = context.registry.index()
        return UncompressedResponse(
            orjson.dumps([entry for entry in entries if not only_ready or entry["state"] == "READY"])
        )

    async def load(request: Request) -> Response:
        expect_parameters("load", _parameters(await _read_body(request, context)))
        return change_response(await context.supervisor.ask("load", request.path_params["model"]))

    async def unload(request: Request) -> Response:
        expect_parameters("unload", _parameters(await _read_body(request, context)))
        return change_response(await context.supervisor.ask("unload", request.path_params["model"]))

    router.add("POST", "/v2/repository/index", "api", index, "index", INDEX)
    router.add("POST", "/v2/repository/models/{model}/load", "admin", load, "load", LOAD)
    router.add("POST", "/v2/repository/models/{model}/unload", "admin", unload, "unload", UNLOAD)


def expect_parameters(change: Literal["load", "unload"], names: Iterable[str]) -> None:
    """Raise RequestError if a request to load or unload a model has parameters that would have no effect.

    Triton's `load` takes a configuration (`config`) and files (`file:1/model.onnx`) as parameters. A client
    that sends them here must not believe that they are served. Triton's model-analyzer sends configurations
    that it wants to compare.
    """
    for name in names:
        if change == "load":
            raise RequestError(
                f"parameters: expected none, got {quoted(name)}; models come from the repository of this "
                "service only: put the files of the model there, and load it without parameters; "
                "model-analyzer needs --reload-model-disable"
            )
        if name != UNLOAD_DEPENDENTS:
            raise RequestError(f"parameters: expected only {UNLOAD_DEPENDENTS}, got {quoted(name)}")


def change_response(outcome: dict[str, Any]) -> Response:
    """The response to a change: an object, which is empty unless there is a warning."""
    expect_change(outcome)
    return Response(orjson.dumps({"warning": outcome["warning"]} if "warning" in outcome else {}))


def expect_change(outcome: Mapping[str, Any]) -> None:
    """Raise an error with the reason if a model could not be loaded or unloaded."""
    if not outcome["ok"]:
        raise (NotReadyError if outcome.get("known", True) else NotFoundError)(outcome["reason"])


async def _read_body(request: Request, context: ServiceContext) -> dict[str, Any]:
    """The request's JSON object, empty if there is no body."""
    body = await context.bodies.read(request)
    expect_short(body, context.limits.max_json_bytes)
    # objects take longer than numbers, and none of these routes needs many
    if len(body) > MAX_BODY_BYTES:
        raise TooLargeError(f"body: expected at most {MAX_BODY_BYTES:,} bytes for the repository, got more")
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


def _parameters(body: dict[str, Any]) -> dict[str, Any]:
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError(f"parameters: expected an object, got {kind(parameters)}")
    return parameters
