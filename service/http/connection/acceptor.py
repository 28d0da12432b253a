"""Accepts connections on the port that all workers share, so that each worker gets about as many.

Otherwise the worker that wakes up first would accept all waiting connections, and the others would be idle.
An acceptor accepts one connection per turn of the event loop. If another worker has fewer connections, it
first waits a moment, so that the other one can be faster.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from turnpike.service.http.connection.connection_counts import ConnectionCounts
from turnpike.service.http.connection.listener import accept
from turnpike.service.http.connection.shared_state import SharedState

log = logging.getLogger(__name__)

# pause in which a worker with fewer connections may accept the one that waits
YIELD_SECONDS = 0.001
# After this number of pauses in which that worker has accepted no connection, it hangs or is too busy. It is
# not waited for until it accepts one. At worst, this delays the first of many connections by 20 ms.
MAX_VAIN_YIELDS = 20
# between two looks whether the supervisor lets this worker accept connections again
SUSPENDED_PAUSE_SECONDS = 0.02
# A connection of TLS ends when the client has confirmed the end. By default, a client that confirms nothing
# keeps a worker from ending for 30 seconds.
TLS_SHUTDOWN_SECONDS = 2.0
# pause after the machine ran out of descriptors or memory, until some may be free again
SHORTAGE_PAUSE_SECONDS = 0.2
SHORTAGE_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts connections for one worker, from its creation until `close`.

    Args:
        listener: The shared port.
        shared: The state of the server, with its open connections.
        make_protocol: Creates the protocol of a connection.
        tls_context: For TLS; None without it.
        handshake_seconds: Time limit of a TLS handshake.
        counts: The number of connections of each worker.
        number: The worker's number, from 1.
    """

    def __init__(
        self,
        listener: socket.socket,
        shared: SharedState,
        make_protocol: Callable[[], asyncio.Protocol],
        *,
        tls_context: ssl.SSLContext | None,
        handshake_seconds: float,
        counts: ConnectionCounts,
        number: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._shared = shared
        self._make_protocol = make_protocol
        self._tls_context = tls_context
        self._handshake_seconds = handshake_seconds if tls_context else None
        self._counts = counts
        self._number = number
        # accepted connections without a protocol yet: with TLS, the handshake is under way
        self._handshakes: set[asyncio.Task[None]] = set()
        self._yielded = False
        # the smallest number of connections of a worker, and the pauses in which it did not change
        self._least, self._vain_yields = 0, 0
        self._timer: asyncio.TimerHandle | None = None
        self._shared.on_connection_lost = self._publish_count
        self._publish_count()
        self._resume()

    @property
    def has_handshakes(self) -> bool:
        """Whether an accepted connection is not yet among the open ones."""
        return bool(self._handshakes)

    def accept_all(self) -> None:
        """Accept all connections that wait in the queue of the port."""
        while self._accept_one():
            pass

    def close(self) -> None:
        """Accept no more connections. The port closes when all workers have done so."""
        self._pause()
        self._shared.on_connection_lost = None
        self._counts.withdraw(self._number)
        self._listener.close()

    def _publish_count(self) -> int:
        """Publish the number of connections of this worker, and return it."""
        count = len(self._shared.connections) + len(self._handshakes)
        self._counts.publish(self._number, count)
        return count

    def _on_readable(self) -> None:
        if self._counts.is_suspended(self._number):
            self._pause(SUSPENDED_PAUSE_SECONDS)
            return
        count, least = self._publish_count(), self._counts.least()
        if least != self._least:
            self._least, self._vain_yields = least, 0
        elif self._yielded:
            self._vain_yields += 1
        if count > least and not self._yielded and self._vain_yields < MAX_VAIN_YIELDS:
            self._yielded = True
            self._pause(YIELD_SECONDS)
            return
        self._yielded = False
        if self._accept_one():
            self._publish_count()

    def _accept_one(self) -> bool:
        """Accept a connection, and return whether there was one."""
        try:
            client_socket = accept(self._listener)
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
        task = self._loop.create_task(self._connect(client_socket))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)
        return True

    async def _connect(self, client_socket: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                client_socket,
                ssl=self._tls_context,
                ssl_handshake_timeout=self._handshake_seconds,
                ssl_shutdown_timeout=TLS_SHUTDOWN_SECONDS if self._tls_context else None,
            )
        except (OSError, TimeoutError) as error:
            # a client that completes no handshake has gone, or does not speak TLS
            log.debug("a client did not complete its handshake: %s", error)
            client_socket.close()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener, self._on_readable)

    def _pause(self, seconds: float | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._listener)
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._resume)
