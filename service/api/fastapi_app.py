"""The FastAPI application: the dashboard, and the documentation of all routes.

It is imported and created at the first request for one of them, or for an unknown path: see
`FastApiEndpoint` in `app.py`.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from turnpike.common.distribution import VERSION
from turnpike.service.api.context import ServiceContext
from turnpike.service.api.dashboard import add_dashboard
from turnpike.service.api.openapi.reference_page import add_reference
from turnpike.service.requests.router import Route


def create_app(context: ServiceContext, routes: list[Route]) -> FastAPI:
    """The application. `routes` are those of the router, which the documentation describes too."""
    app = FastAPI(
        title="turnpike",
        version=VERSION,
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    if context.settings.dashboard:
        add_dashboard(app, context.auth)
    if context.settings.docs:
        add_reference(app, routes, context.auth)
    return app


def without_middleware(app: FastAPI) -> ASGIApp:
    """FastAPI's routes without its own middleware, since RequestMiddleware already answers errors."""
    routes = AsyncExitStackMiddleware(app.router)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # without an app in the scope, the routes answer 404 themselves instead of raising it
        scope["app"] = app
        await routes(scope, receive, send)

    return serve
