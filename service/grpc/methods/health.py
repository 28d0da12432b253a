"""The health checks of gRPC, for probes and load balancers: of the server, of a service, or of a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from turnpike.service.errors import NotFoundError, NotReadyError, RequestError
from turnpike.service.grpc.connection.call import Call
from turnpike.service.grpc.messages.descriptors import message_class, parse
from turnpike.service.grpc.methods.read_messages import read_message
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.requests.body import BodyReader

HealthRequest = message_class("grpc.health.v1.HealthCheckRequest")
HealthResponse = message_class("grpc.health.v1.HealthCheckResponse")
# characters in the name of a service or model to watch
MAX_NAME_LENGTH = 256
# how often a watch looks for a change
WATCH_SECONDS = 0.2


class HealthMethods:
    """Answers `Check` and `Watch`.

    Args:
        registry: The models.
        services: Full names of the services that are as ready as the server.
        is_ready: Whether the server is ready.
        is_draining: Whether it is about to stop.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        services: frozenset[str],
        is_ready: Callable[[], bool],
        is_draining: Callable[[], bool],
    ) -> None:
        self._registry, self._services = registry, services
        self._is_ready, self._is_draining = is_ready, is_draining

    def check(self, request: Any) -> Any:
        """The state of what the message names."""
        return HealthResponse(status="SERVING" if self._serves(request.service) else "NOT_SERVING")

    def _serves(self, name: str) -> bool:
        """Whether the server, a service or a model gets requests; raises NotFoundError for other names."""
        if not name or name in self._services:
            return self._is_ready()
        return self._registry.is_ready(name) and not self._is_draining()

    def state(self, name: str) -> str:
        """The state, also of a name that is unknown."""
        try:
            return "SERVING" if self._serves(name) else "NOT_SERVING"
        except NotFoundError:
            return "SERVICE_UNKNOWN"


class WatchEndpoint:
    """Sends the state of what the message names, and again whenever it changes, until the server stops."""

    def __init__(
        self,
        bodies: BodyReader,
        budget: MemoryBudget,
        health: HealthMethods,
        is_draining: Callable[[], bool],
    ) -> None:
        self._bodies, self._budget = bodies, budget
        self._health, self._is_draining = health, is_draining

    async def __call__(self, call: Call) -> None:
        name = parse(HealthRequest, await read_message(self._bodies, call)).service
        if len(name) > MAX_NAME_LENGTH:
            # it is kept as long as the stream, which needs no key
            raise RequestError(f"service: expected at most {MAX_NAME_LENGTH} characters, got {len(name)}")
        call.complete_body = None
        self._budget.release(call)
        last = None
        while True:
            is_draining = self._is_draining()
            state = self._health.state(name)
            if state != last:
                last = state
                await call.send_message(HealthResponse(status=state).SerializeToString())
            if is_draining:
                raise NotReadyError("the server is stopping")
            await asyncio.sleep(WATCH_SECONDS)
