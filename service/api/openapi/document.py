"""The OpenAPI document: the framework's own part, and what the framework cannot know of raw endpoints."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Route

from service.api.openapi.operations import OPERATIONS, Operation
from service.api.openapi.schemas import SCHEMAS, TEXT, ref
from service.http.auth import Level, level_of

JSON = "application/json"
BINARY = "application/octet-stream"
VERSIONS = "/versions/{version}"

DESCRIPTION = (
    "Models with their gates: the Open Inference Protocol (version 2), predictions for people, and gates "
    'read, closed and watched. Every answer other than 200 is `{"error": "one sentence"}`, '
    "but for those of the ready routes."
)
PARAMETERS = {
    "model": "A model's name, as /v2/models lists it.",
    "version": "One of the model's versions.",
}
EXAMPLES = {"model": "digits-10", "version": "1"}
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
KEYS: list[dict[str, list[str]]] = [{"bearer": []}, {"key": []}]

REASONS = {
    400: "The request makes no sense; the sentence says where.",
    401: "No key, or one that is not known.",
    403: "The key does not open this route, or admin routes are off.",
    404: "There is no such model or version.",
    408: "The body took too long to arrive.",
    413: "The body, its rows or its answer would be too large.",
    415: "An encoding of the body that is not spoken here.",
    422: "NaN or Inf in the answer, which JSON cannot say.",
    431: "The headers are too large.",
    500: "Something of the service failed; its log says what.",
    503: "Not ready, or no room to wait in; `Retry-After` says for how long.",
    504: "The deadline passed before the run began.",
}
# of a connection, and of any route
ALWAYS = (400, 431, 500)
OF_LEVEL: dict[Level, tuple[int, ...]] = {"open": (), "api": (401, 503), "admin": (401, 403, 503)}
OF_MODEL = (404,)
OF_BODY = (408, 413, 415)
OF_RUN = (422, 504)


def openapi(app: FastAPI) -> dict[str, Any]:
    """The whole document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    paths = document["paths"]
    for route in _routes(app):
        for method in sorted(route.methods or ()):
            verb, path = method.lower(), route.path
            known = OPERATIONS.get((verb, path.replace(VERSIONS, "")))
            if type(route) is Route and known is not None:
                paths.setdefault(path, {})[verb] = _raw(route, known)
            if verb in paths.get(path, {}):
                _complete(paths[path][verb], path, known, level_of(route) or "admin")
    components = document.setdefault("components", {})
    components["schemas"] = SCHEMAS
    components["securitySchemes"] = SECURITY
    return document


def _routes(app: FastAPI) -> list[Route]:
    found: list[BaseRoute] = [context.original_route for context in iter_route_contexts(app.routes)]
    return [route for route in found if isinstance(route, Route)]


def _raw(route: Route, known: Operation) -> dict[str, Any]:
    """An operation that the framework does not see."""
    operation: dict[str, Any] = {
        "tags": [known.tag],
        "summary": known.summary,
        "operationId": route.name,
        "parameters": [_path_parameter(name) for name in re.findall(r"{(\w+)}", route.path)],
    }
    if known.description:
        operation["description"] = known.description
    return operation


def _complete(operation: dict[str, Any], path: str, known: Operation | None, level: Level) -> None:
    """Add what comes in and out, and every status that there may be."""
    statuses = {*ALWAYS, *OF_LEVEL[level]}
    if "{model}" in path:
        statuses.update(OF_MODEL)
    responses = operation.setdefault("responses", {})
    # the framework's own way to refuse, which is not ours
    responses.pop("422", None)
    if known is not None:
        operation.setdefault("parameters", []).extend(known.parameters)
        responses["200"] = {"description": "The answer", "content": _content(known, known.answers)}
        if known.asks is not None:
            statuses.update(OF_BODY)
            operation["requestBody"] = {
                "required": known.must_ask,
                "content": _content(known, known.asks, known.examples),
            }
        if known.runs:
            statuses.update(OF_RUN)
        if known.also_unready:
            responses["503"] = {"description": "Not ready", "content": _content(known, known.answers)}
    for status in sorted(statuses):
        responses.setdefault(str(status), _error(status))
    operation["responses"] = dict(sorted(responses.items()))
    if level != "open":
        # the API's own keys may be off
        operation["security"] = [*KEYS, {}] if level == "api" else KEYS


def _content(known: Operation, schema: str, examples: dict[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {known.media: {"schema": ref(schema)}}
    if examples:
        content[known.media]["examples"] = examples
    if known.binary:
        content[BINARY] = {"schema": {"type": "string", "format": "binary"}}
    return content


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": PARAMETERS[name],
        "schema": TEXT,
        "example": EXAMPLES[name],
    }


def _error(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": REASONS[status],
        "content": {JSON: {"schema": ref("Error")}},
    }
    if status == 503:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return response
