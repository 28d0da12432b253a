"""The objects that all routes of a worker share: settings, models, counters, keys, memory budget, bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.config.settings import Settings
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.body import BodyReader
from turnpike.service.requests.payload_events import PayloadEvents
from turnpike.service.telemetry.counters import RequestCounters


class SupervisorClient(Protocol):
    """A worker's channel to the supervisor, which in turn asks all workers."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        """Ask for "snapshots", "traffic", "load" or "unload", and return the answer."""


@dataclass(frozen=True)
class ServiceContext:
    """The shared objects of one worker, created in `app.py`."""

    settings: Settings
    limits: RequestLimits
    registry: ModelRegistry
    counters: RequestCounters
    auth: Authenticator
    budget: MemoryBudget
    bodies: BodyReader
    supervisor: SupervisorClient
    # None if no payload events are sent
    events: PayloadEvents | None = None
