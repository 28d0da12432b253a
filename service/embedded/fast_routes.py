"""Which requests the service may answer without passing them through the user's application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Mount
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
        # what of the user's would be left out
        self.reason = ""

    @property
    def are_used(self) -> bool:
        """Whether the service answers any request without the application."""
        return bool(self._places)

    def find(self) -> None:
        """Look at the application, which is complete now."""
        self.reason = "" if self._forced else next(additions(self._app), "")
        if not self.reason:
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
    middleware, dependencies or exception handlers.
    """

    def __init__(self, service: EmbeddedService, **options: Any) -> None:
        super().__init__(**options)
        self._service = service
        self._fast_routes = FastRoutes(self, service)
        # what the fast routes were found for
        self._state: tuple[int, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state = len(self.user_middleware), len(self.exception_handlers), len(self.router.routes)
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


def additions(app: Any) -> Iterator[str]:
    """What of the user's sees the requests for the service before it does, in words."""
    if type(app) not in (FastAPI, ServiceApp):
        yield f"class {type(app).__name__}"
        return
    if app.user_middleware:
        yield "middleware"
    if app.exception_handlers != FRESH.exception_handlers:
        yield "exception handlers"
    if app.root_path:
        yield "root_path"
    if app.max_body_size is not None:
        yield "max_body_size"
    for route in app.routes:
        if isinstance(route, Mount) and _has_service(route):
            yield from additions(route.app)
            continue
        contexts = list(iter_route_contexts([route]))
        for context in contexts if _has_service(route) else ():
            if not isinstance(context.original_route, ServiceRoute):
                yield "routes in the router of the service"
            elif context.dependant.dependencies:
                yield "dependencies"
            elif getattr(context, "max_body_size", None) is not None:
                yield "max_body_size"


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
                    own = str(context.path).removesuffix(ours.route.declared_path)
                    if own not in prefixes:
                        prefixes.add(own)
                        yield Place(prefix + own, before)
