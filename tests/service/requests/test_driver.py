"""The driver, which runs a coroutine as an asyncio task would, without a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from turnpike.service.requests.driver import Driver, DriverWaiter

Scene = Callable[["Run"], Coroutine[Any, Any, None]]


class Run:
    """A driver, the steps that its coroutine records, and its result."""

    def __init__(self, scene: Scene) -> None:
        self.steps: list[str] = []
        self.results: list[BaseException | None] = []
        self.driver = Driver(scene(self), self.results.append)

    async def end(self) -> BaseException | None:
        """The exception that the coroutine ended with, or None, once it has ended."""
        async with asyncio.timeout(5):
            while not self.results:
                await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        (result,) = self.results
        return result


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    """Run the test in an event loop that logs nothing as an error."""

    async def run_and_check() -> None:
        reports: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, report: reports.append(report))
        await test()
        assert reports == []

    for runner in (asyncio.run, uvloop.run):
        runner(run_and_check())  # type: ignore[operator]


def test_a_coroutine_without_await_ends_in_its_first_step() -> None:
    async def test() -> None:
        async def scene(run: Run) -> None:
            run.steps.append("only")

        run = Run(scene)
        assert run.steps == []
        run.driver.step()
        assert (run.steps, run.results) == (["only"], [None])

    in_loop(test)


def test_the_step_after_a_waiter_runs_where_its_result_is_set() -> None:
    async def test() -> None:
        waiters: list[DriverWaiter] = []

        async def scene(run: Run) -> None:
            for number in range(3):
                waiters.append(DriverWaiter(run.driver))
                await waiters[-1]
                run.steps.append(str(number))

        run = Run(scene)
        run.driver.step()
        for number in range(3):
            assert len(run.steps) == number
            assert not waiters[-1].done()
            waiters[-1].set_result(None)
            assert len(run.steps) == number + 1
        assert run.results == [None]
        assert all(waiter.done() for waiter in waiters)

    in_loop(test)


def test_awaiting_a_set_waiter_does_not_wait() -> None:
    async def test() -> None:
        async def scene(run: Run) -> None:
            waiter = DriverWaiter(run.driver)
            waiter.set_result(None)
            await waiter
            run.steps.append("after")

        run = Run(scene)
        run.driver.step()
        assert (run.steps, run.results) == (["after"], [None])

    in_loop(test)


def test_setting_an_abandoned_waiter_has_no_effect() -> None:
    """A waiter that is set while the coroutine awaits another must not run its next step."""

    async def test() -> None:
        waiters: list[DriverWaiter] = []

        async def scene(run: Run) -> None:
            waiters.extend([DriverWaiter(run.driver), DriverWaiter(run.driver)])
            await waiters[1]
            run.steps.append("after")

        run = Run(scene)
        run.driver.step()
        waiters[0].set_result(None)
        assert (run.steps, run.results) == ([], [])
        waiters[1].set_result(None)
        assert (run.steps, run.results) == (["after"], [None])

    in_loop(test)


@pytest.mark.parametrize("kind", ["future", "done future", "sleep(0)", "sleep", "task", "thread", "gather"])
def test_a_driver_awaits_whatever_a_task_can_await(kind: str) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()

        async def task() -> str:
            await asyncio.sleep(0.001)
            return "result"

        async def scene(run: Run) -> None:
            if kind.endswith("future"):
                run.steps.append(await future)
            elif kind.startswith("sleep"):
                run.steps.append(await asyncio.sleep(0 if kind == "sleep(0)" else 0.001, "result"))
            elif kind == "task":
                run.steps.append(await loop.create_task(task()))
            elif kind == "thread":
                run.steps.append(await asyncio.to_thread(lambda: "result"))
            else:
                run.steps.extend(await asyncio.gather(task(), loop.create_task(asyncio.sleep(0, "again"))))

        if kind == "done future":
            future.set_result("result")
        run = Run(scene)
        run.driver.step()
        assert bool(run.steps) is (kind == "done future")
        if kind == "future":
            future.set_result("result")
            # a future resumes the coroutine that awaits it in a later turn of the event loop
            assert run.steps == []
        assert await run.end() is None
        assert run.steps == (["result", "again"] if kind == "gather" else ["result"])

    in_loop(test)


def test_an_exception_of_the_coroutine_does_not_reach_the_setter() -> None:
    """The code that sets a result must not be interrupted by what the coroutine then raises."""

    async def test() -> None:
        waiters: list[DriverWaiter] = []

        async def scene(run: Run) -> None:
            waiters.append(DriverWaiter(run.driver))
            await waiters[0]
            raise KeyError("broken")

        run = Run(scene)
        run.driver.step()
        waiters[0].set_result(None)
        assert isinstance(run.results[0], KeyError)

        async def raising(run: Run) -> None:
            raise OSError

        run = Run(raising)
        run.driver.step()
        assert isinstance(run.results[0], OSError)

    in_loop(test)


def test_the_exception_of_a_future_is_raised_where_it_is_awaited() -> None:
    async def test() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def scene(run: Run) -> None:
            try:
                await future
            except ValueError:
                run.steps.append("caught")

        run = Run(scene)
        run.driver.step()
        future.set_exception(ValueError())
        assert await run.end() is None
        assert run.steps == ["caught"]

    in_loop(test)


@pytest.mark.parametrize("kind", ["waiter", "future", "task"])
@pytest.mark.parametrize("caught", [False, True])
def test_cancelling_cancels_the_awaited_future(kind: str, caught: bool) -> None:
    """This takes effect in a later turn of the event loop. The coroutine may clean up, or continue."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(asyncio.sleep(10))
        future: asyncio.Future[None] = loop.create_future()

        async def scene(run: Run) -> None:
            try:
                await {"waiter": DriverWaiter(run.driver), "future": future, "task": task}[kind]  # type: ignore[misc]
            except asyncio.CancelledError:
                run.steps.append("cancelled")
                await asyncio.sleep(0)
                if not caught:
                    raise

        run = Run(scene)
        run.driver.step()
        run.driver.cancel()
        run.driver.cancel()
        assert (run.steps, run.results) == ([], [])
        result = await run.end()
        assert isinstance(result, asyncio.CancelledError) is not caught
        assert run.steps == ["cancelled"]
        assert task.cancelled() is (kind == "task")
        assert future.cancelled() is (kind == "future")
        task.cancel()

    in_loop(test)


def test_cancelling_before_start_or_after_end_has_no_effect() -> None:
    async def test() -> None:
        async def scene(run: Run) -> None:
            await asyncio.sleep(0)
            run.steps.append("ran")

        run = Run(scene)
        run.driver.cancel()
        run.driver.step()
        assert await run.end() is None
        run.driver.cancel()
        assert await run.end() is None
        assert run.steps == ["ran"]

    in_loop(test)


def test_a_result_for_a_cancelled_waiter_is_ignored() -> None:
    """The batcher calls done() before it sets a result: a request whose client has gone counts as done."""

    async def test() -> None:
        waiters: list[DriverWaiter] = []

        async def scene(run: Run) -> None:
            waiters.append(DriverWaiter(run.driver))
            await waiters[0]

        run = Run(scene)
        run.driver.step()
        run.driver.cancel()
        assert waiters[0].done()
        assert isinstance(await run.end(), asyncio.CancelledError)

    in_loop(test)


def test_an_error_in_on_done_does_not_reach_the_setter(caplog: pytest.LogCaptureFixture) -> None:
    """A batch sets the results of several requests: none of them may stop the others."""

    async def test() -> None:
        waiters: list[DriverWaiter] = []

        def fail(error: BaseException | None) -> None:
            raise MemoryError

        async def scene() -> None:
            waiters.append(DriverWaiter(driver))
            await waiters[0]

        driver = Driver(scene(), fail)
        driver.step()
        waiters[0].set_result(None)

    in_loop(test)
    assert [record.message for record in caplog.records] == ["handling the end of a request failed"] * 2


def test_a_coroutine_that_cannot_be_resumed_ends_with_an_error() -> None:
    """Such as after a MemoryError while its next step is scheduled. Its cleanup runs."""

    class Unwatchable:
        def __await__(self) -> Any:
            yield self

    async def test() -> None:
        async def scene(run: Run) -> None:
            try:
                await Unwatchable()
            finally:
                run.steps.append("cleanup")

        run = Run(scene)
        run.driver.step()
        assert isinstance(run.results[0], AttributeError)
        assert run.steps == ["cleanup"]

    in_loop(test)
