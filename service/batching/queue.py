"""Queue of the requests that wait for a run of one model, in the order in which they arrived."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic, perf_counter_ns

from turnpike.service.errors import DeadlineError, InternalError
from turnpike.service.inference_types import Feeds, InferenceResult, RunPlan, Waiter

log = logging.getLogger(__name__)

# Default of the requests that `take_batch` passes over in search of rows that match the first request's. It
# bounds the work for each run when every request has another shape.
MAX_BATCH_SCAN = 256
# seconds by which a timer of the event loop may be early (uvloop's clock counts milliseconds)
CLOCK_TOLERANCE = 0.001


# no repr: deque.remove() formats the item that it cannot find, and formatting an array takes 5 µs a number
@dataclass(slots=True, eq=False, repr=False)
class QueuedRequest:
    """A request in the queue or in a run, and its outcome.

    `queued_ns` is the time of arrival (perf_counter_ns), `deadline` the time by which the run must have begun
    (monotonic).
    """

    feeds: Feeds
    plan: RunPlan
    deadline: float
    queued_ns: int
    # done as soon as there is an outcome; cancelled if the caller has gone
    future: Waiter
    # the caller wants it left out of statistics of the model, and so is every run that it is part of
    unobserved: bool = False
    outcome: InferenceResult | Exception | None = None

    def result(self) -> InferenceResult:
        """Return the result or raise the error. Works once: the request lets go of its outcome."""
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, InferenceResult):
            return outcome
        try:
            raise outcome or InternalError("model: the run ended without a result")
        finally:
            # The traceback holds this frame. If the frame held the error in turn, only the garbage collector
            # could free the two.
            del outcome

    def expire(self) -> None:
        """End the wait with a DeadlineError."""
        if not self.future.done():
            self.outcome = DeadlineError(
                "timeout: expected a run before the deadline (--timeout-ms, or less if the request says so), "
                "and the request was still waiting for one"
            )
            self.wake()

    def wake(self) -> None:
        """Let the caller take the outcome. An error in what the caller does then costs no other request."""
        try:
            self.future.set_result(None)
        except Exception:
            log.exception("waking a request failed")


class RequestQueue(deque[QueuedRequest]):
    """A deque of requests that knows which of them can run together, and how long that may wait.

    `overdue` has requests that were removed because their deadline had passed, until `expire_overdue`.
    """

    def __init__(self, requests: Iterable[QueuedRequest] = ()) -> None:
        super().__init__(requests)
        self.overdue: list[QueuedRequest] = []

    def earliest_deadline(self) -> float:
        return min([request.deadline for request in self], default=math.inf)

    def is_full_batch(self, max_rows: int) -> bool:
        """Whether the waiting requests fill a run of `max_rows` rows, provided that their shapes match."""
        return len(self) >= max_rows or sum([request.plan.rows for request in self]) >= max_rows

    def time_to_wait(self, max_delay: float, max_rows: int) -> float:
        """Seconds that the next run may still wait for more requests; 0 or less if it should start now.

        The first request waits for `max_delay` seconds in total, and no request waits past its deadline.
        """
        if not max_delay or not self or self[0].plan.row_shapes is None or self.is_full_batch(max_rows):
            return 0
        left = max_delay - (perf_counter_ns() - self[0].queued_ns) / 1e9
        return left if monotonic() + left + CLOCK_TOLERANCE < self.earliest_deadline() else 0

    def take_overdue(self) -> None:
        """Remove the requests whose deadline has passed."""
        now = monotonic() + CLOCK_TOLERANCE
        self.overdue += [request for request in self if request.deadline <= now]
        remaining = [request for request in self if request.deadline > now]
        self.clear()
        self.extend(remaining)

    def expire_overdue(self) -> None:
        """Fail the removed requests, each with a DeadlineError.

        A caller may submit its next request at once. So queue and schedule must be up to date before.
        """
        overdue, self.overdue = self.overdue, []
        for request in overdue:
            request.expire()

    def take_batch(self, max_rows: int, max_scan: int = MAX_BATCH_SCAN) -> list[QueuedRequest]:
        """Remove and return the next batch: the first request and those that can run with it.

        The batch has up to `max_rows` rows; only a first request that is larger by itself exceeds that.
        Requests that were cancelled are dropped on the way, overdue ones are moved to `overdue`.
        """
        now = monotonic()
        batch: list[QueuedRequest] = []
        skipped: list[QueuedRequest] = []
        rows, first = 0, None
        while self and rows < max_rows and len(skipped) < max_scan:
            request = self.popleft()
            plan = request.plan
            if request.future.done():
                continue
            if request.deadline <= now:
                self.overdue.append(request)
            elif first is None:
                batch.append(request)
                rows, first = plan.rows, plan
                if plan.row_shapes is None:
                    break
            elif plan is not first and plan.row_shapes != first.row_shapes:
                skipped.append(request)
            elif rows + plan.rows > max_rows:
                # stop here: a smaller request from further behind must not overtake this one
                self.appendleft(request)
                break
            else:
                batch.append(request)
                rows += plan.rows
        # requests of other shapes keep their places at the head of the queue
        if skipped:
            self.extendleft(reversed(skipped))
        return batch
