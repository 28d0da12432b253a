"""The parts that every route works with, put together by `app.py`."""

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
    """What a worker asks of all workers, through the supervisor."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        """Ask for "snapshots", "load" or "unload", and wait for the answer."""


@dataclass(frozen=True)
class ServiceContext:
    """One worker's: its settings, its models, what it counts, whom it lets in."""

    settings: Settings
    limits: RequestLimits
    shelf: ModelRegistry
    meter: RequestCounters
    access: Authenticator
    held: MemoryBudget
    control: SupervisorClient
