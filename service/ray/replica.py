"""One replica of the service: the application of a worker, with the models of the repository."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Mapping
from typing import Any

from ray import serve
from starlette.types import ASGIApp

from turnpike.service.api.app import Application
from turnpike.service.config.resolve import resolve
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError
from turnpike.service.process.trial import Trial
from turnpike.service.process.worker import GC_THRESHOLD
from turnpike.service.ray.coordinator_client import CoordinatorClient
from turnpike.service.ray.model_on_request import HeldModel, ModelsOnRequest
from turnpike.service.remote.remote_repository import open_repository
from turnpike.service.repository.rollout import Rollout
from turnpike.service.requests.auth import AccessLevel, Authenticator
from turnpike.service.telemetry.log import configure_logging
from turnpike.service.telemetry.log_writer import log_writer

log = logging.getLogger(__name__)


class Replica:
    """What Ray Serve creates for each replica.

    Args:
        arguments: The settings that were given, by name. Those of the node's environment fill the gaps.
        keys: The levels that have keys where the service was started: "api" and "admin".
        coordinator: Handle of the deployment `Coordinator`.
    """

    # Ray waits for it
    async def __init__(  # type: ignore[misc]
        self, arguments: Mapping[str, Any], keys: tuple[str, ...], coordinator: Any
    ) -> None:
        settings = replica_settings(arguments)
        configure_logging(settings.log_level)
        self._poll = settings.poll
        self._client = CoordinatorClient(
            coordinator, serve.get_replica_context().replica_id.unique_id, self._snapshot
        )
        self._application = Application(settings, self._client)
        expect_keys(self._application.context.auth, keys)
        await self._application.start()
        repository = open_repository(
            settings.models, settings.versions, settings.model_cache, settings.store_seconds
        )
        on_request = settings.replica_models > 0
        self._rollout = Rollout(
            repository, settings.versions, self._broadcast, on_request=on_request, trial=Trial(settings)
        )
        self._on_request = ModelsOnRequest(self._application, self._application.context.auth, self._rollout)
        await self._rollout.rescan()
        # unloads what the other replicas were ordered to unload
        await self._client.report(self._rollout)
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        self._tasks = [
            asyncio.create_task(self._client.report_regularly(self._rollout)),
            asyncio.create_task(self._rescan_regularly()),
        ]

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """The application, as Ray asks for it."""
        return self._application

    async def check_health(self) -> None:
        """Raise an error if a background task has ended. Ray replaces a replica that fails or hangs here."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def __del__(self) -> None:
        """Report for the last time, when Ray ends the replica."""
        for task in getattr(self, "_tasks", []):
            task.cancel()
        with contextlib.suppress(AttributeError):
            self._rollout.stop()
            self._application.draining = True
            await self._client.report(self._rollout)
            await self._application.stop()
        log_writer.flush()

    async def _rescan_regularly(self) -> None:
        while self._poll:
            await asyncio.sleep(self._poll)
            try:
                await self._rollout.rescan(explicit=False)
            except Exception:
                log.exception("the repository could not be scanned")
        await asyncio.Event().wait()

    async def _broadcast(self, name: str, argument: Any) -> list[Any]:
        return [await self._application.handlers[name](argument)]

    async def _snapshot(self) -> Any:
        return await self._application.snapshot()


def replica_with_models_on_request(models: int) -> type[Replica]:
    """A replica that holds so many models at once, and loads others when they are asked for."""

    class MultiplexedReplica(Replica):
        def __serve_build_asgi_app__(self) -> ASGIApp:
            self._on_request.hold = self.hold
            return self._on_request

        # Ray drops the model that was used longest ago, and sends requests to replicas that hold their model
        @serve.multiplexed(max_num_models_per_replica=models)  # type: ignore[untyped-decorator]
        async def hold(self, name: str) -> HeldModel:
            return await self._on_request.load(name)

    return MultiplexedReplica


def replica_settings(arguments: Mapping[str, Any]) -> Settings:
    """The settings on the node of a replica. A run uses the CPUs that Ray reserves for the replica."""
    settings = resolve(arguments).settings
    threads = settings.threads or max(1, int(settings.replica_cpus))
    return settings.model_copy(update={"threads": threads})


def expect_keys(auth: Authenticator, keys: tuple[str, ...]) -> None:
    """Raise a SettingError unless this node has the keys, without which the service would be open to all."""
    levels: tuple[tuple[AccessLevel, str], ...] = (("api", "api_keys"), ("admin", "admin_key"))
    for level, name in levels:
        if level in keys and not auth.has_keys(level):
            raise SettingError(
                f"{name}: expected every node to have TURNPIKE_{name.upper()} or a file of keys, "
                "as the service was started with keys; this node has none"
            )
