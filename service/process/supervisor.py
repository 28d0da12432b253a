"""The supervisor: binds the port, keeps the workers running, and has all of them serve the same models."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from turnpike.service.config.settings import Settings
from turnpike.service.errors import NotReadyError
from turnpike.service.http.connection.listener import listen, listener_address, listener_url, tls_context
from turnpike.service.process.ipc import Handler
from turnpike.service.process.ports import Ports
from turnpike.service.process.trial import Trial
from turnpike.service.process.worker_handle import WorkerHandle
from turnpike.service.process.worker_pool import WorkerPool
from turnpike.service.remote.remote_repository import open_repository
from turnpike.service.repository.location import warning_of_other_folder
from turnpike.service.repository.rollout import Rollout
from turnpike.service.telemetry.log import TERMINAL_LINES, configure_logging
from turnpike.service.weights.cache import MIN_MODEL_BYTES, cache_problem

if TYPE_CHECKING:
    from turnpike.service.process.worker import MakeApp

log = logging.getLogger("turnpike")

# pauses before a worker that lacks a file tries to load it again; they double each time
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 8.0


def supervise(settings: Settings, make_app: MakeApp) -> int:
    """Serve until a signal stops it. Returns the exit status: 0, or 1 if a request was cut off.

    Args:
        settings: The settings of the service.
        make_app: Creates the application in each worker.
    """
    configure_logging(settings.log_level)
    # unusable TLS files stop the start here, instead of every worker
    tls_context(settings)
    raise_descriptor_limit()
    listener = listen(settings.host, settings.port)
    with contextlib.closing(listener):
        grpc_port = settings.grpc_port
        grpc_listener = None if grpc_port is None else listen(settings.host, grpc_port, "--grpc-port")
        ports = Ports.of(settings.workers, listener, grpc_listener)

        async def run() -> int:
            return await Supervisor(settings, ports, make_app).run()

        with contextlib.closing(ports):
            return asyncio.run(run())


def raise_descriptor_limit() -> None:
    """Raise the limit of open files as far as allowed, since each connection needs a descriptor."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


class Supervisor:
    """Runs in the first process. It opens no model and answers no request, so that nothing crashes it."""

    def __init__(self, settings: Settings, ports: Ports, make_app: MakeApp) -> None:
        # said once, not by every worker
        self._weights_problem = cache_problem(settings)
        if self._weights_problem is not None:
            settings = settings.model_copy(update={"weights_cache": 0})
        self._settings = settings
        self._address = listener_url(ports.http.listener, "https" if settings.tls_cert else "http")
        self._grpc_address = None if ports.grpc is None else listener_address(ports.grpc.listener)
        self._stopping = asyncio.Event()
        self._first_scan_done = asyncio.Event()
        # running rescans and polls; the event loop itself holds only weak references to tasks
        self._rescans: set[asyncio.Task[None]] = set()
        handlers: dict[str, Handler] = {"load": self._load, "unload": self._unload}
        self._workers = WorkerPool(settings, ports, make_app, handlers, self._bring_up_to_date)
        self._repository = open_repository(
            settings.models, settings.versions, settings.model_cache, settings.store_seconds
        )
        self._rollout = Rollout(
            self._repository, settings.versions, self._workers.broadcast, trial=Trial(settings)
        )

    async def run(self) -> int:
        """Start the workers, serve, and stop after a signal. Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hang_up)
        serving = asyncio.create_task(self._serve())
        stopping = asyncio.create_task(self._stopping.wait())
        ends: tuple[asyncio.Future[Any], ...] = (serving, stopping, self._workers.start_failed)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # what loads from now on would serve nobody
        serving.cancel()
        self._rollout.stop()
        if self._stopping.is_set():
            log.info(
                "turnpike is stopping: open connections: %d; "
                "new ones are accepted for %g s, and requests then have %g s to finish",
                self._workers.connections,
                self._settings.drain_wait,
                self._settings.drain_seconds,
            )
        await self._workers.drain()
        for end in ends:
            if end.done() and not end.cancelled():
                # raises the reason if the start failed
                end.result()
            end.cancel()
        if self._workers.exit_status:
            log.error("turnpike has stopped with status %d: requests were cut off", self._workers.exit_status)
        else:
            log.info("turnpike has stopped: no request was cut off")
        return self._workers.exit_status

    async def _serve(self) -> None:
        """Have every worker serve what is in the repository, from the start on and as it changes."""
        await self._workers.start()
        if self._settings.poll:
            self._keep(asyncio.create_task(self._poll()))
        await self._rollout.rescan()
        self._first_scan_done.set()
        if self._weights_problem is not None and self._rollout.largest_bytes >= MIN_MODEL_BYTES:
            log.info("workers do not share weights: %s", self._weights_problem)
        names = self._rollout.names
        if not names and (warning := warning_of_other_folder(self._repository)):
            log.warning(warning)
        log.info(
            "turnpike serves %s%s (%s)",
            self._address,
            f" and gRPC on {self._grpc_address}" if self._grpc_address else "",
            ", ".join(names) or "no model yet",
            extra={TERMINAL_LINES: self._next_steps(names)},
        )
        await self._stopping.wait()

    async def _poll(self) -> None:
        """Rescan the repository at intervals, also while the first scan waits for a file that takes long."""
        await self._rollout.deployed.wait()
        while True:
            await asyncio.sleep(self._settings.poll)
            await self._rescan(explicit=False)

    def _next_steps(self, names: list[str]) -> list[str]:
        """What to open or copy, for a reader at a terminal."""
        address = self._address
        path = f"/v2/models/{quote(names[0].rpartition('/')[0], safe='')}" if names else "/v2/models"
        return [
            *([f"page: {address}/"] if self._settings.dashboard else []),
            *([f"docs: {address}/docs"] if self._settings.docs else []),
            f"API:  curl -s {address}{path}",
            "Ctrl-C stops it",
        ]

    async def _bring_up_to_date(self, worker: WorkerHandle, pause: float = FIRST_PAUSE_SECONDS) -> None:
        """Have a replacement worker serve what the others do. Until then it accepts no connections.

        Others may still serve from memory files that it cannot load. It tries those again after `pause`
        seconds, which double each time. If no worker has such a file any more, the rollout changes the
        deployment to what there is.
        """
        await self._rollout.deployed.wait()
        reloaded = None
        while True:
            deployment = self._rollout.deployment_record
            failed = (await worker.channel.ask("commit", deployment))["failed"]
            if failed and deployment != reloaded:
                reloaded = deployment
                await self._rollout.reload_failed({model["name"] for model in failed})
            elif failed:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            elif deployment == self._rollout.deployment_record:
                return

    async def _load(self, name: str) -> dict[str, Any]:
        return self._warn(await self._rollout.load(name))

    async def _unload(self, name: str) -> dict[str, Any]:
        return self._warn(await self._rollout.unload(name))

    def _warn(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Add to a success which workers may not serve yet what the others do."""
        outdated = self._workers.outdated()
        return {**outcome, "warning": ". ".join(outdated)} if outdated and outcome["ok"] else outcome

    async def _rescan(self, *, explicit: bool) -> None:
        """Rescan the repository. If that fails, what is served stays."""
        try:
            await self._rollout.rescan(explicit=explicit)
        except NotReadyError:
            # the service is stopping
            pass
        except Exception:
            log.exception("the scan of the repository failed")

    def _on_stop_signal(self) -> None:
        # a second signal ends the workers at once
        if self._stopping.is_set():
            self._workers.kill("a second signal came")
        self._stopping.set()

    def _on_hang_up(self) -> None:
        if self._first_scan_done.is_set():
            self._keep(asyncio.create_task(self._rescan(explicit=True)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._rescans.add(task)
        task.add_done_callback(self._rescans.discard)
