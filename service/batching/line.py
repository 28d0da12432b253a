"""Those who wait for a run of a model, in the order they came."""

from __future__ import annotations

import math
from collections import deque
from time import monotonic, perf_counter_ns

from service.batching.job import Job

# how many are passed over in search of some that are like the first
REACH = 256
# what the clocks of event loops may be wrong by, in seconds
TICK = 0.001


class Line(deque[Job]):
    """A queue of jobs: who may run together, and for how long that may wait."""

    def earliest(self) -> float:
        """The first deadline of all."""
        return min([job.deadline for job in self], default=math.inf)

    def fills(self, rows: int) -> bool:
        """Whether those who wait make so many rows, if they are alike."""
        return len(self) >= rows or sum([job.rows for job in self]) >= rows

    def patience(self, delay: float, rows: int) -> float:
        """For how many seconds a run of up to so many rows may still wait for more of them.

        The first in line waits for no longer than `delay`, and nobody so long that the deadline passes.
        """
        if not delay or not self or self[0].shapes is None or self.fills(rows):
            return 0
        left = delay - (perf_counter_ns() - self[0].since) / 1e9
        return left if monotonic() + left + TICK < self.earliest() else 0

    def expire(self) -> None:
        """Refuse those whose deadline has passed."""
        now = monotonic() + TICK
        kept = []
        for job in self:
            if job.deadline <= now:
                job.expire()
            else:
                kept.append(job)
        self.clear()
        self.extend(kept)

    def take(self, most: int) -> list[Job]:
        """The first in line and those like it, up to so many rows; whom nobody waits for is dropped."""
        now = monotonic()
        taken: list[Job] = []
        passed: list[Job] = []
        rows = 0
        while self and rows < most and len(passed) < REACH:
            job = self.popleft()
            if job.future.done():
                continue
            if job.deadline <= now:
                job.expire()
            elif not taken:
                taken.append(job)
                rows = job.rows
                if job.shapes is None:
                    break
            elif job.shapes != taken[0].shapes:
                passed.append(job)
            elif rows + job.rows > most:
                # a smaller one behind it is not to overtake it
                self.appendleft(job)
                break
            else:
                taken.append(job)
                rows += job.rows
        self.extendleft(reversed(passed))
        return taken
