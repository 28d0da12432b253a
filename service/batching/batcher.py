"""Batcher: runs requests that arrive at about the same time as one batch.

The way of a request:

1. `enqueue` appends it to the queue.
2. A request on its own runs at once, still within `enqueue`. If requests tend to come together, the run is
   put off instead, by a few turns of the event loop or by up to `max_delay` seconds, to collect more of them.
3. `_start_run` takes a batch of requests with equal shapes from the queue. A short run takes place in the
   event loop, a long one in a thread, so that the loop can go on receiving requests.
4. `_finish_run` wakes each request with its result or its error, and schedules the next run.

A model has at most one run at a time. Each request gets the same bits as if it had run alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter_ns

from turnpike.service.batching.batch_run import BatchRunner, CompletedBatch
from turnpike.service.batching.queue import QueuedRequest, RequestQueue
from turnpike.service.errors import OverloadedError
from turnpike.service.inference_types import (
    FeedLayout,
    Feeds,
    InferenceResult,
    OutputProcessor,
    RunPlan,
    Waiter,
)

# Runs expected to take less than this (2 ms) stay in the event loop. A change of thread costs about 0.1 ms,
# which is little compared to a longer run, and others can wait for a shorter one.
SHORT_RUN_NS = 2_000_000
# weight of the newest value in the moving averages
NEWEST_WEIGHT = 0.125
# event-loop turns to wait for more requests before a run, as long as each turn brings some
MAX_YIELDS = 2
# if recent batches held more requests than this on average, traffic is concurrent, and a request that finds
# the queue empty waits one turn for others
CONCURRENT_BATCH_SIZE = 1.1
# the average is raised to this when a second request arrives in the turn in which the first ran by itself:
# at least two came together, though each batch held only one
AT_LEAST_TWO = 2.0


class RunTimeEstimator:
    """Predicts how long a run takes from the size of its input, by moving averages over past runs.

    Sizes within a factor of two share a bucket. Runs of less than `short_ns` are short.
    """

    def __init__(self, short_ns: int = SHORT_RUN_NS) -> None:
        self._short_ns = short_ns
        # nanoseconds of a run, by bucket
        self._average_ns: dict[int, float] = {}
        # nanoseconds of a request's share of its run
        self._request_ns = 0.0

    def is_short(self, size: int) -> bool:
        """Whether a run of this many numbers is expected to be short. The very first run is not."""
        averages = self._average_ns
        bucket = size.bit_length()
        average = averages.get(bucket)
        if average is None:
            if not averages:
                return False
            # take the nearest known size; assume that a larger run takes proportionally longer
            nearest = min(averages, key=lambda other: abs(other - bucket))
            average = averages[nearest] * 2.0 ** max(bucket - nearest, 0)
        return average < self._short_ns

    def observe(self, size: int, requests: int, ns: int) -> None:
        """Learn from a run of `requests` requests, with `size` numbers in total, that took `ns`."""
        bucket = size.bit_length()
        average = self._average_ns.get(bucket, ns)
        self._average_ns[bucket] = average + NEWEST_WEIGHT * (ns - average)
        request_ns = ns / requests
        self._request_ns += (
            NEWEST_WEIGHT * (request_ns - self._request_ns) if self._request_ns else request_ns
        )

    def seconds_for(self, requests: int) -> float:
        """Seconds that this many waiting requests take; 0 as long as nothing is known."""
        return requests * self._request_ns / 1e9


class Batcher:
    """Queue of one model's requests, and the schedule of its runs.

    Args:
        runner: Decides which requests can run together, and runs them.
        max_delay: Seconds that a run may wait for more requests.
        max_queue: Number of requests that may wait; one more gets an OverloadedError.
        on_batch: Called after every run.
    """

    def __init__(
        self,
        runner: BatchRunner,
        *,
        max_delay: float,
        max_queue: int,
        on_batch: Callable[[CompletedBatch], None],
    ) -> None:
        self.runner = runner
        self._max_rows = runner.max_rows
        self._max_delay = max_delay
        self._max_queue = max_queue
        self._on_batch = on_batch
        # without inline runs, no run is short
        self._run_times = RunTimeEstimator(SHORT_RUN_NS if runner.inline else 0)
        # the thread starts with the first long run, and ends when the batcher is dropped
        self._thread = ThreadPoolExecutor(1, "batcher")
        self._queue = RequestQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        # a run is under way in the thread
        self._running = False
        # a lone request has run in this turn of the event loop
        self._ran_this_turn = False
        # the next run is scheduled: for a coming turn, or for the end of the delay
        self._scheduled = False
        self._delay_timer: asyncio.TimerHandle | None = None
        # turns by which the next run was put off, and the length of the queue at the last of them
        self._yields = self._last_length = 0
        # moving average of the number of requests in a batch
        self._recent_batch_size = 1.0
        # while a run is under way in the thread: fires at the earliest deadline in the queue
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._timer_deadline = math.inf

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused."""
        return len(self._queue) >= self._max_queue

    def overloaded_error(self) -> OverloadedError:
        """The error for a request that finds the queue full, with an estimate of when to retry."""
        seconds = math.ceil(self._run_times.seconds_for(len(self._queue)))
        return OverloadedError(
            f"queue: expected fewer than {self._max_queue} requests (--queue) waiting for the model, "
            f"and there are {len(self._queue)}",
            max(1, seconds),
        )

    async def submit(
        self,
        feeds: Feeds,
        rows: int,
        output_names: tuple[str, ...],
        *,
        deadline: float = math.inf,
        unbatched: bool = False,
        future: Waiter | None = None,
        processor: OutputProcessor | None = None,
    ) -> InferenceResult:
        """Plan and queue a request, and return its result; see `BatchRunner.plan` and `enqueue`.

        The service calls these two itself, and plans once for all requests of a form: see `InferenceCall`.
        """
        plan = self.runner.plan(FeedLayout.of(feeds), rows, output_names, processor, unbatched=unbatched)
        request = self.enqueue(feeds, plan, deadline, future)
        try:
            await request.future
        except asyncio.CancelledError:
            self.withdraw(request)
            raise
        return request.result()

    def withdraw(self, request: QueuedRequest) -> None:
        """Take a request out of the queue whose caller has gone; one that a run has taken is left to it."""
        with suppress(ValueError):
            self._queue.remove(request)

    def enqueue(
        self,
        feeds: Feeds,
        plan: RunPlan,
        deadline: float = math.inf,
        future: Waiter | None = None,
        *,
        unobserved: bool = False,
    ) -> QueuedRequest:
        """Queue a request. When its future is done, it has the same result as if it had run alone.

        Raises OverloadedError if the queue is full. Awaiting the future and then calling `result` raises
        DeadlineError if the deadline passed before the run had begun, and whatever the model raises because
        of this request.

        Args:
            feeds: The model's inputs by name, and any other tensors to override (levers).
            plan: How to run it, from `runner.plan`.
            deadline: By time.monotonic().
            future: What to await for the outcome, if not a future of the event loop.
            unobserved: Leave its run out of statistics of the model.
        """
        queue = self._queue
        if len(queue) >= self._max_queue:
            raise self.overloaded_error()
        loop = self._loop
        if loop is None or loop.is_closed():
            # cached: get_running_loop() calls getpid() every time to detect forks
            loop = self._loop = asyncio.get_running_loop()
        request = QueuedRequest(
            feeds, plan, deadline, perf_counter_ns(), future or loop.create_future(), unobserved
        )
        queue.append(request)

        # see that a run will come
        if self._running:
            # the end of the present run starts the next one; until then only the deadline needs watching
            if request.deadline < self._timer_deadline:
                self._set_deadline_timer(request.deadline, loop)
        elif not self._scheduled:
            if self._should_run_at_once(request):
                self._ran_this_turn = True
                loop.call_soon(self._end_turn)
                self._start_run(loop)
            else:
                self._scheduled = True
                loop.call_soon(self._start_or_wait, loop)
        elif self._delay_timer is not None and self._queue.time_to_wait(self._max_delay, self._max_rows) <= 0:
            # the request fills the batch, or cannot wait until the delay is over
            self._delay_timer.cancel()
            self._delay_timer = None
            loop.call_soon(self._start_run, loop)
        return request

    def _should_run_at_once(self, request: QueuedRequest) -> bool:
        """Whether the request is on its own, so that waiting for others would only delay it."""
        if self._ran_this_turn and request.plan.row_shapes is not None:
            # another request came in this same turn and has run by itself: the two came together
            self._recent_batch_size = max(self._recent_batch_size, AT_LEAST_TWO)
        return (
            self._recent_batch_size <= CONCURRENT_BATCH_SIZE
            and not self._max_delay
            and self._run_times.is_short(request.plan.size)
        )

    def _end_turn(self) -> None:
        self._ran_this_turn = False

    def _start_or_wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the next run, or wait for more requests: another turn of the event loop, or the delay.

        A request that is alone, as the last ones were, waits no further turn.
        """
        waiting = len(self._queue)
        concurrent = waiting > 1 or self._recent_batch_size > CONCURRENT_BATCH_SIZE
        if (
            self._yields < MAX_YIELDS
            and waiting > self._last_length
            and concurrent
            and not self._queue.is_full_batch(self._max_rows)
        ):
            self._yields += 1
            self._last_length = waiting
            loop.call_soon(self._start_or_wait, loop)
        elif (seconds := self._queue.time_to_wait(self._max_delay, self._max_rows)) > 0:
            self._delay_timer = loop.call_later(seconds, self._start_run, loop)
        else:
            self._start_run(loop)

    def _start_run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take a batch from the queue and run it."""
        self._scheduled = False
        self._delay_timer = None
        self._yields = self._last_length = 0
        batch = self._queue.take_batch(self._max_rows)
        if batch:
            self._recent_batch_size += NEWEST_WEIGHT * (len(batch) - self._recent_batch_size)
            self._run_batch(batch, loop)
        else:
            self._schedule_next(loop)
        if self._queue.overdue:
            self._queue.expire_overdue()

    def _run_batch(self, batch: list[QueuedRequest], loop: asyncio.AbstractEventLoop) -> None:
        """Run a batch, in the event loop if it is short, else in the thread."""
        size = sum([request.plan.size for request in batch])
        if not self._run_times.is_short(size):
            try:
                self._thread.submit(self._run_in_thread, batch, size, loop)
            except RuntimeError:
                # The system has no thread left: run in the loop, since late is better than never. The pool is
                # replaced because it keeps the batch that it could not start.
                self._thread = ThreadPoolExecutor(1, "batcher")
                if not self.runner.inline:
                    self._refuse_batch(batch, size, loop)
                    return
            else:
                self._running = True
                if self._queue:
                    self._set_deadline_timer(self._queue.earliest_deadline(), loop)
                return

        start = perf_counter_ns()
        completed: list[CompletedBatch] = []
        try:
            completed = self.runner.run(batch)
        finally:
            self._finish_run(batch, size, completed, perf_counter_ns() - start, loop)

    def _refuse_batch(self, batch: list[QueuedRequest], size: int, loop: asyncio.AbstractEventLoop) -> None:
        """Fail the requests of a batch that needs a thread, and gets none."""
        for request in batch:
            request.outcome = OverloadedError(
                "server: this worker can start no thread for the run; try again"
            )
        self._finish_run(batch, size, [], 0, loop)

    def _run_in_thread(self, batch: list[QueuedRequest], size: int, loop: asyncio.AbstractEventLoop) -> None:
        start = perf_counter_ns()
        completed: list[CompletedBatch] = []
        try:
            completed = self.runner.run(batch)
        finally:
            # Raises if the loop was closed in the meantime. The error goes unnoticed, which is fine: closing
            # the loop has cancelled all requests that waited.
            ns = perf_counter_ns() - start
            loop.call_soon_threadsafe(self._finish_run, batch, size, completed, ns, loop)

    def _finish_run(
        self,
        batch: list[QueuedRequest],
        size: int,
        completed: list[CompletedBatch],
        ns: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Wake the requests of a batch, schedule the next run, and report this one."""
        self._running = False
        try:
            if self._deadline_timer is not None:
                self._set_deadline_timer(math.inf, loop)
            # a run that failed or ended early says nothing about how long runs take
            if all([type(request.outcome) is InferenceResult for request in batch]):  # noqa: C419, it is faster
                self._run_times.observe(size, len(batch), ns)
        finally:
            # even without memory for the above: every request gets its result or an error
            for request in batch:
                if request.future.done():
                    # the caller has gone: let go of the arrays
                    request.outcome = None
                else:
                    request.wake()
            self._schedule_next(loop)
        # last, so that an error in the callback costs no request its result
        for run in completed:
            self._on_batch(run)

    def _schedule_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a run for the requests that still wait, unless a woken request has already done so."""
        if self._queue and not (self._scheduled or self._running):
            self._scheduled = True
            loop.call_soon(self._start_or_wait, loop)

    def _set_deadline_timer(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Replace the timer; infinity stops it."""
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None
        self._timer_deadline = when
        if when < math.inf:
            self._deadline_timer = loop.call_at(when, self._on_deadline, loop)

    def _on_deadline(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queue.take_overdue()
        self._set_deadline_timer(self._queue.earliest_deadline(), loop)
        self._queue.expire_overdue()
