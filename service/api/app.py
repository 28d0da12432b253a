"""The application of one worker: creates the models, the routes and the middleware from the settings.

Requests go from the connection through the middleware to their endpoint, without FastAPI: see `embedded` for
the same routes as a FastAPI application.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from turnpike.service.api import (
    admin,
    dashboard,
    gates,
    health,
    lesion,
    model_facts,
    open_inference,
    predict,
    statistics,
)
from turnpike.service.api.context import ServiceContext, SupervisorClient
from turnpike.service.api.openapi import reference_page
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.runtime import expect_device
from turnpike.service.config.cpus import threads_per_worker
from turnpike.service.config.memory_share import max_held_bytes
from turnpike.service.config.settings import Settings
from turnpike.service.http.asgi import AsgiRequest
from turnpike.service.http.compression import AnswerCompressor
from turnpike.service.http.connection.shared_state import ConnectionLimits, HttpApplication
from turnpike.service.http.cors import Cors
from turnpike.service.low_priority import low_priority_caller
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.registry.hooks import Hooks, checked_hooks, unknown_model
from turnpike.service.registry.loader import load
from turnpike.service.registry.model import Model
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.repository.scan import ModelFile
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.hosts import AllowedHosts
from turnpike.service.requests.middleware import RequestMiddleware
from turnpike.service.requests.observer import RequestObserver
from turnpike.service.requests.payload_events import PayloadEvents
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Router
from turnpike.service.requests.tracing import Tracing
from turnpike.service.telemetry.access_log import access_log
from turnpike.service.telemetry.counters import RequestCounters
from turnpike.service.weights.cache import MIN_MODEL_BYTES, WeightsCache

log = logging.getLogger(__name__)


class Application:
    """What a worker serves: `handle` is called by our own server, `__call__` by any ASGI server.

    `handlers` handle the requests of the supervisor, by name. `hooks` run before and after models, by the
    names of these models.
    """

    def __init__(
        self, settings: Settings, supervisor: SupervisorClient, hooks: Mapping[str, Hooks] | None = None
    ) -> None:
        self._hooks = checked_hooks(hooks)
        # whether it was said which hooks have no model
        self._hooks_compared = not self._hooks
        counters = RequestCounters()
        budget = MemoryBudget(max_held_bytes(settings))
        # the cache of prepared weights, opened for the first file that is large enough
        self._weights: WeightsCache | None = None
        self._weights_opened = False
        self._load = partial(load, settings=settings, counters=counters, threads=threads_per_worker(settings))
        self.registry = ModelRegistry(self._load_model)
        self.context = ServiceContext(
            settings=settings,
            limits=RequestLimits(
                max_rows=settings.max_rows,
                max_depth=settings.max_depth,
                max_json_bytes=settings.max_json,
                max_ids_bytes=settings.max_body,
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
            events=PayloadEvents.from_settings(settings),
        )
        if self.context.events is not None:
            counters.payload_events = self.context.events.counts
        self.draining = False
        # why an application of a user has not started the service; None once it has
        self.unstarted_reason: str | None = None
        # the calls of gRPC, in the subclass that serves them
        self.grpc: HttpApplication | None = None
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "prepare": self.registry.prepare,
            "commit": self._commit,
            "snapshot": self.snapshot,
        }
        self.connection_limits = ConnectionLimits(
            settings.max_header, settings.header_seconds, settings.idle_seconds
        )
        self._tracing = Tracing.from_settings(settings)
        self.router = build_router(self.context, self.unready_reason)
        self.observer = RequestObserver(counters, self._tracing, access_log if settings.access_log else None)
        self.compressor = AnswerCompressor(self.context.budget)
        self.middleware = RequestMiddleware(
            self.router,
            self.context.auth,
            self.context.budget,
            self.observer,
            AllowedHosts.from_settings(settings),
            preflight=Cors(settings.cors).apply if settings.cors else None,
            compressor=self.compressor,
        )
        # what the connections call
        self.handle = self.middleware.handle
        self.count_refused = self.observer.count_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.middleware.handle(AsgiRequest(scope, receive, send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})

    def _load_model(self, file: ModelFile) -> Model:
        """Load a model of the repository; at low priority if requests for other models may come meanwhile."""
        hooks = self._hooks.get(file.name)
        if not self._weights_opened and file.size >= MIN_MODEL_BYTES:
            self._weights, self._weights_opened = WeightsCache.from_settings(self.context.settings), True
        load_file = partial(self._load, file, tried=file.tried, hooks=hooks, weights=self._weights)
        if not self.registry.models:
            return load_file()
        with low_priority_caller() as call:
            return load_file(call=call)

    async def _commit(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Serve a deployment from now on. The first complete one shows which hooks have no model."""
        outcome = await self.registry.commit(record)
        if self._weights is not None:
            await asyncio.to_thread(self._weights.remove_unused)
        if not self._hooks_compared and record["complete"]:
            self._hooks_compared = True
            known = {version["name"] for version in self.registry.index()}
            for name in self._hooks.keys() - known:
                log.warning("%s; these hooks run once there is such a model", unknown_model(name, known))
        return outcome

    def is_ready(self) -> bool:
        """Whether load balancers should send requests here."""
        return self.registry.ready and not self.draining

    def unready_reason(self) -> str | None:
        """Why load balancers should send no requests here; None if they should."""
        if self.draining:
            return "the service is stopping"
        if self.unstarted_reason is not None:
            return self.unstarted_reason
        # probes need no key, and so learn no names of models if others need one
        return self.registry.unready_reason(naming=not self.context.auth.has_keys("api"))

    async def snapshot(self, _: Any = None) -> dict[str, Any]:
        """The counters of this worker, and the drift counts of its models."""
        self.observer.record()
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
        """Record the last requests, and send the last payload events and traces."""
        self.observer.record()
        if self.context.events is not None:
            await self.context.events.close()
        if self._tracing is not None:
            self._tracing.close()


def build_router(context: ServiceContext, unready_reason: Callable[[], str | None]) -> Router:
    """All routes of the service."""
    router = Router(not_found)
    page = dashboard.add_routes(router) if context.settings.dashboard else None
    health.add_routes(router, unready_reason, page)
    for module in (statistics, open_inference, predict, gates, lesion, model_facts, admin):
        module.add_routes(router, context)
    if context.settings.docs:
        reference_page.add_routes(router)
    return router


async def not_found(_: Request) -> Response:
    """Answer a request that matches no route."""
    raise HTTPException(404)
