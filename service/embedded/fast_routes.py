"""Which requests the service may answer without passing them through the user's application."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute, iter_route_contexts
from starlette.applications import Starlette
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.routing import Match as StarletteMatch
from starlette.types import ASGIApp, Receive, Scope, Send

from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.embedded.embedded_service import EmbeddedService
from turnpike.service.embedded.fastapi_routes import ServiceRoute, routes_of, services_in
from turnpike.service.requests.router import MAX_CACHED_MATCHES, MAX_CACHED_PATH_LENGTH, Match

# what FastAPI has without the user
FRESH = FastAPI()
# FastAPI adds these routes itself
OWN_NAMES = frozenset({"openapi", "swagger_ui_html", "swagger_ui_redirect", "redoc_html"})
# a document of one's own sees no requests
UNRELATED_METHODS = frozenset({"openapi"})
# how routes of FastAPI and Starlette that look at the method and the path find out whether they answer
MATCHES_BY_PATH = frozenset(
    kind.matches for kind in (Route, APIRoute, WebSocketRoute, APIWebSocketRoute, Mount, ServiceRoute)
)


class Place(NamedTuple):
    """Where the routes of the service are: below `prefix`, and after routes of the user.

    These are in `before`, each with the path of the mount that it belongs to.
    """

    prefix: str
    before: tuple[tuple[BaseRoute, str], ...]


class FastRoutes:
    """Finds the route of the service for a request, if the application need not see it.

    Args:
        app: The application.
        service: The service in it.
        forced: Answer them without the application even if middleware, dependencies or handlers of the user
            would have seen them.
    """

    def __init__(self, app: ASGIApp, service: EmbeddedService, *, forced: bool = False) -> None:
        self._app = app
        self._router = service.application.router
        self._forced = forced
        self._places: tuple[Place, ...] = ()
        # None for a request that the application answers
        self._matches: BoundedCache[tuple[str, str], Match | None] = BoundedCache(MAX_CACHED_MATCHES)
        # What of the user's these routes skip if they are used, and would skip if not.
        self.skipped: tuple[str, ...] = ()

    @property
    def are_used(self) -> bool:
        """Whether the service answers any request without the application."""
        return bool(self._places)

    def find(self) -> None:
        """Look at the application, which is complete now."""
        self.skipped = tuple(dict.fromkeys(what_would_be_skipped(self._app)))
        if self._forced or not self.skipped:
            self._places = tuple(_places(routes_of(self._app), "", ()))

    def match(self, method: str, path: str) -> Match | None:
        """The route of the service for a request; None if the application answers it."""
        if not self._places:
            return None
        key = (method, path)
        if key in self._matches:
            return self._matches[key]
        match = self._search(method, path)
        if len(path) <= MAX_CACHED_PATH_LENGTH:
            self._matches.add(key, match)
        return match

    def _search(self, method: str, path: str) -> Match | None:
        for prefix, before in self._places:
            if not path.startswith(prefix):
                continue
            match = self._router.find(method, path[len(prefix) :])
            # also a route of the user that is found first, and /openapi.json, which is FastAPI's
            if match is None or match.route.name == "openapi":
                continue
            if not any(_matches(route, method, path, mount) for route, mount in before):
                return match
        return None


class ServiceApp(FastAPI):
    """A FastAPI application that answers routes of the service at once, while nothing else would see them.

    FastAPI's own path takes several times as long. All requests take it as soon as the application has
    middleware, dependencies, exception handlers or a method that was replaced.
    """

    def __init__(self, service: EmbeddedService, **options: Any) -> None:
        super().__init__(**options)
        self._service = service
        self._fast_routes = FastRoutes(self, service)
        # what the fast routes were found for
        self._state: tuple[int, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = (
                *map(len, (self.user_middleware, self.exception_handlers, self.router.routes, vars(self))),
                id(self.middleware_stack),
            )
            if state != self._state:
                self._fast_routes, self._state = FastRoutes(self, self._service), state
                self._fast_routes.find()
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            match = self._fast_routes.match(scope["method"], path)
            if match is not None:
                await self._service.answer(match, scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def _matches(route: BaseRoute, method: str, path: str, mount: str) -> bool:
    scope = {"type": "http", "method": method, "path": path, "root_path": mount, "headers": []}
    return route.matches(scope)[0] is not StarletteMatch.NONE


def what_would_be_skipped(app: Any) -> Iterator[str]:
    """What of the user's sees the requests for the service before it does, in words."""
    if type(app) not in (FastAPI, ServiceApp):
        yield f"class {type(app).__name__}"
        return
    yield from _replaced_methods(app)
    if app.user_middleware or (app.max_body_size is None and _is_wrapped(app)):
        yield "middleware"
    if app.exception_handlers != FRESH.exception_handlers:
        yield "exception handlers"
    if app.root_path:
        yield "root_path"
    if app.max_body_size is not None:
        yield "max_body_size"
    earlier: list[BaseRoute] = []
    for route in app.routes:
        if not _has_service(route):
            earlier.append(route)
            continue
        if not all(map(_looks_at_paths_only, earlier)):
            yield "routes for some hosts or headers only"
        if isinstance(route, Mount):
            yield from what_would_be_skipped(route.app)
            continue
        for context in iter_route_contexts([route]):
            if not isinstance(context.original_route, ServiceRoute):
                yield "routes in the router of the service"
            elif context.dependant.dependencies:
                yield "dependencies"
            elif getattr(context, "max_body_size", None) is not None:
                yield "max_body_size"


def _replaced_methods(app: FastAPI) -> Iterator[str]:
    """Methods through which requests go and that are not FastAPI's own, as instrumentation replaces them."""
    for instance in (app, app.router):
        for name in vars(instance):
            if name not in UNRELATED_METHODS and callable(getattr(type(instance), name, None)):
                yield f"own {name}"
    for owner in (FastAPI, Starlette, APIRouter, Router):
        for name in ("__call__", "build_middleware_stack", "app"):
            method = vars(owner).get(name)
            if method is not None and _file_of(method) != inspect.getfile(owner):
                yield f"own {owner.__name__}.{name}"


def _file_of(method: Any) -> str | None:
    """The file with the code of a method; None if it is no plain function, and so may do anything."""
    return method.__code__.co_filename if type(method) is FunctionType else None


def _is_wrapped(app: FastAPI) -> bool:
    """Whether something was put around the finished application or its router, as `max_body_size` is."""
    stack = app.middleware_stack
    return (
        (stack is not None and type(stack) is not ServerErrorMiddleware)
        or type(app.router) is not APIRouter
        or app.router.middleware_stack != app.router.app
    )


def _looks_at_paths_only(route: BaseRoute) -> bool:
    """Whether the method and the path of a request say whether the route answers it."""
    return all(
        type(context.original_route).matches in MATCHES_BY_PATH for context in iter_route_contexts([route])
    )


def _has_service(route: BaseRoute) -> bool:
    return next(services_in([route]), None) is not None


def _places(
    routes: list[BaseRoute], prefix: str, before: tuple[tuple[BaseRoute, str], ...]
) -> Iterator[Place]:
    """Where the service is among routes, at any depth."""
    prefixes: set[str] = set()
    for route in routes:
        if not _has_service(route):
            if getattr(route, "name", "") not in OWN_NAMES:
                before = (*before, (route, prefix))
        elif isinstance(route, Mount):
            yield from _places(routes_of(route.app), prefix + route.path, before)
        else:
            for context in iter_route_contexts([route]):
                ours = context.original_route
                if isinstance(ours, ServiceRoute):
                    own = str(context.path).removesuffix(ours.route.pattern)
                    if own not in prefixes:
                        prefixes.add(own)
                        yield Place(prefix + own, before)
