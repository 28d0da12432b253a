"""Tests of runs within submit, and of callers that continue within the callback that wakes them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from time import monotonic
from typing import Any

import numpy as np
import pytest
import uvloop

from tests.support.fake_models import BlockedRuns, Doubler, make_batcher, rows, with_short_runs
from turnpike.service.batching.batcher import Batcher
from turnpike.service.errors import DeadlineError
from turnpike.service.requests.driver import DriverWaiter

SMALL, LARGE = 2, 64


class Caller:
    """A caller that continues at once when its future is done, as the driver of HTTP requests does."""

    def __init__(self) -> None:
        self.got: list[float] = []
        self.error: Exception | None = None
        self.awaited: Any = None
        self._steps: Coroutine[Any, Any, None] | None = None

    def future(self) -> DriverWaiter:
        return DriverWaiter(self)  # type: ignore[arg-type]

    def ask(
        self, batcher: Batcher, *tags: float, width: int = SMALL, then: int | None = None, **more: Any
    ) -> None:
        """Start one request after the other; `then` is the width of those after the first."""
        self._steps = self._asking(batcher, tags, width, more, then)
        self.step()

    @property
    def done(self) -> bool:
        return self._steps is None

    async def _asking(
        self,
        batcher: Batcher,
        tags: tuple[float, ...],
        width: int,
        more: dict[str, Any],
        then: int | None = None,
    ) -> None:
        for tag in tags:
            feeds = rows(tag, width=width)
            answer = await batcher.submit(feeds, 1, ("double",), future=self.future(), **more)
            self.got.append(float(answer.arrays[0].flat[0]) / 2)
            width = then or width

    def ask_again_when_late(
        self, batcher: Batcher, *tags: float, deadline: float, width: int = LARGE
    ) -> None:
        """Start a long request with this deadline; when it has passed, start the others without one."""
        first, *others = tags

        async def asking() -> None:
            try:
                await self._asking(batcher, (first,), LARGE, {"deadline": deadline})
            except DeadlineError as error:
                self.error = error
                await self._asking(batcher, tuple(others), width, {})

        self._steps = asking()
        self.step()

    def step(self) -> None:
        assert self._steps is not None
        try:
            self.awaited = self._steps.send(None)
        except StopIteration:
            self._steps = None
        except Exception as error:
            self.error, self._steps = error, None


async def wait_for_callers(*callers: Caller) -> None:
    async with asyncio.timeout(5):
        while not all(caller.done for caller in callers):
            await asyncio.sleep(0)


@pytest.mark.parametrize("then", [LARGE, SMALL])
def test_resubmitting_when_woken_does_not_start_a_second_run(then: int) -> None:
    """A caller may submit again while it is woken. A large request only schedules a run. A small one starts
    it at once, and the run goes to the thread, because it takes the large request at the head of the queue.
    """
    gates = [threading.Event(), threading.Event(), threading.Event()]
    active, max_active = 0, 0
    started: list[float] = []

    def wait(feeds: Any) -> None:
        nonlocal active, max_active
        active += 1
        max_active = max(max_active, active)
        started.append(float(feeds["x"].flat[0]))
        if feeds["x"].size == LARGE:
            assert gates[int(feeds["x"].flat[0]) - 1].wait(5)
        active -= 1

    async def main() -> None:
        model = Doubler(wait)
        batcher = make_batcher(model.run)
        batcher._run_times.observe(SMALL, 1, 1000)
        batcher._run_times.observe(LARGE, 1, 10**8)
        again, second, third = callers = Caller(), Caller(), Caller()
        again.ask(batcher, 1, 3, width=LARGE, then=then, unbatched=True)
        second.ask(batcher, 2, width=LARGE, unbatched=True)
        third.ask(batcher, 9)
        gates[0].set()
        async with asyncio.timeout(5):
            while 2 not in started:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert started == [1, 2]
        assert batcher.waiting == 2
        gates[1].set()
        gates[2].set()
        await wait_for_callers(*callers)
        assert started == [1, 2, 9, 3]
        assert max_active == 1
        assert [caller.got for caller in callers] == [[1, 3], [2], [9]]

    uvloop.run(main())


def test_resubmitting_repeatedly_does_not_starve_others() -> None:

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        greedy, other = Caller(), Caller()
        asyncio.get_running_loop().call_soon(lambda: other.ask(batcher, -1))
        greedy.ask(batcher, *range(100))
        assert len(greedy.got) == 1
        await wait_for_callers(other)
        assert len(greedy.got) < 5
        await wait_for_callers(greedy)
        assert greedy.got == list(range(100))

    uvloop.run(main())


def test_inline_runs_keep_the_order() -> None:

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        for _ in range(20):
            model.feeds.clear()
            callers = [Caller() for _ in range(6)]
            for tag, caller in enumerate(callers):
                caller.ask(batcher, tag, unbatched=tag % 3 == 0, width=SMALL + tag // 4)
            await wait_for_callers(*callers)
            assert [tag for run in model.rows for tag in run] == [0, 1, 2, 3, 4, 5]
            assert [caller.got for caller in callers] == [[tag] for tag in range(6)]

    uvloop.run(main())


def test_a_late_request_is_not_run_inline() -> None:

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        late, next_ = Caller(), Caller()
        late.ask(batcher, 1, deadline=monotonic() - 1)
        assert isinstance(late.error, DeadlineError)
        assert batcher.waiting == 0
        next_.ask(batcher, 2, deadline=monotonic() + 5)
        await wait_for_callers(next_)
        assert model.rows == [[2]]

    uvloop.run(main())


class CountedRuns:
    """A model that counts how many of its runs are active at the same time; each waits for `release`."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.active = self.max_active = 0
        self.model = Doubler(self._wait)

    def _wait(self, feeds: Any) -> None:
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        assert self.release.wait(5)
        time.sleep(0.01)
        self.active -= 1

    def batcher(self) -> Batcher:
        """A batcher that expects large runs to be long, so that they take place in its thread."""
        batcher = make_batcher(self.model.run, batched=False)
        batcher._run_times.observe(SMALL, 1, 1000)
        batcher._run_times.observe(LARGE, 1, 10**8)
        return batcher


def test_a_late_caller_may_submit_again_when_its_deadline_fires() -> None:
    """Its next request is queued while the overdue ones expire, and none of them is forgotten."""

    async def main() -> None:
        runs = CountedRuns()
        batcher = runs.batcher()
        first, *late = [Caller() for _ in range(4)]
        first.ask(batcher, 1, width=LARGE)
        for tag, caller in enumerate(late):
            caller.ask_again_when_late(batcher, -1, 10 + tag, deadline=monotonic() + 0.02)
        async with asyncio.timeout(5):
            while not all(caller.error for caller in late):
                await asyncio.sleep(0.001)
        assert batcher.waiting == 3
        runs.release.set()
        await wait_for_callers(first, *late)
        assert [caller.got for caller in late] == [[10], [11], [12]]
        assert runs.max_active == 1

    uvloop.run(main())


def test_a_late_caller_may_submit_again_while_a_run_starts() -> None:
    """Its deadline passes while the event loop is busy, so that the start of the next run notices it."""

    async def main() -> None:
        runs = CountedRuns()
        batcher = runs.batcher()
        # as after concurrent traffic, so that the next request is scheduled rather than run at once
        batcher._recent_batch_size = 3.0
        first, late, last = Caller(), Caller(), Caller()
        first.ask(batcher, 1, width=LARGE)
        late.ask_again_when_late(batcher, -1, 10, 11, deadline=monotonic() + 0.05, width=SMALL)
        last.ask(batcher, 2, 3, width=LARGE)
        async with asyncio.timeout(5):
            while not runs.active:
                await asyncio.sleep(0)
        runs.release.set()
        time.sleep(0.1)
        await wait_for_callers(first, late, last)
        assert isinstance(late.error, DeadlineError)
        assert (late.got, last.got) == ([10, 11], [2, 3])
        assert runs.max_active == 1

    asyncio.run(main())


def test_an_inline_failure_fails_only_its_caller() -> None:

    def refuse(feeds: Any) -> None:
        if (feeds["x"] == 13).any():
            raise ValueError("not this one")

    async def main() -> None:
        model = Doubler(refuse)
        batcher = with_short_runs(make_batcher(model.run))
        callers = [Caller() for _ in range(5)]
        for tag, caller in zip((13, 1, 13, 2, 3), callers, strict=True):
            caller.ask(batcher, tag)
        await wait_for_callers(*callers)
        assert [type(caller.error) for caller in callers] == [ValueError, type(None)] * 2 + [type(None)]
        assert [caller.got for caller in callers] == [[], [1], [], [2], [3]]
        assert batcher.waiting == 0

    uvloop.run(main())


def test_levers_are_fed_to_their_own_request_only() -> None:
    """Other requests of the same turn run without them."""

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        lever = np.ones(3, np.float32)
        answers = await asyncio.gather(
            batcher.submit({**rows(1), "lever": lever}, 1, ("double",)),
            batcher.submit(rows(2), 1, ("double",)),
            batcher.submit({**rows(3), "lever": lever}, 1, ("double",)),
            batcher.submit(rows(4), 1, ("double",)),
        )
        assert [answer.arrays[0].flat[0] for answer in answers] == [2, 4, 6, 8]
        assert [sorted(feeds) for feeds in model.feeds] == [["lever", "x"], ["x"], ["lever", "x"]]
        assert model.rows == [[1], [2, 4], [3]]

    uvloop.run(main())


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_a_cancelled_request_gets_cancelled_error_once(when: str) -> None:
    """It gets the error in a turn of its own, whatever the result of the run."""

    async def main() -> None:
        blocked = BlockedRuns()
        model = blocked.model
        batcher = make_batcher(model.run)
        first, second = Caller(), Caller()
        first.ask(batcher, 1, 3, unbatched=True)
        second.ask(batcher, 2, unbatched=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        gone, other = (second, first) if when == "waiting" else (first, second)
        signal = gone.awaited
        steps: list[str] = []

        def cancelled() -> None:
            steps.append("cancelled")
            with pytest.raises(asyncio.CancelledError):
                gone._steps.send(None)  # type: ignore[union-attr]
            gone._steps = None

        gone.step = cancelled  # type: ignore[method-assign]
        signal.cancel()
        signal.cancel()
        assert steps == []
        assert signal.done()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert steps == ["cancelled"]
        assert batcher.waiting == (0 if when == "waiting" else 1)
        blocked.release.set()
        await wait_for_callers(other)
        assert steps == ["cancelled"]
        assert gone.got == []
        assert other.got == ([1, 3] if when == "waiting" else [2])
        assert [tag for run in model.rows for tag in run] == ([1, 3] if when == "waiting" else [1, 2])

    uvloop.run(main())
