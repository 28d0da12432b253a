"""Builds the OpenAPI document: collects the operations that the routes declare, and completes them.

What follows from a route itself is added here: its name, the parameters of its path, its key and its errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from turnpike.common.distribution import VERSION
from turnpike.service.api.openapi.operation import PATH_PARAMETERS, error
from turnpike.service.api.openapi.schemas import SCHEMAS, STRING
from turnpike.service.requests.auth import AccessLevel
from turnpike.service.requests.router import Route

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
LEVEL_ERRORS: dict[AccessLevel, tuple[int, ...]] = {"open": (), "api": (401, 503), "admin": (401, 403, 503)}
MODEL_ERRORS = (404,)


def build_document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document. Routes without an operation, such as those of pages, are left out."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.operation:
            paths.setdefault(route.label, {})[route.method.lower()] = complete_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "turnpike", "description": DESCRIPTION, "version": VERSION},
        "paths": paths,
        "components": {"schemas": SCHEMAS, "securitySchemes": SECURITY_SCHEMES},
    }


def complete_operation(route: Route) -> dict[str, Any]:
    """What a route declares, with its name, the parameters of its path, its keys and its errors."""
    path_parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", route.label)]
    # a response for each status that can occur and is not described yet
    errors = {*ANY_ERRORS, *LEVEL_ERRORS[route.level], *(MODEL_ERRORS if "{model}" in route.label else ())}
    responses = {str(status): error(status) for status in errors} | route.operation["responses"]
    operation = {
        **route.operation,
        "operationId": route.name,
        "parameters": [*path_parameters, *route.operation["parameters"]],
        "responses": dict(sorted(responses.items())),
    }
    if route.level != "open":
        # the empty entry means that no key is needed, as API keys may be disabled
        operation["security"] = [*KEY_REQUIRED, {}] if route.level == "api" else KEY_REQUIRED
    return operation


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
