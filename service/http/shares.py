"""How many connections each worker has, told by all to all."""

from __future__ import annotations

import mmap

# of a worker that accepts none
AWAY = 0xFFFFFFFF


class Shares:
    """One number for each, in memory that all of them see. Workers count from 1."""

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("I")
        for number in range(1, workers + 1):
            self.leave(number)

    def note(self, number: int, count: int) -> None:
        self._counts[number - 1] = count

    def leave(self, number: int) -> None:
        """Expect nothing of this worker."""
        self._counts[number - 1] = AWAY

    def least(self) -> int:
        return min(self._counts)
