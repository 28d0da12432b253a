"""Those who wait for a run of a model, in the order they came."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, perf_counter_ns

import numpy as np

from service.errors import DeadlineError, InternalError
from service.inference_types import Array, InferenceResult, OutputReader, Waiter

Shapes = tuple[tuple[tuple[int, ...], np.dtype[np.generic]], ...]


# a deque that has not what it is to remove writes it out, and numbers take 5 µs each
@dataclass(slots=True, eq=False, repr=False)
class QueuedRequest:
    """Rows that wait for a run, and are then run."""

    feeds: Mapping[str, Array]
    rows: int
    names: tuple[str, ...]
    # what a row is like, by input: only rows that are alike run together. None: runs by itself
    shapes: Shapes | None
    deadline: float
    since: int
    # done when there is an outcome; cancelled when the caller has gone
    future: Waiter
    size: int
    # reads outputs of its rows, in the run itself
    reader: OutputReader | None = None
    outcome: InferenceResult | Exception | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The outputs that it names, and those that its reader reads."""
        return self.names if self.reader is None else self.names + self.reader.output_names

    def result(self) -> InferenceResult:
        """The answer, or the error raised; given once."""
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, InferenceResult):
            return outcome
        try:
            raise outcome or InternalError("model: the run ended without an answer")
        finally:
            # the error holds this frame: held by it in turn, only the collector could free the two
            del outcome

    def expire(self) -> None:
        """Give it up: its deadline has passed."""
        if not self.future.done():
            self.outcome = DeadlineError(
                "timeout: expected a run before the deadline, and the request was still waiting for one"
            )
            self.future.set_result(None)


# how many are passed over in search of some that are like the first
MAX_BATCH_SCAN = 256
# what the clocks of event loops may be wrong by, in seconds
TICK = 0.001


class RequestQueue(deque[QueuedRequest]):
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

    def take(self, most: int) -> list[QueuedRequest]:
        """The first in line and those like it, up to so many rows; whom nobody waits for is dropped."""
        now = monotonic()
        taken: list[QueuedRequest] = []
        passed: list[QueuedRequest] = []
        rows = 0
        while self and rows < most and len(passed) < MAX_BATCH_SCAN:
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
