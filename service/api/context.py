"""The parts that every route works with, put together by `app.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from service.artifact.limits import Limits
from service.http.auth import Access
from service.http.body import Held
from service.registry.registry import Shelf
from service.telemetry.counters import Meter

if TYPE_CHECKING:
    from service.config.settings import Settings


class Control(Protocol):
    """What a worker asks of all workers, through the supervisor."""

    async def ask(self, what: str, argument: Any = None) -> Any:
        """Ask for "snapshots", "load" or "unload", and wait for the answer."""


@dataclass(frozen=True)
class Parts:
    """One worker's: its settings, its models, what it counts, whom it lets in."""

    settings: Settings
    limits: Limits
    shelf: Shelf
    meter: Meter
    access: Access
    held: Held
    control: Control
