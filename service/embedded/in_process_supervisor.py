"""Does for one application in its process what the supervisor does for the workers of `turnpike serve`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from turnpike.service.api.context import SupervisorClient
from turnpike.service.config.settings import Settings
from turnpike.service.errors import NotReadyError
from turnpike.service.process.trial import Trial
from turnpike.service.remote.remote_repository import open_repository
from turnpike.service.repository.location import warning_of_other_folder
from turnpike.service.repository.rollout import Rollout
from turnpike.service.telemetry.traffic_history import MOMENT_SECONDS, TrafficHistory

log = logging.getLogger(__name__)

Handlers = Mapping[str, Callable[[Any], Awaitable[Any]]]


class InProcessSupervisor:
    """Scans the repository, has the application load and serve what is in it, and records its traffic.

    Answers what the application asks its supervisor. It is started anew in each event loop.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # the supervisor process of `turnpike serve --app`, which does all of this then; None without it
        self.serve_supervisor: SupervisorClient | None = None
        self._handlers: Handlers = {}
        self._rollout: Rollout | None = None
        self._history = TrafficHistory()
        self._started = time.monotonic()
        # the event loop holds only weak references to tasks
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, handlers: Handlers) -> None:
        """Serve what is in the repository, and follow its changes.

        Args:
            handlers: Those of the application, by name: "prepare", "commit" and "snapshot".

        Raises:
            SettingError: The repository cannot be read.
        """
        settings = self._settings
        self._handlers = handlers
        repository = open_repository(
            settings.models, settings.versions, settings.model_cache, settings.store_seconds
        )
        rollout = self._rollout = Rollout(
            repository, settings.versions, self._broadcast, trial=Trial(settings)
        )
        self._tasks = [asyncio.create_task(self._record_traffic())]
        if settings.poll:
            self._tasks.append(asyncio.create_task(self._poll(rollout)))
        await rollout.rescan()
        if not (rollout.names or rollout.failed):
            log.warning("%s", warning_of_other_folder(repository) or f"no model in '{repository}' yet")

    async def stop(self) -> None:
        """Stop following changes, and wait for what runs."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if self._rollout is not None:
            self._rollout.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, what: str, argument: Any = None) -> Any:
        """Answer "snapshots" and "traffic"; "load" or "unload" a model."""
        if self.serve_supervisor is not None:
            return await self.serve_supervisor.ask(what, argument)
        if what == "snapshots":
            return await self._broadcast("snapshot", None)
        if what == "traffic":
            return self._history.to_json(argument)
        if self._rollout is None:
            raise NotReadyError("the service has not started")
        return await (self._rollout.load if what == "load" else self._rollout.unload)(argument)

    async def _broadcast(self, name: str, argument: Any) -> list[Any]:
        return [await self._handlers[name](argument)]

    async def _poll(self, rollout: Rollout) -> None:
        await rollout.deployed.wait()
        while True:
            await asyncio.sleep(self._settings.poll)
            try:
                await rollout.rescan(explicit=False)
            except Exception:
                log.exception("the scan of the repository failed")

    async def _record_traffic(self) -> None:
        while True:
            try:
                (snapshot,) = await self._broadcast("snapshot", None)
                self._history.record(time.monotonic() - self._started, snapshot["counters"])
            except Exception:
                log.exception("the traffic of the last seconds could not be recorded")
            await asyncio.sleep(MOMENT_SECONDS)
