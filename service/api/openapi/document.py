"""Builds the OpenAPI document: FastAPI's own part, completed by the table of operations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from service.api.openapi.operations import OPERATIONS, Operation
from service.api.openapi.schemas import SCHEMAS, STRING, ref
from service.http.auth import Level, level_of
from service.http.router import Route

JSON = "application/json"
RAW_BYTES = "application/octet-stream"
VERSION_PATH = "/versions/{version}"

DESCRIPTION = (
    "Models with their gates: the Open Inference Protocol (version 2), a simple predict route, and routes "
    'that read, close and monitor gates. Every response other than 200 is `{"error": "one sentence"}`, '
    "except those of the ready routes."
)
PATH_PARAMETERS = {
    "model": ("A model's name, as /v2/models lists it.", "digits-10"),
    "version": ("One of the model's versions.", "1"),
}
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
KEY_REQUIRED: list[dict[str, list[str]]] = [{"bearer": []}, {"key": []}]

ERRORS = {
    400: "The request is invalid. The sentence says where.",
    401: "No key, or an unknown one.",
    403: "The key is not valid for this route, or admin routes are disabled.",
    404: "There is no such model or version.",
    408: "The body took too long to arrive.",
    413: "The body, its rows or its response would be too large.",
    415: "The encoding of the body is not supported.",
    422: "The result has NaN or infinity, which JSON cannot represent.",
    431: "The headers are too large.",
    500: "The service failed. Its log says why.",
    503: "Not ready, or the queue is full. `Retry-After` has the seconds to wait.",
    504: "The deadline passed before the run began.",
}
# errors of any route, by level of access, of routes of a model, with a body, and that run a model
ANY_ERRORS = (400, 431, 500)
LEVEL_ERRORS: dict[Level, tuple[int, ...]] = {"open": (), "api": (401, 503), "admin": (401, 403, 503)}
MODEL_ERRORS = (404,)
BODY_ERRORS = (408, 413, 415)
RUN_ERRORS = (422, 504)


def openapi(app: FastAPI, routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document, which is built once. `routes` are those that FastAPI does not know."""
    if app.openapi_schema is None:
        app.openapi_schema = _build(app, routes)
    return app.openapi_schema


def _build(app: FastAPI, routes: Iterable[Route]) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    paths = document["paths"]
    for route in routes:
        verb = route.method.lower()
        operation = OPERATIONS[verb, route.path.replace(VERSION_PATH, "")]
        described = paths.setdefault(route.path, {})[verb] = _describe(route, operation)
        _complete(described, route.path, operation, route.level)
    for fastapi_route in _fastapi_routes(app):
        path = fastapi_route.path
        for verb in sorted(method.lower() for method in fastapi_route.methods or ()):
            if verb in paths.get(path, {}):
                known = OPERATIONS.get((verb, path.replace(VERSION_PATH, "")))
                _complete(paths[path][verb], path, known, level_of(fastapi_route) or "admin")
    components = document.setdefault("components", {})
    components["schemas"] = SCHEMAS
    components["securitySchemes"] = SECURITY_SCHEMES
    return document


def _fastapi_routes(app: FastAPI) -> list[StarletteRoute]:
    routes: list[BaseRoute] = [context.original_route for context in iter_route_contexts(app.routes)]
    return [route for route in routes if isinstance(route, StarletteRoute)]


def _describe(route: Route, operation: Operation) -> dict[str, Any]:
    """The description of a route of ours, without bodies and responses."""
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": route.name,
        "parameters": [_path_parameter(name) for name in re.findall(r"{(\w+)}", route.path)],
    }
    if operation.description:
        described["description"] = operation.description
    return described


def _complete(described: dict[str, Any], path: str, operation: Operation | None, level: Level) -> None:
    """Add the bodies, the keys, and a response for each status that can occur."""
    errors = {*ANY_ERRORS, *LEVEL_ERRORS[level]}
    if "{model}" in path:
        errors.update(MODEL_ERRORS)
    responses = described.setdefault("responses", {})
    # FastAPI's own validation error, which our routes never return
    responses.pop("422", None)
    if operation is not None:
        described.setdefault("parameters", []).extend(operation.parameters)
        responses["200"] = {"description": "The result", "content": _content(operation, operation.response)}
        if operation.body is not None:
            errors.update(BODY_ERRORS)
            described["requestBody"] = {
                "required": operation.body_required,
                "content": _content(operation, operation.body, operation.examples),
            }
        if operation.runs_model:
            errors.update(RUN_ERRORS)
        if operation.unready_response:
            responses["503"] = {
                "description": "Not ready",
                "content": _content(operation, operation.response),
            }
    for status in sorted(errors):
        responses.setdefault(str(status), _error(status))
    described["responses"] = dict(sorted(responses.items()))
    if level != "open":
        # the empty entry means that no key is needed, as API keys may be disabled
        described["security"] = [*KEY_REQUIRED, {}] if level == "api" else KEY_REQUIRED


def _content(operation: Operation, schema: str, examples: dict[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {operation.media_type: {"schema": ref(schema)}}
    if examples:
        content[operation.media_type]["examples"] = examples
    if operation.binary:
        content[RAW_BYTES] = {"schema": {"type": "string", "format": "binary"}}
    return content


def _path_parameter(name: str) -> dict[str, Any]:
    description, example = PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": STRING,
        "example": example,
    }


def _error(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": ERRORS[status],
        "content": {JSON: {"schema": ref("Error")}},
    }
    if status == 503:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return response
