"""The application of a worker that also serves gRPC: the calls of its services, and their middleware."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from turnpike.service.api.app import Application
from turnpike.service.api.context import SupervisorClient
from turnpike.service.config.settings import Settings
from turnpike.service.errors import UnimplementedError
from turnpike.service.grpc.messages.descriptors import POOL
from turnpike.service.grpc.methods.gates import GrpcLesionCurveEndpoint, GrpcLesionEndpoint, ReadGatesEndpoint
from turnpike.service.grpc.methods.health import HealthMethods, WatchEndpoint
from turnpike.service.grpc.methods.infer import GrpcInferEndpoint
from turnpike.service.grpc.methods.open_inference import OpenInferenceMethods
from turnpike.service.grpc.methods.predict import GrpcPredictEndpoint, describe
from turnpike.service.grpc.methods.reflection import ReflectionEndpoint
from turnpike.service.grpc.methods.stream_infer import StreamInferEndpoint
from turnpike.service.grpc.methods.unary import UnaryEndpoint
from turnpike.service.registry.hooks import Hooks
from turnpike.service.requests.auth import AccessLevel
from turnpike.service.requests.hosts import AllowedHosts
from turnpike.service.requests.middleware import RequestMiddleware
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Endpoint, Router

INFERENCE = "inference.GRPCInferenceService"
GATES = "turnpike.v1.GateService"
MODELS = "turnpike.v1.ModelService"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1.ServerReflection"
# the name that reflection had before; its messages are the same
OLD_REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class GrpcApplication(Application):
    """The application of HTTP, with `grpc` beside it: both have the same models, limits, counters and log."""

    def __init__(
        self, settings: Settings, supervisor: SupervisorClient, hooks: Mapping[str, Hooks] | None = None
    ) -> None:
        super().__init__(settings, supervisor, hooks)
        self.grpc: GrpcService = GrpcService(self)


class GrpcService:
    """What a connection of a gRPC client needs: `handle` answers a call."""

    def __init__(self, app: Application) -> None:
        self.connection_limits = app.connection_limits
        self.count_refused = app.count_refused
        self.compressed = app.compressor.compressed
        context = app.context
        self.count_stream_end = context.counters.count_stream_end
        self.count_connection_end = context.counters.count_connection_end
        self.router = _router(app, self.handle)
        self._middleware = RequestMiddleware(
            self.router,
            context.auth,
            context.budget,
            app.observer,
            AllowedHosts.from_settings(context.settings),
            # no compressor: a call compresses its messages one by one
        )

    def handle(self, request: Request) -> Coroutine[Any, Any, None]:
        """Answer a call."""
        return self._middleware.handle(request)


def _router(app: Application, handle: Callable[[Request], Coroutine[Any, Any, None]]) -> Router:
    """All calls, by their paths."""
    context = app.context
    router = Router(_unknown_method)

    def add(
        service: str, method: str, level: AccessLevel, endpoint: Endpoint, *, any_host: bool = False
    ) -> None:
        name = f"{service}.{method}"
        router.add("POST", f"/{service}/{method}", level, endpoint, name, {}, any_host=any_host)

    def add_unary(
        service: str, method: str, level: AccessLevel, answer: Callable[[Any], Any], *, any_host: bool = False
    ) -> None:
        message = POOL.FindMethodByName(f"{service}.{method}").input_type.full_name
        add(service, method, level, UnaryEndpoint(context.bodies, message, answer), any_host=any_host)

    def is_draining() -> bool:
        return app.draining

    add(INFERENCE, "ModelInfer", "api", GrpcInferEndpoint(context))
    add(INFERENCE, "ModelStreamInfer", "api", StreamInferEndpoint(context.bodies, context.budget, handle))
    calls = OpenInferenceMethods(context, app.is_ready)
    add_unary(INFERENCE, "ServerLive", "open", calls.server_live, any_host=True)
    add_unary(INFERENCE, "ServerReady", "open", calls.server_ready, any_host=True)
    add_unary(INFERENCE, "ServerMetadata", "api", calls.server_metadata)
    add_unary(INFERENCE, "ModelReady", "api", calls.model_ready)
    add_unary(INFERENCE, "ModelMetadata", "api", calls.model_metadata)
    add_unary(INFERENCE, "ModelConfig", "api", calls.model_config)
    add_unary(INFERENCE, "ModelStatistics", "api", calls.model_statistics)
    add_unary(INFERENCE, "RepositoryIndex", "api", calls.repository_index)
    add_unary(INFERENCE, "RepositoryModelLoad", "admin", calls.load_model)
    add_unary(INFERENCE, "RepositoryModelUnload", "admin", calls.unload_model)

    add(GATES, "ReadGates", "api", ReadGatesEndpoint(context))
    add(GATES, "Lesion", "api", GrpcLesionEndpoint(context))
    add(GATES, "LesionCurve", "api", GrpcLesionCurveEndpoint(context))

    add(MODELS, "Predict", "api", GrpcPredictEndpoint(context))
    add_unary(MODELS, "Describe", "api", partial(describe, context))

    services = (INFERENCE, GATES, MODELS, HEALTH, REFLECTION, OLD_REFLECTION)
    health = HealthMethods(context.registry, frozenset(services), app.is_ready, is_draining)
    add_unary(HEALTH, "Check", "open", health.check, any_host=True)
    watch = WatchEndpoint(context.bodies, context.budget, health, is_draining)
    add(HEALTH, "Watch", "open", watch, any_host=True)
    # the older name has no descriptor: a client that describes all listed services would fail at it
    listed = [service for service in services if service != OLD_REFLECTION]
    reflection = ReflectionEndpoint(context.bodies, context.budget, listed)
    for service in (REFLECTION, OLD_REFLECTION):
        add(service, "ServerReflectionInfo", "open", reflection)
    return router


async def _unknown_method(request: Request) -> Response:
    raise UnimplementedError(f"{request.head.logged_path}: there is no such method")
