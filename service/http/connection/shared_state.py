"""State and limits that all connections of one worker share, and the interface of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from turnpike.service.http.connection.head_cache import HeadCache
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import STATUS_LINES

# keeps browsers from guessing another type of content than the Content-Type of an answer
NOSNIFF = b"x-content-type-options: nosniff\r\n"
# names of the headers that all answers have
DEFAULT_NAMES = frozenset({b"date", b"x-content-type-options"})


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection."""

    # bytes of a request's line and headers
    max_header: int
    # seconds in which the request line and the headers must arrive
    header_seconds: float
    # seconds of silence after which a connection is closed
    idle_seconds: float
    # seconds in which a client may go on sending after its last answer, before its connection is closed
    linger_seconds: float = 2.0


class HttpApplication(Protocol):
    """What HttpProtocol needs of the application that it serves."""

    connection_limits: ConnectionLimits

    def handle(self, request: Request) -> Coroutine[Any, Any, None]:
        """Answer a request."""

    def count_refused(self, status: int) -> str:
        """Count input that is no valid request, and return the request id for its answer."""


class Connection(Protocol):
    """What the server of a port needs of each connection."""

    transport: asyncio.Transport

    @property
    def has_pending_output(self) -> bool:
        """Whether the client would miss an answer if the connection ended now."""

    def check_timeouts(self, now: float) -> None:
        """End what has exceeded a time limit."""

    def begin_drain(self) -> None:
        """Prepare for the end: ask the client to send nothing new here, if the protocol can."""

    def cut_off(self) -> None:
        """End the connection at once, because the server ends."""

    def close_if_idle(self, since: float) -> None:
        """Close the connection if its client has waited for nothing since that time."""


@dataclass(eq=False)
class SharedState:
    """State that all connections of a server share."""

    connections: set[Connection] = field(default_factory=set)
    draining: bool = False
    heads: HeadCache = field(default_factory=HeadCache)
    # requests being answered, including those whose connection is lost
    running: set[Any] = field(default_factory=set)
    on_connection_lost: Callable[[], object] | None = None
    # headers that all answers have, and these after the status 200, which nearly all answers have
    _default_lines: bytes = NOSNIFF
    _ok_lines: bytes = STATUS_LINES[200] + NOSNIFF

    def set_date(self, date: bytes) -> None:
        """Set the header Date of all answers from now on."""
        self._default_lines = b"date: %b\r\n%b" % (date, NOSNIFF)
        self._ok_lines = STATUS_LINES[200] + self._default_lines

    def first_lines(self, status: int) -> bytes:
        """The first lines of an answer: the status, and the headers that all answers have, such as Date."""
        return self._ok_lines if status == 200 else STATUS_LINES[status] + self._default_lines

    def first_lines_without(self, names: Set[bytes], status: int) -> bytes:
        """The same lines for an answer that has headers with these names, in lower case, itself."""
        if names.isdisjoint(DEFAULT_NAMES):
            return self.first_lines(status)
        lines = self._default_lines.splitlines(keepends=True)
        return STATUS_LINES[status] + b"".join(line for line in lines if line.partition(b":")[0] not in names)
