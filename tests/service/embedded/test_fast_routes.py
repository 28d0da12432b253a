"""Which requests the service may answer without the application of the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import Response
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match, Mount, Route

import turnpike
from turnpike.service.embedded.fast_routes import FastRoutes
from turnpike.service.embedded.fastapi_routes import routes_of, services_in


class OwnFastAPI(FastAPI):
    """May do anything with a request."""


def included(**options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(turnpike.router(), prefix="/ml", **options)
    return app


def mounted(app: FastAPI | None = None) -> FastAPI:
    app = app or FastAPI()
    app.mount("/ml", turnpike.create_app())
    return app


def fast_routes(app: Any, *, forced: bool = False) -> FastRoutes:
    routes = FastRoutes(app, next(services_in(routes_of(app))), forced=forced)
    routes.find()
    return routes


def is_fast(routes: FastRoutes, path: str, method: str = "GET") -> bool:
    return routes.match(method, path) is not None


def with_middleware() -> FastAPI:
    app = included()

    @app.middleware("http")
    async def pass_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        return await call_next(request)

    return app


def with_handler() -> FastAPI:
    app = included()

    @app.exception_handler(404)
    async def not_found(_: Request, error: Exception) -> Response:
        return Response(status_code=404)

    return app


def with_middleware_in_a_mount() -> FastAPI:
    inner = turnpike.create_app()
    inner.add_middleware(GZipMiddleware)
    app = FastAPI()
    app.mount("/ml", inner)
    return app


def with_own_routes_in_the_router() -> FastAPI:
    router = APIRouter()
    router.add_api_route("/v2/models", nothing)
    router.include_router(turnpike.router())
    app = FastAPI()
    app.include_router(router, prefix="/ml")
    return app


def with_dependencies_of_the_application() -> FastAPI:
    app = FastAPI(dependencies=[Depends(nothing)])
    app.include_router(turnpike.router(), prefix="/ml")
    return app


def with_root_path() -> FastAPI:
    app = included()
    app.root_path = "/behind"
    return app


def with_replaced_method() -> FastAPI:
    """As OpenTelemetry's FastAPIInstrumentor does."""
    app = included()
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: GZipMiddleware(build())  # type: ignore[method-assign]
    return app


def with_replaced_stack() -> FastAPI:
    app = included()
    app.middleware_stack = GZipMiddleware(app.build_middleware_stack())
    return app


def with_middleware_of_the_router() -> FastAPI:
    app = included()
    app.router.middleware_stack = GZipMiddleware(app.router.middleware_stack)
    return app


def with_route_for_a_host() -> FastAPI:
    app = FastAPI()
    app.host("api.example.org", FastAPI())
    app.include_router(turnpike.router(), prefix="/ml")
    return app


class ForTests(Route):
    """Answers only requests with a header."""

    def matches(self, scope: Any) -> Any:
        return super().matches(scope) if dict(scope["headers"]).get(b"test") else (Match.NONE, {})


def with_route_for_a_header() -> FastAPI:
    app = FastAPI()
    app.router.routes.append(ForTests("/ml/v2/models", nothing))
    app.include_router(turnpike.router(), prefix="/ml")
    return app


def nothing() -> None: ...


@pytest.mark.parametrize("make", [included, mounted])
def test_routes_of_the_service_are_fast(make: Callable[[], FastAPI]) -> None:
    """Errors of routing are left to the application, and so is all that is not ours."""
    routes = fast_routes(make())
    assert routes.are_used
    assert is_fast(routes, "/ml/v2/models")
    assert is_fast(routes, "/ml/v2/models/digits-10/infer", "POST")
    assert is_fast(routes, "/ml/v2/models", "HEAD")
    for path in ("/v2/models", "/mine", "/ml/nothing", "/ml", "/mlx/v2/models"):
        assert not is_fast(routes, path)
    assert not is_fast(routes, "/ml/v2/models/digits-10/infer")


@pytest.mark.parametrize(
    ("app", "reason"),
    [
        (with_middleware, "middleware"),
        (with_middleware_in_a_mount, "middleware"),
        (with_handler, "exception handlers"),
        (with_own_routes_in_the_router, "routes in the router of the service"),
        (with_dependencies_of_the_application, "dependencies"),
        (lambda: included(dependencies=[Depends(nothing)]), "dependencies"),
        (lambda: included(max_body_size=9), "max_body_size"),
        (with_root_path, "root_path"),
        (with_replaced_method, "own build_middleware_stack"),
        (with_replaced_stack, "middleware"),
        (with_middleware_of_the_router, "middleware"),
        (with_route_for_a_host, "routes for some hosts or headers only"),
        (with_route_for_a_header, "routes for some hosts or headers only"),
        (lambda: mounted(FastAPI(max_body_size=9)), "max_body_size"),
        (lambda: mounted(OwnFastAPI()), "class OwnFastAPI"),
        (lambda: GZipMiddleware(included()), "class GZipMiddleware"),
        (
            lambda: FastAPI(
                routes=[Mount("/ml", turnpike.create_app(), middleware=[Middleware(GZipMiddleware)])]
            ),
            "class GZipMiddleware",
        ),
    ],
)
def test_what_the_user_adds_sees_all_requests(app: Callable[[], Any], reason: str) -> None:
    """Unless that is turned off."""
    made = app()
    routes = fast_routes(made)
    assert (routes.are_used, routes.skipped) == (False, (reason,))
    assert not is_fast(routes, "/ml/v2/models")
    forced = fast_routes(made, forced=True)
    assert is_fast(forced, "/ml/v2/health/live")
    assert forced.skipped == (reason,)


@pytest.mark.parametrize("owner", [FastAPI, Starlette])
def test_a_method_replaced_in_the_class_sees_all_requests(owner: type) -> None:
    """As Sentry replaces `Starlette.__call__`."""
    app = included()
    with patch.object(owner, "__call__", lambda *arguments: None):
        assert fast_routes(app).skipped == (f"own {owner.__name__}.__call__",)
    assert fast_routes(app).are_used


def test_what_sees_no_request_before_the_service_changes_nothing() -> None:
    """A document of one's own, and routes for a host behind those of the service."""
    app = included()
    app.openapi = dict  # type: ignore[method-assign]
    app.state.mine = 1
    app.host("api.example.org", FastAPI())
    app.mount("/other", FastAPI())
    assert fast_routes(app).are_used


def test_a_mount_that_comes_first_answers_for_its_path() -> None:
    app = FastAPI()
    app.mount("/ml/v2/health", FastAPI())
    app.include_router(turnpike.router(), prefix="/ml")
    routes = fast_routes(app)
    assert is_fast(routes, "/ml/v2/models")
    assert not is_fast(routes, "/ml/v2/health/live")


def test_routes_that_come_first_are_asked_first() -> None:
    """Also those of mounts around the service, and only for their own paths."""

    def refuse() -> None:
        raise HTTPException(418)

    inner = FastAPI()
    inner.add_api_route("/deep/v2/models/{name}", refuse)
    inner.mount("/deep", turnpike.create_app())
    app = FastAPI()
    app.add_api_route("/ml/deep/v2/health/live", refuse)
    app.mount("/ml", inner)
    app.add_api_route("/ml/deep/v2/models/later/infer", refuse, methods=["POST"])
    routes = fast_routes(app)
    assert routes.are_used
    assert not is_fast(routes, "/ml/deep/v2/health/live")
    assert not is_fast(routes, "/ml/deep/v2/models/any")
    assert is_fast(routes, "/ml/deep/v2/health/ready")
    assert is_fast(routes, "/ml/deep/v2/models/later/infer", "POST")


def test_the_document_is_the_one_of_fastapi() -> None:
    app = mounted()
    assert not is_fast(fast_routes(app), "/ml/openapi.json")
    assert is_fast(fast_routes(app), "/ml/docs")


def test_an_app_of_the_service_passes_fastapi_by_until_something_is_added() -> None:
    """Middleware that is added later sees all requests from then on."""
    app = turnpike.create_app()
    with TestClient(app) as client:
        assert client.get("/v2/models").status_code == 200
        with patch.object(FastAPI, "__call__", side_effect=AssertionError("through FastAPI")):
            assert client.get("/v2/models").status_code == 200
            with pytest.raises(AssertionError, match="through FastAPI"):
                client.get("/openapi.json")
        assert client.get("/openapi.json").status_code == 200
    seen: list[str] = []
    app = turnpike.create_app()

    @app.middleware("http")
    async def note(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        seen.append(request.url.path)
        return await call_next(request)

    with TestClient(app) as client:
        assert client.get("/v2/models").status_code == 200
    assert seen == ["/v2/models"]


def test_an_app_of_the_service_notices_instrumentation_after_its_start() -> None:
    app = turnpike.create_app()
    with TestClient(app) as client:
        assert client.get("/v2/models").status_code == 200
        app.build_middleware_stack = app.build_middleware_stack  # type: ignore[method-assign]
        with (
            patch.object(FastAPI, "__call__", side_effect=AssertionError("through FastAPI")),
            pytest.raises(AssertionError, match="through FastAPI"),
        ):
            client.get("/v2/models")
