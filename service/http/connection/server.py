"""The server of one worker on a shared port: start, serve, stop accepting, drain, close."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import TypeVar

from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.acceptor import Acceptor
from turnpike.service.http.connection.connection_counts import SharedPort
from turnpike.service.http.connection.listener import refuse_new_connections, tls_context
from turnpike.service.http.connection.protocol import http_protocols
from turnpike.service.http.connection.shared_state import Connection, HttpApplication, SharedState

log = logging.getLogger(__name__)


App = TypeVar("App", bound=HttpApplication)
Protocols = Callable[[App, SharedState], Callable[[], asyncio.Protocol]]


@dataclass(frozen=True, slots=True)
class DrainTiming:
    """Durations in the end of a server, in seconds."""

    # a TCP handshake that began before the port was closed to new connections may still be under way
    handshake: float = 0.25
    # a connection without input or output for this long is closed: its client is not waiting for anything
    quiet: float = 1.0
    # pause between two checks of what is still open
    step: float = 0.02


class Server:
    """Accepts connections on a shared port and serves them with the protocol of that port."""

    def __init__(
        self,
        settings: Settings,
        port: SharedPort,
        number: int,
        app: App,
        timing: DrainTiming | None = None,
        protocols: Protocols[App] = http_protocols,
        alpn: Sequence[str] = (),
    ) -> None:
        """Start to accept connections.

        Args:
            settings: The settings of the service.
            port: The port, with the number of connections of each worker, so that each gets about as many.
            number: The worker's number, from 1.
            app: Answers the requests.
            timing: Durations in the end; for tests.
            protocols: Makes a function that creates the protocol of each connection.
            alpn: Names of the protocol that clients of TLS may choose.
        """
        self._settings = settings
        self._timing = timing or DrainTiming()
        self._listener = port.listener
        self.shared = SharedState()
        loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(
            port.listener,
            self.shared,
            protocols(app, self.shared),
            tls_context=tls_context(settings, alpn),
            handshake_seconds=settings.header_seconds,
            counts=port.counts,
            number=number,
        )
        self._maintenance = loop.create_task(self._maintain())

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self.shared.connections)

    async def drain(self, all_stopping: asyncio.Event) -> int:
        """End without losing a request. Returns how many requests were cut off.

        From now on each answer is the last of its connection. New connections are accepted for `drain_wait`
        seconds more. Then the port closes, and requests in progress have `drain_seconds` to finish.

        `all_stopping` is set if no other worker goes on accepting, before `drain` is called or until the port
        closes.
        """
        self.shared.draining = True
        for connection in self.connections:
            connection.begin_drain()
        await asyncio.sleep(self._settings.drain_wait)
        await self._close_port(all_stopping)
        cut_off = await self._finish()
        self._maintenance.cancel()
        return cut_off

    async def _close_port(self, all_stopping: asyncio.Event) -> None:
        """Close the port. If no other worker goes on accepting, first accept everything in its queue."""
        deadline = time.monotonic() + self._timing.handshake
        refusing = False
        while time.monotonic() < deadline:
            if all_stopping.is_set() and not refusing:
                refusing = True
                refuse_new_connections(self._listener)
                deadline = time.monotonic() + self._timing.handshake
            await asyncio.sleep(self._timing.step)
        if refusing:
            self._acceptor.accept_all()
        self._acceptor.close()

    async def _finish(self) -> int:
        """Wait for the requests in progress, up to `drain_seconds`; returns how many were cut off."""
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + self._settings.drain_seconds
        while self.shared.connections or self.shared.running or self._acceptor.has_handshakes:
            for connection in self.connections:
                connection.close_if_idle(loop.time() - self._timing.quiet)
            if time.monotonic() > deadline:
                return self._cut_off()
            await asyncio.sleep(self._timing.step)
        return 0

    def _cut_off(self) -> int:
        """Cut off the requests that are left, and return their number."""
        running = len(self.shared.running)
        pending = sum(connection.has_pending_output for connection in self.connections)
        for request in list(self.shared.running):
            request.cut_off()
        for connection in self.connections:
            connection.cut_off()
        return max(pending, running)

    async def _maintain(self) -> None:
        """Close connections that exceed their time limits, and keep the Date header current."""
        settings, loop = self._settings, asyncio.get_running_loop()
        period = min(1.0, settings.header_seconds / 4, settings.idle_seconds / 4)
        due = loop.time()
        while True:
            self.shared.set_date(formatdate(time.time(), usegmt=True).encode())
            # Not the present time: after a long turn of the event loop, what clients have sent during it was
            # not read yet, and nobody is ended for a delay of ours.
            self._check_timeouts(due)
            due = loop.time() + period
            await asyncio.sleep(period)

    def _check_timeouts(self, now: float) -> None:
        # not in the loop above, whose variable would hold the last connection after its end
        for connection in self.connections:
            try:
                connection.check_timeouts(now)
            except Exception:
                # the limits of the other connections still count, now and in the next rounds
                log.exception("checking the time limits of a connection failed")
