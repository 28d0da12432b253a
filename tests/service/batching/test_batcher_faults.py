"""Tests of the batcher's failures: full queue, deadlines, cancelled requests, errors of the model."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.fake_models import (
    BlockedRuns,
    Doubler,
    RunInLoop,
    first_value,
    make_batcher,
    rows,
    sleep_for,
    with_short_runs,
)
from turnpike.service.errors import DeadlineError, InternalError, OverloadedError
from turnpike.service.inference_types import Array, FeedLayout, InferenceResult


async def loop_turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_full_queue_refuses_requests_at_once(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run, max_queue=3)
        tasks = [asyncio.create_task(batcher.submit(rows(0), 1, ("double",)))]
        await loop_turns()
        tasks += [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(1, 4)]
        await loop_turns()
        assert batcher.is_full
        assert batcher.waiting == 3
        with pytest.raises(
            OverloadedError, match=r"fewer than 3 requests \(--queue\) waiting for the model, and there are 3"
        ):
            await batcher.submit(rows(9), 1, ("double",))
        blocked.release.set()
        assert [first_value(await task) for task in tasks] == [0, 2, 4, 6]
        assert not batcher.is_full

    run_in_loop(main())


def test_retry_after_is_the_expected_time_of_the_queue() -> None:
    """It is in whole seconds, at least one."""

    async def main() -> None:
        batcher = make_batcher(BlockedRuns().model.run)
        assert batcher.overloaded_error().retry_after == 1
        batcher._run_times.observe(1, 1, 800_000_000)
        tasks = [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(4)]
        await asyncio.sleep(0)
        assert batcher.overloaded_error().retry_after == 4
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_a_cancelled_request_leaves_the_queue(run_in_loop: RunInLoop) -> None:
    """Its arrays are freed at once, even during a long run."""

    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run, max_queue=2)
        running = asyncio.create_task(batcher.submit(rows(0), 1, ("double",)))
        await loop_turns()
        feeds = rows(1)
        held = weakref.ref(feeds["x"])
        tasks = [asyncio.create_task(batcher.submit(feeds, 1, ("double",))) for _ in range(2)]
        await loop_turns()
        assert batcher.is_full
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert batcher.waiting == 0
        del tasks, task, feeds
        gc.collect()
        assert held() is None
        blocked.release.set()
        assert first_value(await running) == 0
        assert blocked.model.rows == [[0]]

    run_in_loop(main())


def test_a_request_cancelled_in_the_turn_of_its_run_is_not_run(run_in_loop: RunInLoop) -> None:
    """The other requests of the run get their rows."""

    async def main() -> None:
        model = Doubler()
        batcher = make_batcher(model.run, max_rows=5)
        tasks = [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(5)]
        await asyncio.sleep(0)
        # a full run begins in the next turn, before these two notice that they are cancelled
        tasks[1].cancel()
        tasks[3].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [first_value(answers[n]) for n in (0, 2, 4)] == [0, 4, 8]
        assert model.rows == [[0, 2, 4]]

    run_in_loop(main())


class CountedRepr(dict[str, Any]):
    """Feeds that count how often they are formatted."""

    def __init__(self, feeds: dict[str, Any]) -> None:
        super().__init__(feeds)
        self.written = 0

    def __repr__(self) -> str:
        self.written += 1
        return ""


def test_cancelling_during_the_run_does_not_format_arrays(run_in_loop: RunInLoop) -> None:
    """deque.remove formats the item that it does not find, which would take long for arrays."""
    feeds = CountedRepr(rows(1.0))
    assert repr(feeds) == ""

    async def main() -> None:
        blocked = BlockedRuns()
        task = asyncio.create_task(make_batcher(blocked.model.run).submit(feeds, 1, ("double",)))
        while not blocked.model.feeds:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        blocked.release.set()

    run_in_loop(main())
    assert feeds.written == 1


def test_cancelling_during_the_run_does_not_affect_other_requests(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run)
        tasks = [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(4)]
        await loop_turns()
        tasks[0].cancel()
        tasks[2].cancel()
        await loop_turns()
        blocked.release.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [first_value(answers[n]) for n in (1, 3)] == [2, 6]
        assert blocked.model.rows == [[0, 1, 2, 3]]
        assert first_value(await batcher.submit(rows(5), 1, ("double",))) == 10

    run_in_loop(main())


def test_a_request_past_its_deadline_is_not_run(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        model = Doubler()
        batcher = make_batcher(model.run)
        now = asyncio.get_running_loop().time()
        answers = await asyncio.gather(
            *(batcher.submit(rows(n), 1, ("double",), deadline=now + n) for n in (-1, 60)),
            return_exceptions=True,
        )
        assert isinstance(answers[0], DeadlineError)
        assert first_value(answers[1]) == 120
        assert model.rows == [[60]]

    run_in_loop(main())


@pytest.mark.parametrize("order", [(60, 0.03, 0.06), (0.03, 60, 0.06), (0.06, 0.03, 60)])
@pytest.mark.parametrize("before", [True, False], ids=["queued", "arriving"])
def test_requests_expire_during_a_long_run(
    run_in_loop: RunInLoop, order: tuple[float, ...], before: bool
) -> None:
    """They expire at their own deadlines although the thread is busy."""

    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run, max_rows=1)
        loop = asyncio.get_running_loop()
        ended: dict[float, float] = {}

        async def call(wait: float) -> None:
            until = loop.time() + wait
            with pytest.raises(DeadlineError):
                await batcher.submit(rows(wait), 1, ("double",), deadline=until)
            ended[wait] = time.monotonic() - until

        running = asyncio.create_task(batcher.submit(rows(0), 1, ("double",)))
        if not before:
            await loop_turns()
        tasks = {wait: asyncio.create_task(call(wait)) for wait in order}
        await asyncio.wait([tasks[0.03]], timeout=10)
        await asyncio.wait([tasks[0.06]], timeout=10)
        assert set(ended) == {0.03, 0.06}
        assert min(ended.values()) > -0.005
        assert batcher.waiting == 1
        tasks[60].cancel()
        blocked.release.set()
        await running
        await asyncio.wait(tasks.values())
        assert blocked.model.rows == [[0]]

    run_in_loop(main())


def test_a_distant_deadline_does_not_keep_the_batcher_alive(run_in_loop: RunInLoop) -> None:
    """Its timer must not hold a reference to a dropped batcher."""

    async def main() -> None:
        blocked = BlockedRuns()
        blocked.release.set()
        batcher = make_batcher(blocked.model.run, max_rows=1)
        far = asyncio.get_running_loop().time() + 3600
        await asyncio.gather(*(batcher.submit(rows(n), 1, ("double",), deadline=far) for n in range(3)))
        await loop_turns()
        gone = weakref.ref(batcher)
        del batcher
        # the thread of the last run may still be at its end
        async with asyncio.timeout(5):
            while gone() is not None:
                gc.collect()
                await asyncio.sleep(0.01)

    run_in_loop(main())


def test_the_thread_ends_with_its_batcher() -> None:

    async def main() -> None:
        before = set(threading.enumerate())
        batcher = make_batcher(Doubler().run)
        await batcher.submit(rows(1), 1, ("double",))
        (thread,) = set(threading.enumerate()) - before
        del batcher
        gc.collect()
        await asyncio.sleep(0)
        thread.join(5)
        assert not thread.is_alive()

    asyncio.run(main())


def test_a_faulty_request_fails_alone(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        error = ArithmeticError("seven")

        def rule(feeds: Mapping[str, Array]) -> None:
            if (feeds["x"] == 7).any():
                raise error

        batcher = make_batcher(Doubler(rule).run)
        answers = await asyncio.gather(
            *(batcher.submit(rows(n), 1, ("double",)) for n in range(6, 9)), return_exceptions=True
        )
        assert first_value(answers[0]) == 12
        assert answers[1] is error
        assert first_value(answers[2]) == 16

    run_in_loop(main())


@pytest.mark.parametrize("error", [StopIteration, MemoryError, asyncio.CancelledError])
def test_any_exception_reaches_the_waiting_requests(
    run_in_loop: RunInLoop, error: type[BaseException]
) -> None:
    """This includes exceptions that are not subclasses of Exception."""

    async def main() -> None:
        def rule(feeds: Mapping[str, Array]) -> None:
            if (feeds["x"] == 7).all():
                raise error

        batcher = make_batcher(Doubler(rule).run)
        answers = await asyncio.gather(
            *(batcher.submit(rows(7), 1, ("double",)) for _ in range(2)), return_exceptions=True
        )
        assert all(isinstance(answer, (InternalError, MemoryError, RuntimeError)) for answer in answers)
        assert first_value(await batcher.submit(rows(1), 1, ("double",))) == 2

    run_in_loop(main())


def test_failed_requests_free_their_arrays() -> None:
    """They leave no reference cycles behind."""

    async def main() -> None:
        def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
            raise ArithmeticError

        batcher = with_short_runs(make_batcher(run))
        held = []

        async def call() -> None:
            feeds = rows(1)
            held.append(weakref.ref(feeds["x"]))
            with pytest.raises(ArithmeticError):
                await batcher.submit(feeds, 1, ("double",))

        await asyncio.gather(*(call() for _ in range(4)))
        assert [ref() for ref in held] == [None] * 4

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_failed_runs_do_not_count_as_short(run_in_loop: RunInLoop) -> None:
    """A model that fails quickly is not a fast model."""

    async def main() -> None:
        def rule(feeds: Mapping[str, Array]) -> None:
            if (feeds["x"] == 7).any():
                raise ArithmeticError

        model = Doubler(rule)
        batcher = make_batcher(model.run)
        for _ in range(3):
            with pytest.raises(ArithmeticError):
                await batcher.submit(rows(7), 1, ("double",))
        assert threading.get_ident() not in model.threads

    run_in_loop(main())


def test_a_failing_observer_does_not_fail_requests() -> None:

    async def main() -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))

        def fail(batch: object) -> None:
            raise ArithmeticError

        batcher = make_batcher(Doubler().run, on_batch=fail)
        # of different width, so that each but the last leaves others waiting
        answers = await asyncio.gather(
            *(batcher.submit(rows(n, width=n), 1, ("double",)) for n in range(1, 4))
        )
        assert [first_value(answer) for answer in answers] == [2, 4, 6]
        await asyncio.sleep(0)
        assert [type(context["exception"]) for context in contexts] == [ArithmeticError] * 3

    asyncio.run(main())


def test_runs_are_inline_if_no_thread_can_start(
    run_in_loop: RunInLoop, monkeypatch: pytest.MonkeyPatch
) -> None:

    def none(pool: ThreadPoolExecutor) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        model = Doubler(sleep_for(0.003))
        batcher = make_batcher(model.run)
        with monkeypatch.context() as patch:
            patch.setattr(ThreadPoolExecutor, "_adjust_thread_count", none)
            assert first_value(await batcher.submit(rows(1), 1, ("double",))) == 2
        assert first_value(await batcher.submit(rows(2), 1, ("double",))) == 4
        assert model.rows == [[1], [2]]
        assert model.threads[0] == threading.get_ident() != model.threads[1]

    run_in_loop(main())


def test_closing_the_loop_cancels_waiting_requests(run_in_loop: RunInLoop) -> None:
    """Requests of the current run are cancelled too. The run itself ends without an error."""
    blocked = BlockedRuns()
    tasks: list[asyncio.Task[InferenceResult]] = []

    async def main() -> None:
        batcher = make_batcher(blocked.model.run, max_rows=1)
        tasks.extend(asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(3))
        await loop_turns()

    run_in_loop(main())
    assert all(task.cancelled() for task in tasks)
    blocked.release.set()


class FailingWaiter:
    """A waiter whose caller fails as soon as it is woken."""

    def done(self) -> bool:
        return False

    def set_result(self, result: None, /) -> None:
        raise MemoryError

    def __await__(self) -> Any:
        raise AssertionError("the test does not await it")


def test_a_caller_that_fails_when_it_is_woken_does_not_affect_other_requests(run_in_loop: RunInLoop) -> None:
    """The others of its run get their results, and so do those that wait for the next run."""

    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run, max_rows=2)
        first = asyncio.create_task(batcher.submit(rows(0), 1, ("double",)))
        await loop_turns()
        batcher.enqueue(
            rows(1), batcher.runner.plan(FeedLayout.of(rows(1)), 1, ("double",)), future=FailingWaiter()
        )
        tasks = [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(2, 5)]
        await loop_turns()
        blocked.release.set()
        async with asyncio.timeout(5):
            assert [first_value(answer) for answer in await asyncio.gather(first, *tasks)] == [0, 4, 6, 8]

    run_in_loop(main())


def test_a_caller_that_fails_when_its_deadline_passes_does_not_affect_other_requests(
    run_in_loop: RunInLoop,
) -> None:
    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run, max_rows=1)
        running = asyncio.create_task(batcher.submit(rows(0), 1, ("double",)))
        await loop_turns()
        now = asyncio.get_running_loop().time()
        batcher.enqueue(
            rows(1), batcher.runner.plan(FeedLayout.of(rows(1)), 1, ("double",)), now, FailingWaiter()
        )
        with pytest.raises(DeadlineError):
            await asyncio.wait_for(batcher.submit(rows(2), 1, ("double",), deadline=now), 5)
        blocked.release.set()
        await running

    run_in_loop(main())


@pytest.mark.parametrize("short", [False, True], ids=["thread", "loop"])
def test_a_runner_that_fails_leaves_no_request_waiting(run_in_loop: RunInLoop, short: bool) -> None:
    """Such as by a MemoryError outside the model. Later requests run."""

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, report: None)
        batcher = make_batcher(Doubler().run)
        if short:
            with_short_runs(batcher)
        run = batcher.runner.run

        def fail(requests: Any) -> Any:
            raise MemoryError

        batcher.runner.run = fail  # type: ignore[method-assign]
        async with asyncio.timeout(5):
            answers = await asyncio.gather(
                *(batcher.submit(rows(n), 1, ("double",)) for n in range(3)), return_exceptions=True
            )
            assert all(isinstance(answer, InternalError | MemoryError) for answer in answers)
            batcher.runner.run = run  # type: ignore[method-assign]
            assert first_value(await batcher.submit(rows(4), 1, ("double",))) == 8

    run_in_loop(main())
