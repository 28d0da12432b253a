"""A supervisor for a single worker in this process, for routes that ask for the counters of all workers."""

from __future__ import annotations

from typing import Any

from tests.support.in_process_worker import InProcessWorker
from turnpike.service.telemetry.traffic_history import TrafficHistory


class OneWorker:
    """A supervisor whose only worker is this one."""

    def __init__(self, worker: InProcessWorker) -> None:
        self._snapshot = worker.app.snapshot

    async def ask(self, what: str, argument: Any = None) -> Any:
        if what == "traffic":
            return TrafficHistory().to_json(argument)
        assert what == "snapshots"
        return [await self._snapshot()]


def with_supervisor(worker: InProcessWorker) -> InProcessWorker:
    """The worker, with a supervisor that answers."""
    object.__setattr__(worker.app.context, "supervisor", OneWorker(worker))
    return worker
