"""Rows in, rows out: requests that come together are run together, in order, each as if it had been alone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter_ns

from service.batching.batch_run import BatchRunner, CompletedBatch
from service.batching.queue import QueuedRequest, RequestQueue
from service.errors import OverloadedError
from service.inference_types import Array, InferenceResult, OutputReader, Waiter

# a change of thread takes some 0.1 ms, which is little beside this, and this is short for others to wait
SHORT_RUN_NS = 2_000_000
# how much the newest measurement counts beside those before it
NEWEST_WEIGHT = 0.125


class RunTimeEstimator:
    """How long runs take, told by how much goes in: sizes within a factor of two are taken together."""

    def __init__(self) -> None:
        self._usual: dict[int, float] = {}
        self._request = 0.0

    def is_short(self, size: int) -> bool:
        """Whether a run of that many numbers is expected to be short; what was never measured is not."""
        known = self._usual
        of = size.bit_length()
        usual = known.get(of)
        if usual is None:
            if not known:
                return False
            near = min(known, key=lambda other: abs(other - of))
            usual = known[near] * 2.0 ** max(of - near, 0)
        return usual < SHORT_RUN_NS

    def observe(self, size: int, requests: int, ns: int) -> None:
        """Learn from a run."""
        of = size.bit_length()
        usual = self._usual.get(of, ns)
        self._usual[of] = usual + NEWEST_WEIGHT * (ns - usual)
        each = ns / requests
        self._request += NEWEST_WEIGHT * (each - self._request) if self._request else each

    def seconds(self, requests: int) -> float:
        """How long so many waiting requests take."""
        return requests * self._request / 1e9


__all__ = ["Batcher", "CompletedBatch"]

# for how many turns of the event loop a run is put off while they bring more requests
MAX_YIELDS = 2
# where runs had more requests than this of late, others may be on their way to one that comes alone
CONCURRENT = 1.1
# and of those that came in one turn there were at least as many
AT_LEAST_TWO = 2.0
# how much the last run counts in that


class Batcher:
    """The one queue of a model, and who runs it, one run at a time.

    `stack` says what may run together, and runs it. `max_delay` is how many seconds a run may wait for more
    rows, `queue` how many requests may wait; `observe` is told of every run.
    """

    def __init__(
        self,
        stack: BatchRunner,
        *,
        max_delay: float,
        queue: int,
        observe: Callable[[CompletedBatch], None],
    ) -> None:
        self.batched = stack.batched
        self._runner = stack
        self._max_rows = stack.max_rows
        self._max_delay = max_delay
        self._limit = queue
        self._observe = observe
        self._run_times = RunTimeEstimator()
        # its thread starts with the first long run, and ends when the batcher is dropped
        self._thread = ThreadPoolExecutor(1, "batcher")
        self._line = RequestQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        # a run is under way in the thread
        self._running = False
        # one that was alone has run in this turn of the event loop
        self._begun = False
        # the next run is to begin soon, or when the delay is over
        self._due = False
        self._delay: asyncio.TimerHandle | None = None
        # turns that it was put off, and the requests there were at the last of them
        self._turns = self._seen = 0
        # how many requests the last runs had
        self._company = 1.0
        # during a run in the thread: rings at the first deadline of those who wait
        self._alarm: asyncio.TimerHandle | None = None
        self._rings = math.inf

    @property
    def waiting(self) -> int:
        """How many requests wait for their run."""
        return len(self._line)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be refused."""
        return len(self._line) >= self._limit

    def overloaded_error(self) -> OverloadedError:
        """What a request is refused with when there is no room, and when there may be some."""
        seconds = math.ceil(self._run_times.seconds(len(self._line)))
        return OverloadedError(
            f"queue: expected fewer than {self._limit} requests waiting for the model, "
            f"and there are {len(self._line)}",
            max(1, seconds),
        )

    async def submit(
        self,
        feeds: Mapping[str, Array],
        rows: int,
        names: tuple[str, ...],
        *,
        deadline: float | None = None,
        unbatched: bool = False,
        future: Waiter | None = None,
        reader: OutputReader | None = None,
    ) -> InferenceResult:
        """The outputs named, and what a reader makes of others, just as the request run alone gives them;
        `future` is what the caller waits for.

        Overloaded comes at once, Expired when `deadline` (of the event loop's clock) passes before the run
        has begun; what the model raises comes to the request that is at fault.
        """
        if len(self._line) >= self._limit:
            raise self.overloaded_error()
        loop = self._loop
        if loop is None or loop.is_closed():
            # which asks the system for the process's number each time, to know a fork by
            loop = self._loop = asyncio.get_running_loop()
        needs, size = names, sum([array.size for array in feeds.values()])
        if reader is not None:
            needs += reader.output_names
            # each of them takes time as if it, too, had to go in
            size *= 1 + len(reader.output_names)
        job = QueuedRequest(
            feeds,
            rows,
            names,
            None if unbatched else self._runner.shapes(feeds, rows, needs),
            math.inf if deadline is None else deadline,
            perf_counter_ns(),
            future or loop.create_future(),
            size,
            reader,
        )
        self._line.append(job)
        if self._running:
            if job.deadline < self._rings:
                self._set_alarm(job.deadline, loop)
        elif not self._due:
            if self._is_alone(job):
                self._begun = True
                loop.call_soon(self._turned)
                self._begin(loop)
            else:
                self._due = True
                loop.call_soon(self._turn, loop)
        elif self._delay is not None and self._line.patience(self._max_delay, self._max_rows) <= 0:
            self._delay.cancel()
            self._delay = None
            loop.call_soon(self._begin, loop)
        try:
            await job.future
        except asyncio.CancelledError:
            with suppress(ValueError):  # no longer there once it was taken for a run
                self._line.remove(job)
            raise
        return job.result()

    def _is_alone(self, job: QueuedRequest) -> bool:
        """Whether nobody else is about for whom it should wait."""
        if self._begun and job.shapes is not None:
            # another has just run, alone, which came with it: they are a crowd
            self._company = max(self._company, AT_LEAST_TWO)
        return self._company <= CONCURRENT and not self._max_delay and self._run_times.is_short(job.size)

    def _turned(self) -> None:
        self._begun = False

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a run, or put it off while more come; a request alone, as the last was, does not wait."""
        waiting = len(self._line)
        crowd = waiting > 1 or self._company > CONCURRENT
        if (
            self._turns < MAX_YIELDS
            and waiting > self._seen
            and crowd
            and not self._line.fills(self._max_rows)
        ):
            self._turns += 1
            self._seen = waiting
            loop.call_soon(self._turn, loop)
        elif (left := self._line.patience(self._max_delay, self._max_rows)) > 0:
            self._delay = loop.call_later(left, self._begin, loop)
        else:
            self._begin(loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the first who waits, and with it those that are like it."""
        self._due = False
        self._delay = None
        self._turns = self._seen = 0
        jobs = self._line.take(self._max_rows)
        if not jobs:
            self._next(loop)
            return
        self._company += NEWEST_WEIGHT * (len(jobs) - self._company)
        if not self._run_times.is_short(sum([job.size for job in jobs])):
            try:
                self._thread.submit(self._run_in_thread, jobs, loop)
            except RuntimeError:
                # no thread is to be had, and late is better than never; a new pool, as this one kept the jobs
                self._thread = ThreadPoolExecutor(1, "batcher")
            else:
                self._running = True
                if self._line:
                    self._set_alarm(self._line.earliest(), loop)
                return
        start = perf_counter_ns()
        batches = self._runner.run(jobs, inline=True)
        self._finish(jobs, batches, perf_counter_ns() - start, loop)

    def _run_in_thread(self, jobs: list[QueuedRequest], loop: asyncio.AbstractEventLoop) -> None:
        start = perf_counter_ns()
        batches: list[CompletedBatch] = []
        try:
            batches = self._runner.run(jobs, inline=False)
        finally:
            # raises when the loop was closed meanwhile, which nobody hears of: all who waited were cancelled
            loop.call_soon_threadsafe(self._finish, jobs, batches, perf_counter_ns() - start, loop)

    def _finish(
        self,
        jobs: list[QueuedRequest],
        batches: list[CompletedBatch],
        ns: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Hand out what came of a run, and see to the next."""
        self._running = False
        if self._alarm is not None:
            self._set_alarm(math.inf, loop)
        # of runs that failed, or ended early, nothing can be learned
        if all(isinstance(job.outcome, InferenceResult) for job in jobs):
            self._run_times.observe(sum([job.size for job in jobs]), len(jobs), ns)
        for job in jobs:
            if job.future.done():
                job.outcome = None
            else:
                job.future.set_result(None)
        self._next(loop)
        for batch in batches:
            self._observe(batch)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin again for those who still wait, unless one who was handed its outcome has seen to it."""
        if self._line and not (self._due or self._running):
            self._due = True
            loop.call_soon(self._turn, loop)

    def _set_alarm(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._rings = when
        if when < math.inf:
            self._alarm = loop.call_at(when, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._line.expire()
        self._set_alarm(self._line.earliest(), loop)
