"""A worker process: runs the application, accepts connections on the shared port, and drains at the end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

import uvloop

from turnpike.service.config.memory_share import allocation_limit
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ServiceError
from turnpike.service.http.connection.server import Server
from turnpike.service.http.connection.shared_state import HttpApplication
from turnpike.service.memory.free_memory import FreeMemory, use_one_heap
from turnpike.service.memory.process_limit import limit_memory
from turnpike.service.process.ipc import Handler, IpcChannel
from turnpike.service.process.ports import Ports
from turnpike.service.telemetry.log import configure_logging
from turnpike.service.telemetry.log_writer import log_writer

log = logging.getLogger(__name__)

# exit status of a worker that failed or cut off a request
FAILED = 1
# between reports of the counters to the supervisor; a killed worker loses the counts since the last report
REPORT_SECONDS = 1.0
# after this time a thread that runs Python code lets other threads run; the default, 5 ms, delays requests
SWITCH_SECONDS = 0.0005
# New objects that start a garbage collection. A batch of requests makes hundreds of objects, all of which
# reference counting frees: with Python's default of 700, batches of 64 took 5 % longer.
GC_THRESHOLD = 10_000


class WorkerApplication(HttpApplication, Protocol):
    """The work of a worker: an application, with handlers for requests of the supervisor."""

    draining: bool
    handlers: dict[str, Handler]

    @property
    def grpc(self) -> HttpApplication | None:
        """What answers the calls of gRPC; None if it serves none."""

    async def start(self) -> None:
        """Prepare to answer requests."""

    async def stop(self) -> None:
        """Release resources after the last request."""


MakeApp = Callable[["Settings", IpcChannel], WorkerApplication]


def run_worker(
    settings: Settings,
    ports: Ports,
    channel_end: socket.socket,
    number: int,
    make_app: MakeApp,
) -> int:
    """Run a worker. Returns the exit status: 0, or 1 if it failed or cut off a request.

    Args:
        settings: The settings of the service.
        ports: The shared ports.
        channel_end: This process's end of the channel to the supervisor.
        number: The worker's number, from 1.
        make_app: Creates the application.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    configure_logging(settings.log_level, number)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Worker(settings, ports, number).run(channel_end, make_app))


class Worker:
    """Starts the application, serves, drains and ends."""

    def __init__(self, settings: Settings, ports: Ports, number: int) -> None:
        self._settings = settings
        self._ports = ports
        self._number = number
        self._accepting = asyncio.Event()
        self._stopping = asyncio.Event()
        # all workers stop, so no other one can accept the connections that are waiting
        self._all_stopping = asyncio.Event()
        self._signals = 0
        self._last_report: Any = None

    async def run(self, channel_end: socket.socket, make_app: MakeApp) -> int:
        """Start, serve until stopped, drain and end. Returns the exit status."""
        self._handle_signals()
        use_one_heap()
        channel = await IpcChannel.over(channel_end)
        # start
        try:
            app = make_app(self._settings, channel)
            await app.start()
        except ServiceError as error:
            channel.notify("failed", {"text": str(error), "status": error.exit_status})
            await channel.close()
            return FAILED
        limit_memory(allocation_limit(self._settings))
        # a full collection takes 40 ms with the objects of all libraries; leave them out from now on
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        gc.enable()

        async def answer_beat(_: Any) -> None:
            channel.notify("beat")

        channel.handlers |= {
            **app.handlers,
            "accept": self._accept,
            "drain": self._drain,
            "beat": answer_beat,
        }
        channel.notify("up")
        # serve
        orphaned = asyncio.create_task(self._drain_if_orphaned(channel))
        reporting = asyncio.create_task(self._maintain_regularly(channel, app))
        status = await self._serve(app)
        # end
        reporting.cancel()
        orphaned.cancel()
        await app.stop()
        await self._report(channel, app)
        await channel.close()
        return status

    async def _serve(self, app: WorkerApplication) -> int:
        """Accept connections until stopped, then drain. Returns 1 if a request was cut off, else 0."""
        accepting = asyncio.create_task(self._accepting.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([accepting, stopping], return_when=asyncio.FIRST_COMPLETED)
        accepting.cancel()
        if not self._accepting.is_set():
            return 0
        servers = [Server(self._settings, self._ports.http, self._number, app)]
        if self._ports.grpc is not None and app.grpc is not None:
            # imported here, since it needs the packages of the extra `grpc`
            from turnpike.service.grpc.connection.ends import GrpcConnectionApplication
            from turnpike.service.grpc.connection.protocol import ALPN, grpc_protocols

            servers.append(
                Server(
                    self._settings,
                    self._ports.grpc,
                    self._number,
                    cast(GrpcConnectionApplication, app.grpc),
                    protocols=grpc_protocols,
                    alpn=ALPN,
                )
            )
        await stopping
        app.draining = True
        cut_off = sum(await asyncio.gather(*(server.drain(self._all_stopping) for server in servers)))
        if cut_off:
            log.error("%d requests were cut off after %g seconds", cut_off, self._settings.drain_seconds)
        return FAILED if cut_off else 0

    async def _accept(self, _: Any) -> None:
        self._accepting.set()

    async def _drain(self, _: Any) -> None:
        """Handle the supervisor's request to stop, which it sends to all workers."""
        self._all_stopping.set()
        self._stopping.set()

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self) -> None:
        # the first signal drains this worker alone, unless the supervisor stops all; a second one ends it
        if self._signals:
            log_writer.flush()
            os._exit(FAILED)
        self._signals += 1
        self._stopping.set()

    async def _drain_if_orphaned(self, channel: IpcChannel) -> None:
        await channel.closed.wait()
        log.error("the supervisor is gone: worker %d finishes its requests and ends", self._number)
        await self._drain(None)

    async def _maintain_regularly(self, channel: IpcChannel, app: WorkerApplication) -> None:
        """Once a second, send the counters and return free memory to the system."""
        free_memory = FreeMemory()
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            free_memory.limit()
            try:
                await self._report(channel, app)
            except Exception:
                log.exception("worker %d could not report its counters", self._number)

    async def _report(self, channel: IpcChannel, app: WorkerApplication) -> None:
        """Send the counters to the supervisor if they changed, so that they survive this process."""
        snapshot = await app.handlers["snapshot"](None)
        if snapshot != self._last_report and not channel.closed.is_set():
            self._last_report = snapshot
            channel.notify("counters", snapshot)
