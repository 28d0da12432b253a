"""The service put together: the one place where the parts meet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Response
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from service.api import admin, health, predict
from service.api import open_inference as oip
from service.api.context import ServiceContext, SupervisorClient
from service.api.dashboard import add_dashboard
from service.api.gates import routes as gate_routes
from service.api.openapi.reference_page import add_reference
from service.artifact.limits import RequestLimits
from service.artifact.low_priority import low_priority_caller
from service.artifact.runtime import expect_device
from service.config.cpus import threads_per_worker
from service.http.auth import Authenticator
from service.http.body import MemoryBudget
from service.http.door import Door
from service.http.tracing import Tracing
from service.registry.loader import load
from service.registry.model import Model
from service.registry.registry import ModelRegistry
from service.repository.scan import ModelFile
from service.telemetry.counters import RequestCounters
from service.version import VERSION

if TYPE_CHECKING:
    from service.config.settings import Settings


class Application:
    """One worker's ASGI application. Its handlers are what the supervisor asks of it."""

    def __init__(self, settings: Settings, control: SupervisorClient) -> None:
        meter = RequestCounters()
        self._load = partial(load, settings=settings, counters=meter, threads=threads_per_worker(settings))
        self.shelf = ModelRegistry(self._loaded)
        self.parts = ServiceContext(
            settings=settings,
            limits=RequestLimits(
                max_rows=settings.max_rows, max_depth=settings.max_depth, max_json_bytes=settings.max_json
            ),
            shelf=self.shelf,
            meter=meter,
            access=Authenticator.from_settings(settings),
            held=MemoryBudget(settings.max_held, limit=settings.max_body, seconds=settings.body_seconds),
            control=control,
        )
        self.draining = False
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "prepare": self.shelf.prepare,
            "commit": self.shelf.commit,
            "snapshot": self.snapshot,
        }
        self._tracing = Tracing.from_settings(settings)
        self._door = Door(routed(self.parts, self.is_ready), self.parts, self._tracing)
        # what connections refuse themselves
        self.refused = self._door.refused
        # and whom they may hand a request to without a detour
        self.express = self._door.express

    def _loaded(self, found: ModelFile) -> Model:
        """A model of the repository; while there are others to answer for, they go first."""
        if not self.shelf.models:
            return self._load(found)
        with low_priority_caller() as call:
            return self._load(found, call=call)

    def is_ready(self) -> bool:
        """Whether requests should be sent here."""
        return self.shelf.ready and not self.draining

    async def snapshot(self, _: Any = None) -> dict[str, Any]:
        """What this worker has counted so far."""
        models = self.shelf.models
        waiting = {(model.name, model.version): model.batcher.waiting for model in models}
        drift: dict[str, dict[str, Any]] = {}
        for model in models:
            if model.drift is not None:
                drift.setdefault(model.name, {})[str(model.version)] = model.drift.snapshot()
        return {"meter": self.parts.meter.snapshot(waiting), "drift": drift}

    async def start(self) -> None:
        """See that what all models need is there; they are loaded when a plan comes."""
        expect_device(self.parts.settings.device)

    async def stop(self) -> None:
        """Send the last spans."""
        if self._tracing is not None:
            self._tracing.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door(scope, receive, send)


def create_app(settings: Settings, control: SupervisorClient) -> Application:
    """The application of these settings; models are loaded when a plan is prepared."""
    return Application(settings, control)


def routed(parts: ServiceContext, is_ready: Callable[[], bool]) -> FastAPI:
    """Every route, those that are called most first."""
    settings = parts.settings
    app = FastAPI(
        title="turnpike",
        version=VERSION,
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.router.routes[:0] = oip.infer_routes(parts) + predict.predict_routes(parts) + gate_routes(parts)
    for router in (
        health.router(parts.access, is_ready),
        oip.router(parts),
        predict.router(parts),
        admin.router(parts),
    ):
        app.include_router(router)

    @app.get(
        "/metrics",
        tags=["Metrics"],
        dependencies=[Depends(parts.access.needs("api"))],
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        """Counts of all workers, for Prometheus."""
        # its library is there from the first scrape on, and nobody waits while that is imported
        await asyncio.to_thread(import_module, "service.api.metrics")
        from service.api.metrics import collect_metrics, metrics_response

        families = collect_metrics(await parts.control.ask("snapshots"), parts.shelf)
        return await asyncio.to_thread(metrics_response, families)

    app.openapi = partial(openapi, app)  # type: ignore[method-assign]
    if settings.dashboard:
        add_dashboard(app, parts.access)
    if settings.docs:
        add_reference(app, parts.access)
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """The document, and what makes it, when it is first asked for."""
    from service.api.openapi.document import openapi

    return openapi(app)
