"""The number of connections of each worker, in shared memory, and which workers get no new ones.

Workers compare their numbers, so that each gets about as many connections. A worker that hangs is suspended.
"""

from __future__ import annotations

import mmap
import socket
from dataclasses import dataclass

# the count of a worker that accepts no connections: larger than any other
NOT_ACCEPTING = 0xFFFFFFFF


class ConnectionCounts:
    """The number of open connections of each worker, in shared memory. Workers are numbered from 1.

    Each worker writes its own number. The supervisor suspends workers, which then accept no connections.
    """

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("I")
        # apart from the numbers, so that a worker that is stopped while it writes its own resumes nothing
        self._suspended = memoryview(mmap.mmap(-1, workers))
        for number in range(1, workers + 1):
            self.withdraw(number)

    def count(self, number: int) -> int:
        """The number of connections of a worker, NOT_ACCEPTING if it accepts none."""
        return self._counts[number - 1]

    def publish(self, number: int, count: int) -> None:
        """Set the number of connections of a worker."""
        self._counts[number - 1] = count

    def withdraw(self, number: int) -> None:
        """Leave out a worker that accepts no connections any more, or not yet."""
        self._counts[number - 1] = NOT_ACCEPTING

    def least(self) -> int:
        """The smallest number of connections of any worker that accepts some."""
        pairs = zip(self._counts, self._suspended, strict=True)
        return min((count for count, suspended in pairs if not suspended), default=NOT_ACCEPTING)

    def suspend(self, number: int) -> None:
        """Have a worker accept no connections for now."""
        self._suspended[number - 1] = 1

    def resume(self, number: int) -> None:
        """Let a worker accept connections that was suspended."""
        self._suspended[number - 1] = 0

    def is_suspended(self, number: int) -> bool:
        return self._suspended[number - 1] != 0


@dataclass(frozen=True)
class SharedPort:
    """A port that all workers listen on, and the number of connections that each of them has there."""

    listener: socket.socket
    counts: ConnectionCounts
