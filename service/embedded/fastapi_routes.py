"""Makes a FastAPI route of each route of the service."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Match as StarletteMatch
from starlette.types import Message, Receive, Scope, Send

from turnpike.service.api.openapi.document import SECURITY_SCHEMES, complete_operation
from turnpike.service.api.openapi.schemas import SCHEMAS
from turnpike.service.embedded.embedded_service import EmbeddedService
from turnpike.service.requests.router import Match, Route, wrong_method

Endpoint = Callable[[Request], Awaitable[Response]]

# a parameter in the pattern of a route
PARAMETER = re.compile(r"{(\w+)(?::path)?}")
# FastAPI serves its own document, which also describes the routes that the user adds
OWN_DOCUMENT = "openapi"
REFERENCE = "#/components/schemas/"
# names of the routes that most requests are for
FREQUENT = frozenset({"infer", "predict", "infer_version", "predict_version"})


class ServiceRoute(APIRoute):
    """A route of a service among those of a FastAPI application.

    FastAPI finds the route and calls its dependencies. Then the service answers from the raw body.
    """

    # set by `add_service_routes`, since FastAPI calls the constructor
    service: EmbeddedService
    route: Route

    def matches(self, scope: Scope) -> tuple[StarletteMatch, Scope]:
        match, child_scope = super().matches(scope)
        if match is StarletteMatch.FULL and ":" in scope["path"]:
            # GET of `/v1/models/net:predict` asks for no model `net:predict`: it has the wrong method
            params = child_scope["path_params"]
            path = PARAMETER.sub(lambda name: str(params[name[1]]), self.route.pattern)
            if self.service.application.router.find(scope["method"], path) is None:
                return StarletteMatch.NONE, {}
        return match, child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in (self.methods or ()):
            await super().handle(scope, receive, send)
        else:
            # errors of these routes are those of the service, and CORS is answered here
            match = Match(wrong_method(self.route), scope.get("path_params", {}))
            await self.service.answer(match, scope, receive, send)


class ServiceAnswer(Response):
    """The answer of a service, which is made while FastAPI sends it."""

    def __init__(self, service: EmbeddedService, match: Match, body_read: bytes | None = None) -> None:
        super().__init__()
        self._service = service
        self._match = match
        self._body_read = body_read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._body_read is not None:
            receive = replaying(self._body_read, receive)
        await self._service.answer(self._match, scope, receive, send)
        if self.background is not None:
            await self.background()


def add_service_routes(router: APIRouter, service: EmbeddedService, *, inline_schemas: bool) -> None:
    """Add the routes of a service to a router of FastAPI.

    Args:
        router: The router.
        service: The service.
        inline_schemas: Write schemas where they are used. Otherwise the document of the application must have
            them as components, see `document_of`.
    """
    # FastAPI tries one route after the other: first those of predictions, which have suffixes of their own
    routes = sorted(service.application.router.routes, key=lambda route: route.name not in FREQUENT)
    for route in routes:
        if route.name == OWN_DOCUMENT:
            continue
        operation = complete_operation(route) if route.operation else {}
        if inline_schemas:
            operation = inlined(operation)
            # the schemes are components, too, and the name has to be unique in the application
            operation.pop("security", None)
            operation.pop("operationId", None)
        for method in (route.method, *(["HEAD"] if route.method == "GET" else [])):
            router.add_api_route(
                route.pattern,
                _endpoint(service, route),
                methods=[method],
                name=route.name,
                include_in_schema=method == route.method and bool(operation),
                response_class=Response,
                response_model=None,
                openapi_extra=operation,
                route_class_override=ServiceRoute,
            )
            added = cast(ServiceRoute, router.routes[-1])
            added.service, added.route = service, route


def document_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application whose routes of the service refer to components."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            openapi_version=app.openapi_version,
            summary=app.summary,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
            servers=app.servers,
        )
        components = document.setdefault("components", {})
        for kind, ours in (("schemas", SCHEMAS), ("securitySchemes", SECURITY_SCHEMES)):
            components[kind] = {**ours, **components.get(kind, {})}
        app.openapi_schema = document
    return app.openapi_schema


def services_in(routes: list[BaseRoute]) -> Iterator[EmbeddedService]:
    """The services among routes, also in included routers and mounted applications; some more than once."""
    for context in iter_route_contexts(routes):
        route = context.original_route
        if isinstance(route, ServiceRoute):
            yield route.service
        else:
            yield from services_in(routes_of(getattr(route, "app", None)))


def routes_of(app: Any) -> list[BaseRoute]:
    """The routes of an application, which middleware may wrap; none if it has none."""
    while app is not None and not hasattr(app, "routes"):
        app = getattr(app, "app", None)
    return [] if app is None else list(app.routes)


def inlined(value: Any) -> Any:
    """A copy of an OpenAPI operation in which each reference to a schema is replaced by the schema."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith(REFERENCE):
            return inlined(SCHEMAS[reference.removeprefix(REFERENCE)])
        return {key: inlined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inlined(item) for item in value]
    return deepcopy(value)


def _endpoint(service: EmbeddedService, route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        # Starlette keeps the body here if a dependency has read it
        body: bytes | None = getattr(request, "_body", None)
        return ServiceAnswer(service, Match(route, request.path_params), body)

    return endpoint


def replaying(body: bytes, receive: Receive) -> Receive:
    """Receives a body that has been read, and then what comes after it."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive_again() -> Message:
        return next(messages, None) or await receive()

    return receive_again
