"""The application of one worker: creates the models, the routes and the middleware from the settings.

Requests that run a model, or read facts from its file, go from the connection through the middleware to their
endpoint, without FastAPI. FastAPI serves all other routes (documentation, dashboard, metadata, admin, health)
behind an adapter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Response
from starlette.types import Receive, Scope, Send

from service.api import admin, gates, health, lesion, model_facts, open_inference, predict, traffic
from service.api.context import ServiceContext, SupervisorClient
from service.api.dashboard import add_dashboard
from service.api.openapi.operation import operation
from service.api.openapi.reference_page import add_reference
from service.artifact.limits import RequestLimits
from service.artifact.low_priority import low_priority_caller
from service.artifact.runtime import expect_device
from service.config.cpus import threads_per_worker
from service.config.memory_share import max_held_bytes
from service.http.asgi import AsgiRequest, fastapi_endpoint
from service.http.auth import Authenticator
from service.http.body import BodyReader
from service.http.connection.shared_state import ConnectionLimits
from service.http.cors import Cors
from service.http.hosts import AllowedHosts
from service.http.middleware import RequestMiddleware
from service.http.observer import RequestObserver
from service.http.router import Router
from service.http.tracing import Tracing
from service.memory.budget import MemoryBudget
from service.registry.loader import load
from service.registry.model import Model
from service.registry.registry import ModelRegistry
from service.repository.scan import ModelFile
from service.telemetry.access_log import access_log
from service.telemetry.counters import RequestCounters
from service.version import VERSION

if TYPE_CHECKING:
    from service.config.settings import Settings


class Application:
    """What a worker serves: `handle` is called by our own server, `__call__` by any ASGI server.

    `handlers` handle the requests of the supervisor, by name.
    """

    def __init__(self, settings: Settings, supervisor: SupervisorClient) -> None:
        counters = RequestCounters()
        budget = MemoryBudget(max_held_bytes(settings))
        self._load = partial(load, settings=settings, counters=counters, threads=threads_per_worker(settings))
        self.registry = ModelRegistry(self._load_model)
        self.context = ServiceContext(
            settings=settings,
            limits=RequestLimits(
                max_rows=settings.max_rows, max_depth=settings.max_depth, max_json_bytes=settings.max_json
            ),
            registry=self.registry,
            counters=counters,
            auth=Authenticator.from_settings(settings),
            budget=budget,
            bodies=BodyReader(
                budget,
                limit=settings.max_body,
                seconds=settings.body_seconds,
                max_ratio=settings.max_inflate_ratio,
            ),
            supervisor=supervisor,
        )
        self.draining = False
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "prepare": self.registry.prepare,
            "commit": self.registry.commit,
            "snapshot": self.snapshot,
        }
        self.connection_limits = ConnectionLimits(
            settings.max_header, settings.header_seconds, settings.idle_seconds
        )
        self._tracing = Tracing.from_settings(settings)
        self.fastapi, self.router = build_routes(self.context, self.is_ready)
        self._observer = RequestObserver(counters, self._tracing, access_log if settings.access_log else None)
        self._middleware = RequestMiddleware(
            self.router,
            self.context.auth,
            self.context.budget,
            self._observer,
            Cors(settings.cors) if settings.cors else None,
            AllowedHosts.from_settings(settings),
        )
        # what the connections call
        self.handle = self._middleware.handle
        self.count_refused = self._observer.refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._middleware.handle(AsgiRequest(scope, receive, send))
        else:
            await self.fastapi(scope, receive, send)

    def _load_model(self, file: ModelFile) -> Model:
        """Load a model of the repository; at low priority if requests for other models may come meanwhile."""
        if not self.registry.models:
            return self._load(file)
        with low_priority_caller() as call:
            return self._load(file, call=call)

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that requests and unread answers hold."""
        return self.context.budget.bytes

    def is_ready(self) -> bool:
        """Whether load balancers should send requests here."""
        return self.registry.ready and not self.draining

    async def snapshot(self, _: Any = None) -> dict[str, Any]:
        """The counters of this worker, and the drift counts of its models."""
        self._observer.record()
        models = self.registry.models
        waiting = {(model.name, model.version): model.batcher.waiting for model in models}
        drift: dict[str, dict[str, Any]] = {}
        for model in models:
            if model.drift is not None:
                drift.setdefault(model.name, {})[str(model.version)] = model.drift.snapshot()
        return {"counters": self.context.counters.snapshot(waiting), "drift": drift}

    async def start(self) -> None:
        """Check that the device is available. Models are loaded when the supervisor sends a deployment."""
        expect_device(self.context.settings.device, self.context.settings.precision)

    async def stop(self) -> None:
        """Record the last requests, and send the last traces."""
        self._observer.record()
        if self._tracing is not None:
            self._tracing.close()


def build_routes(context: ServiceContext, is_ready: Callable[[], bool]) -> tuple[FastAPI, Router]:
    """All routes: a FastAPI application, and a router for the fast routes that falls back to it."""
    settings = context.settings
    fastapi = FastAPI(
        title="turnpike",
        version=VERSION,
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    router = Router(fallback=fastapi_endpoint(fastapi))
    for module in (open_inference, predict, gates, lesion, model_facts):
        module.add_routes(router, context)
    for routes in (
        health.fastapi_routes(context.auth, is_ready),
        open_inference.fastapi_routes(context),
        predict.fastapi_routes(context),
        admin.fastapi_routes(context),
        traffic.fastapi_routes(context),
    ):
        fastapi.include_router(routes)

    @fastapi.get(
        "/metrics",
        tags=["Metrics"],
        dependencies=[Depends(context.auth.require("api"))],
        openapi_extra=operation("Metrics", media_type="text/plain"),
    )
    async def metrics() -> Response:
        """Counters of all workers, for Prometheus."""
        # prometheus_client is imported at the first scrape, in a thread because the import is slow
        await asyncio.to_thread(import_module, "service.api.metrics")
        from service.api.metrics import collect_metrics, metrics_response

        families = collect_metrics(await context.supervisor.ask("snapshots"), context.registry)
        return await asyncio.to_thread(metrics_response, families)

    if settings.dashboard:
        add_dashboard(fastapi, context.auth)
    else:
        health.add_root(fastapi, context.auth)
    if settings.docs:
        add_reference(fastapi, router.routes, context.auth)
    return fastapi, router
