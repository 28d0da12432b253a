"""What the routes of one worker share, assembled by `app.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from service.artifact.limits import RequestLimits
from service.http.auth import Authenticator
from service.http.body import MemoryBudget
from service.registry.registry import ModelRegistry
from service.telemetry.counters import RequestCounters

if TYPE_CHECKING:
    from service.config.settings import Settings


class SupervisorClient(Protocol):
    """Asks all workers for something, through the supervisor."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        """Ask for "snapshots", "load" or "unload", and return the answer."""


@dataclass(frozen=True)
class ServiceContext:
    """One worker's settings, models, counters and keys."""

    settings: Settings
    limits: RequestLimits
    registry: ModelRegistry
    counters: RequestCounters
    auth: Authenticator
    budget: MemoryBudget
    supervisor: SupervisorClient
