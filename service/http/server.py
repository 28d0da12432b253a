"""HTTP on the shared port for one worker: start, serve, stop accepting, drain, close."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config

from service.http.acceptor import Acceptor
from service.http.connection import Connection
from service.http.connection_state import Connections, Rules
from service.http.listener import ConnectionCounts, stop_new, tls

if TYPE_CHECKING:
    from service.config.settings import Settings

log = logging.getLogger(__name__)

# a handshake that began before the port was shut to new connections may still be under way for as long
HANDSHAKE_SECONDS = 0.25
# a connection on which nothing has come or gone for as long is not waiting for anything
QUIET_SECONDS = 1.0
# between two looks at what is ending
STEP_SECONDS = 0.02


class Server:
    """Answers with an ASGI application, which is asked nothing but requests."""

    def __init__(
        self, settings: Settings, listener: socket.socket, shares: ConnectionCounts, number: int, app: Any
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._connections = Connections()
        self._connections.when_refused = getattr(app, "refused", None)
        self._connections.express = getattr(app, "express", None)
        loop = asyncio.get_running_loop()
        config = Config(
            app,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        config.load()
        rules = Rules(settings.max_header, settings.header_seconds, settings.idle_seconds)
        self._acceptor = Acceptor(
            listener,
            self._connections,
            lambda: Connection(rules, self._connections, config, loop),
            context=tls(settings),
            handshake_seconds=settings.header_seconds,
            shares=shares,
            number=number,
        )
        self._tending = loop.create_task(self._tend())

    @property
    def _open(self) -> list[Connection]:
        return [one for one in self._connections.connections if isinstance(one, Connection)]

    async def drain(self, last: asyncio.Event) -> int:
        """End without losing a request: 0, or how many had to be cut.

        Answers are the last of their connections from now on, new connections are taken for `drain_wait`
        seconds, then the port closes, and what was begun has `drain_seconds` to finish. `last` is set, now or
        before the port closes, when no other worker goes on accepting.
        """
        self._connections.draining = True
        for connection in self._open:
            connection.end_with_answer()
        await asyncio.sleep(self._settings.drain_wait)
        await self._close_port(last)
        cut = await self._finish()
        self._tending.cancel()
        return cut

    async def _close_port(self, last: asyncio.Event) -> None:
        """Where nobody else goes on accepting, close it only when all that is in its queue is accepted."""
        closing = time.monotonic() + HANDSHAKE_SECONDS
        shut = False
        while time.monotonic() < closing:
            if last.is_set() and not shut:
                shut = True
                stop_new(self._listener)
                closing = time.monotonic() + HANDSHAKE_SECONDS
            await asyncio.sleep(STEP_SECONDS)
        if shut:
            self._acceptor.take_all()
        self._acceptor.close()

    async def _finish(self) -> int:
        """Wait for the answers that are owed, for so long; how many had to be cut."""
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + self._settings.drain_seconds
        while self._connections.connections or self._connections.tasks or self._acceptor.greeting:
            for connection in self._open:
                connection.end_if_silent(loop.time() - QUIET_SECONDS)
            if time.monotonic() > deadline:
                return self._cut()
            await asyncio.sleep(STEP_SECONDS)
        return 0

    def _cut(self) -> int:
        tasks = list(self._connections.tasks)
        owing = sum(connection.owing for connection in self._open)
        for task in tasks:
            task.cancel()
        for connection in self._open:
            connection.transport.abort()
        return max(owing, len(tasks))

    async def _tend(self) -> None:
        """See to connections that take too long, and to the Date header."""
        settings, loop = self._settings, asyncio.get_running_loop()
        period = min(1.0, settings.header_seconds / 4, settings.idle_seconds / 4)
        while True:
            date = formatdate(time.time(), usegmt=True).encode()
            self._connections.default_headers = [(b"date", date)]
            for connection in self._open:
                connection.tend(loop.time())
            await asyncio.sleep(period)
