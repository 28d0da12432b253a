"""The first process: it binds the port, keeps the workers alive, and has all of them serve the same."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.http.listener import address_of, listen, tls
from service.process.ipc import Handler
from service.process.worker_pool import WorkerHandle, WorkerPool
from service.repository.rollout import Rollout
from service.telemetry import log as logs

if TYPE_CHECKING:
    from service.config.settings import Settings
    from service.process.worker import MakeApp

log = logging.getLogger("turnpike")

# what is served when no repository is given
BUNDLED_REPOSITORY = Path(__file__).parents[1] / "default"
# before a worker that lacks a file tries again
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 8.0


def supervise(settings: Settings, make_app: MakeApp) -> int:
    """Serve until a signal ends it; the exit status is 0, or 1 where a request had to be cut."""
    logs.configure_logging(settings.log_level)
    # a pair that is of no use stops the start, rather than every worker
    tls(settings)
    raise_descriptor_limit()
    listener = listen(settings.host, settings.port)

    async def run() -> int:
        return await Supervisor(settings, listener, make_app).run()

    with contextlib.closing(listener):
        return asyncio.run(run())


def raise_descriptor_limit() -> None:
    """Take as many descriptors as the system gives: each connection needs one, and 1024 are soon used up."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Supervisor:
    """Opens no model and answers no request, so that it stays small and nothing brings it down."""

    def __init__(self, settings: Settings, listener: socket.socket, make_app: MakeApp) -> None:
        self._settings = settings
        self._address = address_of(listener, "https" if settings.tls_cert else "http")
        self._stopping = asyncio.Event()
        # the first look is over
        self._begun = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()
        handlers: dict[str, Handler] = {"load": self._load, "unload": self._unload}
        self._team = WorkerPool(settings, listener, make_app, handlers, self._introduce)
        self._director = Rollout(
            settings.models or BUNDLED_REPOSITORY, settings.versions, self._team.broadcast
        )

    async def run(self) -> int:
        """Start, serve, and end when told to."""
        loop = asyncio.get_running_loop()
        for kind in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(kind, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        serving = asyncio.create_task(self._serve())
        stopping = asyncio.create_task(self._stopping.wait())
        ends: tuple[asyncio.Future[Any], ...] = (serving, stopping, self._team.failed)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await self._team.drain()
        for end in ends:
            if end.done():
                # where the start failed, with the reason
                end.result()
            end.cancel()
        return self._team.status

    async def _serve(self) -> None:
        """Have every worker serve what is in the repository, then look into it now and then."""
        await self._team.start()
        await self._director.rescan()
        self._begun.set()
        log.info("turnpike serves %s (%s)", self._address, ", ".join(self._director.names) or "no model yet")
        while self._settings.poll:
            await asyncio.sleep(self._settings.poll)
            await self._look_again(explicit=False)
        await self._stopping.wait()

    async def _introduce(self, member: WorkerHandle) -> None:
        """Have a worker that comes later serve what the others do; until it does, it takes no requests.

        What it cannot load may still be served by others, from memory: it tries again then, now and then.
        Where nobody else has it either, the plan is changed to what there is.
        """
        await self._begun.wait()
        pause, tried = FIRST_PAUSE_SECONDS, None
        while True:
            plan = self._director.deployment_record
            lacks = (await member.channel.ask("commit", plan))["failed"]
            if lacks and plan != tried:
                tried = plan
                await self._director.reload_failed({one["name"] for one in lacks})
            elif lacks:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
            elif plan == self._director.deployment_record:
                return

    async def _load(self, name: str) -> dict[str, Any]:
        return await self._director.load(name)

    async def _unload(self, name: str) -> dict[str, Any]:
        return await self._director.unload(name)

    async def _look_again(self, *, explicit: bool) -> None:
        """Look into the repository; whatever goes wrong with that, what is served goes on."""
        try:
            await self._director.rescan(explicit=explicit)
        except Exception:
            log.exception("the look into the repository failed")

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._team.kill()
        self._stopping.set()

    def _hang_up(self) -> None:
        """Look into the repository now, unless the first look is still to come."""
        if self._begun.is_set():
            job = asyncio.create_task(self._look_again(explicit=True))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
