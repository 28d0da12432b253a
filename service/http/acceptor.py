"""Takes connections off the shared port: one a turn, and after a moment where another worker has fewer."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from uvicorn.server import ServerState

from service.http.listener import ConnectionCounts
from service.http.protocol import HttpProtocol
from service.http.shared_state import SharedState

log = logging.getLogger(__name__)

# how long a connection is left to a worker that has fewer
YIELD_SECONDS = 0.001
# until descriptors may be free again
SHORTAGE_PAUSE_SECONDS = 0.2
SHORTAGE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Left alone, whichever worker wakes first would take all that wait, and the others would lie idle."""

    def __init__(
        self,
        listener: socket.socket,
        server_state: ServerState,
        make: Callable[[], HttpProtocol],
        *,
        context: ssl.SSLContext | None,
        handshake_seconds: float,
        counts: ConnectionCounts,
        number: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connections = server_state.connections
        self._shared = SharedState.of(server_state)
        self._make = make
        self._context = context
        self._handshake_seconds = handshake_seconds if context else None
        self._counts = counts
        self._number = number
        # connections that are being made; with TLS, they shake hands
        self._greeted: set[asyncio.Task[None]] = set()
        self._yielded = False
        self._timer: asyncio.TimerHandle | None = None
        self._shared.on_connection_lost = self._note
        self._note()
        self._resume()

    @property
    def greeting(self) -> bool:
        """Whether a connection is accepted and not yet known as one."""
        return bool(self._greeted)

    def take_all(self) -> None:
        """Accept all that wait."""
        while self._take():
            pass

    def close(self) -> None:
        """Accept no more; the port closes when nobody holds it any more."""
        self._pause()
        self._shared.on_connection_lost = None
        self._counts.leave(self._number)
        self._listener.close()

    def _note(self) -> int:
        """Let the others know how many connections there are."""
        count = len(self._connections) + len(self._greeted)
        self._counts.note(self._number, count)
        return count

    def _readable(self) -> None:
        if self._note() > self._counts.least() and not self._yielded:
            self._yielded = True
            self._pause(YIELD_SECONDS)
            return
        self._yielded = False
        if self._take():
            self._note()

    def _take(self) -> bool:
        """Accept a connection, if one waits."""
        try:
            taken, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            return True
        except OSError as error:
            if error.errno not in SHORTAGE_ERRNOS:
                raise
            log.warning("no connection can be accepted now: %s", error.strerror)
            self._pause(SHORTAGE_PAUSE_SECONDS)
            return False
        taken.setblocking(False)
        task = self._loop.create_task(self._greet(taken))
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)
        return True

    async def _greet(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, taken, ssl=self._context, ssl_handshake_timeout=self._handshake_seconds
            )
        except (OSError, TimeoutError) as error:
            # who does not shake hands is gone, or was never a client of ours
            log.debug("a connection was not made: %s", error)
            taken.close()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener, self._readable)

    def _pause(self, seconds: float | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener)
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._resume)
