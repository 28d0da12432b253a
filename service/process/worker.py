"""One worker: it loads the models it is told to, answers on the shared port, and ends losing no request."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import uvloop

from service.errors import ServiceError
from service.http.listener import ConnectionCounts
from service.http.server import Server
from service.process.ipc import Handler, IpcChannel
from service.telemetry import log as logs

if TYPE_CHECKING:
    from service.config.settings import Settings

log = logging.getLogger(__name__)

# the exit status of a worker that failed, or had to cut a request
FAILED = 1
# between two reports of what was counted
REPORT_SECONDS = 1.0
# for how long a thread that computes in Python may keep requests waiting
SWITCH_SECONDS = 0.0005


class App(Protocol):
    """What a worker serves: an ASGI application with what the supervisor may ask of it."""

    draining: bool
    handlers: dict[str, Handler]

    async def start(self) -> None:
        """Get ready to answer."""

    async def stop(self) -> None:
        """Put away what is open; no request comes any more."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""


MakeApp = Callable[["Settings", IpcChannel], App]


def run_worker(
    settings: Settings,
    listener: socket.socket,
    shares: ConnectionCounts,
    end: socket.socket,
    number: int,
    make_app: MakeApp,
) -> None:
    """The life of a worker's process, which ends here: with 0, or 1 if it failed or had to cut a request."""
    sys.setswitchinterval(SWITCH_SECONDS)
    logs.configure_logging(settings.log_level, number)
    status = FAILED
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(Worker(settings, listener, shares, number).live(end, make_app))
    except BaseException:
        log.exception("worker %d failed", number)
    finally:
        logs.access_log.flush()
        # a run that was cut may still be in its thread, which nobody waits for
        os._exit(status)


class Worker:
    """Starts, serves while it may, drains, ends."""

    def __init__(
        self, settings: Settings, listener: socket.socket, shares: ConnectionCounts, number: int
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._shares = shares
        self._number = number
        self._accepting = asyncio.Event()
        self._stopping = asyncio.Event()
        # all workers stop, so that nobody is left to accept what comes
        self._last = asyncio.Event()
        self._signals = 0
        # the last report
        self._told: Any = None

    async def live(self, end: socket.socket, make_app: MakeApp) -> int:
        """Everything from the first to the last; the exit status."""
        self._hear_signals()
        channel = await IpcChannel.over(end)
        try:
            app = make_app(self._settings, channel)
            await app.start()
        except ServiceError as error:
            channel.notify("failed", {"text": str(error), "status": error.exit_status})
            await channel.close()
            return FAILED
        # a look at all that libraries made takes 40 ms; what models make later is still looked at
        gc.collect()
        gc.freeze()
        channel.handlers |= {**app.handlers, "accept": self._accept, "drain": self._drain}
        channel.notify("up")
        orphaned = asyncio.create_task(self._when_orphaned(channel))
        reporting = asyncio.create_task(self._report_often(channel, app))
        status = await self._serve(app)
        reporting.cancel()
        orphaned.cancel()
        await app.stop()
        await self._report(channel, app)
        await channel.close()
        return status

    async def _serve(self, app: App) -> int:
        """Answer until told to stop; 1 if a request had to be cut."""
        accepting = asyncio.create_task(self._accepting.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([accepting, stopping], return_when=asyncio.FIRST_COMPLETED)
        accepting.cancel()
        if not self._accepting.is_set():
            return 0
        server = Server(self._settings, self._listener, self._shares, self._number, app)
        await stopping
        app.draining = True
        cut = await server.drain(self._last)
        if cut:
            log.error("%d requests were cut, after %g seconds", cut, self._settings.drain_seconds)
        return FAILED if cut else 0

    async def _accept(self, _: Any) -> None:
        self._accepting.set()

    async def _drain(self, _: Any) -> None:
        """The supervisor's word: everyone stops."""
        self._last.set()
        self._stopping.set()

    def _hear_signals(self) -> None:
        """The first signal drains this worker alone, unless the supervisor says more; another ends it."""
        for kind in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(kind, self._signalled)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _signalled(self) -> None:
        if self._signals:
            logs.access_log.flush()
            os._exit(FAILED)
        self._signals += 1
        self._stopping.set()

    async def _when_orphaned(self, channel: IpcChannel) -> None:
        await channel.closed.wait()
        log.error("the supervisor is gone: worker %d finishes what it has", self._number)
        await self._drain(None)

    async def _report_often(self, channel: IpcChannel, app: App) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            try:
                await self._report(channel, app)
            except Exception:
                log.exception("the counts of worker %d could not be told", self._number)

    async def _report(self, channel: IpcChannel, app: App) -> None:
        """Tell the supervisor what was counted, so that it is not lost with this process."""
        counted = await app.handlers["snapshot"](None)
        if counted != self._told and not channel.closed.is_set():
            self._told = counted
            channel.notify("counted", counted)
