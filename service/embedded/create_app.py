"""The service as a FastAPI application, or as a router for one: `create_app`, `router` and `lifespan`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from turnpike.common.distribution import VERSION
from turnpike.service.api.openapi.document import DESCRIPTION
from turnpike.service.config.service_settings import ServiceSettings
from turnpike.service.embedded.embedded_service import EmbeddedService
from turnpike.service.embedded.embedded_settings import EmbeddedSettings
from turnpike.service.embedded.fast_routes import ServiceApp
from turnpike.service.embedded.fastapi_routes import add_service_routes, document_of, services_in
from turnpike.service.registry.hooks import Hooks


def create_app(
    models: str | Path | None = None,
    *,
    hooks: Mapping[str, Hooks] | None = None,
    **settings: Unpack[ServiceSettings],
) -> FastAPI:
    """The whole service as a FastAPI application, to run under any ASGI server, to extend or to mount.

    Where it is mounted in another application, it starts at its first request, or with that application if
    this has `lifespan=turnpike.lifespan`.

    Args:
        models: What to serve, as `turnpike serve` takes it. The default is what the environment says, or the
            bundled model.
        hooks: What runs before and after models, by the names of these models.
        settings: Settings of the service, see docs/reference/command-line.md. They override the environment.

    Raises:
        SettingError: A setting is unknown or invalid.
    """
    service = EmbeddedService(EmbeddedSettings.from_arguments(models, settings), hooks)

    @asynccontextmanager
    async def run(_: FastAPI) -> AsyncIterator[None]:
        async with started(service):
            yield

    app = ServiceApp(
        service,
        title="turnpike",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json" if service.application.context.settings.docs else None,
        redirect_slashes=False,
        lifespan=run,
    )
    add_service_routes(app.router, service, inline_schemas=False)
    fallback = service.application.router.fallback

    async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await service.answer(fallback, scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    app.router.default = not_found
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]
    return app


def router(
    models: str | Path | None = None,
    *,
    hooks: Mapping[str, Hooks] | None = None,
    **settings: Unpack[ServiceSettings],
) -> APIRouter:
    """The routes of the service for `app.include_router`, which also starts and stops it with `app`.

    It has no pages unless `dashboard=True`, and no documentation of its own unless `docs=True`, also by the
    environment: the document of the application describes its routes.

    Args:
        models: As `create_app` takes it.
        hooks: As `create_app` takes them.
        settings: As `create_app` takes them.

    Raises:
        SettingError: A setting is unknown or invalid.
    """
    service = EmbeddedService(
        EmbeddedSettings.from_arguments(models, settings, defaults={"dashboard": False, "docs": False}), hooks
    )

    @asynccontextmanager
    async def run(_: Any) -> AsyncIterator[None]:
        async with started(service):
            yield

    routes = APIRouter(lifespan=run)
    add_service_routes(routes, service, inline_schemas=True)
    return routes


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Starts and stops the services that are mounted in an application with it: `FastAPI(lifespan=lifespan)`.

    In a lifespan of one's own: `async with turnpike.lifespan(app): yield`.
    """
    async with AsyncExitStack() as stack:
        for service in dict.fromkeys(services_in(app.routes)):
            await stack.enter_async_context(started(service))
        yield


@asynccontextmanager
async def started(service: EmbeddedService) -> AsyncIterator[None]:
    """Start a service, and stop it in the end."""
    try:
        await service.start()
        yield
    finally:
        await service.stop()
