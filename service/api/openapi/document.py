"""Builds the OpenAPI document: collects the operations that the routes declare, and completes them.

What follows from a route itself is added here: its name, the parameters of its path, its key and its errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from service.api.openapi.operation import PATH_PARAMETERS, error
from service.api.openapi.schemas import SCHEMAS, STRING
from service.http.auth import Level, level_of
from service.http.router import Route

DESCRIPTION = (
    "Models with their gates: the Open Inference Protocol (version 2), a simple predict route, and routes "
    'that read, close and monitor gates. Every error is `{"error": "one sentence"}`, '
    "except those of the ready routes."
)
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
KEY_REQUIRED: list[dict[str, list[str]]] = [{"bearer": []}, {"key": []}]

# errors of any route, by level of access, and of routes of a model
ANY_ERRORS = (400, 421, 431, 500)
LEVEL_ERRORS: dict[Level, tuple[int, ...]] = {"open": (), "api": (401, 503), "admin": (401, 403, 503)}
MODEL_ERRORS = (404,)


def build_document(app: FastAPI, routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document. `routes` are those that FastAPI does not know."""
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    paths = document["paths"]
    for route in routes:
        if not route.operation:
            continue
        operation = _describe(route)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
        _complete(operation, route.path, route.level)
    for fastapi_route in _fastapi_routes(app):
        path = fastapi_route.path
        for method in fastapi_route.methods or ():
            operation = paths[path][method.lower()]
            # in place of those that FastAPI derives from the function
            operation["responses"] = _declared(fastapi_route)["responses"]
            _complete(operation, path, level_of(fastapi_route) or "admin")
    components = document.setdefault("components", {})
    components["schemas"] = SCHEMAS
    components["securitySchemes"] = SECURITY_SCHEMES
    return document


def _fastapi_routes(app: FastAPI) -> list[APIRoute]:
    routes: list[BaseRoute] = [context.original_route for context in iter_route_contexts(app.routes)]
    return [route for route in routes if isinstance(route, APIRoute) and route.include_in_schema]


def _declared(route: APIRoute) -> dict[str, Any]:
    if route.openapi_extra is None:
        raise ValueError(f"{route.path}: expected openapi_extra=operation(...), got none")
    return route.openapi_extra


def _describe(route: Route) -> dict[str, Any]:
    """The operation of a route of ours, with its name and the parameters of its path."""
    path_parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", route.path)]
    return {
        **route.operation,
        "operationId": route.name,
        "parameters": [*path_parameters, *route.operation["parameters"]],
    }


def _complete(operation: dict[str, Any], path: str, level: Level) -> None:
    """Add the keys, and a response for each status that can occur and is not described yet."""
    errors = {*ANY_ERRORS, *LEVEL_ERRORS[level], *(MODEL_ERRORS if "{model}" in path else ())}
    responses = {str(status): error(status) for status in errors} | operation["responses"]
    operation["responses"] = dict(sorted(responses.items()))
    if level != "open":
        # the empty entry means that no key is needed, as API keys may be disabled
        operation["security"] = [*KEY_REQUIRED, {}] if level == "api" else KEY_REQUIRED


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
