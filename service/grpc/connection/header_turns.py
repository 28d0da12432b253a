"""Shares the time for decoding headers among the connections of a worker.

Headers of a kilobyte can take a millisecond to decode, so one client could keep a worker busy for seconds. A
connection decodes few headers at once. One that has more to decode stops reading and waits here for its next
turn, so that a worker spends a few milliseconds on such headers in each turn of the event loop, however many
connections send them.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

# Headers that a connection decodes at once, in fields (2 to 3 µs each): those of ten usual calls.
MAX_WORK_AT_ONCE = 100
# headers that all connections together decode in one turn of the event loop: 2 to 3 ms
MAX_WORK_PER_TURN = 1000


class WaitingConnection(Protocol):
    """A connection that has received headers and did not decode them yet."""

    def decode_more(self) -> None:
        """Decode some headers, count the work, and wait again if more are left."""


class HeaderTurns:
    """The work on headers in this turn of the event loop, and the connections that wait for a later one."""

    def __init__(self) -> None:
        self._spent = 0
        self._waiting: dict[WaitingConnection, None] = {}
        self._is_scheduled = False

    @property
    def has_time(self) -> bool:
        """Whether headers may be decoded in this turn."""
        return self._spent < MAX_WORK_PER_TURN

    def spend(self, work: int) -> None:
        """Count headers that were decoded."""
        self._spent += work
        self._schedule()

    def wait(self, connection: WaitingConnection) -> None:
        """Have `decode_more` called in a later turn of the event loop."""
        self._waiting[connection] = None
        self._schedule()

    def leave(self, connection: WaitingConnection) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(connection, None)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._spent, self._is_scheduled = 0, False
        try:
            while self._waiting and self.has_time:
                connection = next(iter(self._waiting))
                del self._waiting[connection]
                connection.decode_more()
        finally:
            if self._waiting:
                self._schedule()
