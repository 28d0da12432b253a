"""Tests of the batcher: which requests run together, and when."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from typing import Any

import numpy as np
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
from turnpike.service.batching.batch_run import CompletedBatch
from turnpike.service.batching.batcher import MAX_YIELDS, Batcher
from turnpike.service.errors import DeadlineError
from turnpike.service.inference_types import FeedLayout


def test_requests_of_one_event_loop_turn_share_a_run(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        model = Doubler()
        batcher = make_batcher(model.run)
        answers = await asyncio.gather(*(batcher.submit(rows(n), 1, ("double",)) for n in range(5)))
        assert [first_value(answer) for answer in answers] == [0, 2, 4, 6, 8]
        assert model.rows == [[0, 1, 2, 3, 4]]
        assert batcher.waiting == 0

    run_in_loop(main())


def test_queued_requests_share_a_run_unless_told_otherwise(run_in_loop: RunInLoop) -> None:
    async def main() -> None:
        model = Doubler()
        batcher = make_batcher(model.run)
        layout = FeedLayout.of(rows(0))
        plans = [batcher.runner.plan(layout, 1, ("double",), unbatched=n == 3) for n in range(4)]
        requests = [batcher.enqueue(rows(n), plan) for n, plan in enumerate(plans)]
        for request in requests:
            await request.future
        assert model.rows == [[0, 1, 2], [3]]

    run_in_loop(main())


def test_a_lone_request_runs_within_submit(run_in_loop: RunInLoop) -> None:
    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        for n in range(3):
            steps = batcher.submit(rows(n), 1, ("double",))
            with pytest.raises(StopIteration) as end:
                steps.send(None)
            assert first_value(end.value.value) == 2 * n
            await asyncio.sleep(0)
        assert model.rows == [[0], [1], [2]]

    run_in_loop(main())


def test_requests_after_the_first_of_a_turn_share_a_run(run_in_loop: RunInLoop) -> None:
    """The first request has run by itself when the second arrives; the rest of the turn runs together."""

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        await asyncio.gather(*(batcher.submit(rows(n), 1, ("double",)) for n in range(5)))
        assert model.rows == [[0], [1, 2, 3, 4]]
        await asyncio.gather(*(batcher.submit(rows(n), 1, ("double",)) for n in range(5)))
        assert model.rows[2:] == [[0, 1, 2, 3, 4]]

    run_in_loop(main())


async def run_concurrent_requests(batcher: Batcher, model: Doubler) -> None:
    """Make the batcher expect concurrent requests."""
    await asyncio.gather(*(batcher.submit(rows(n), 1, ("double",)) for n in range(4)))
    model.feeds.clear()


def test_a_run_is_postponed_while_requests_arrive(run_in_loop: RunInLoop) -> None:
    """Requests of the next turns join the batch, up to MAX_YIELDS turns."""

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run, max_rows=100))
        await run_concurrent_requests(batcher, model)
        tasks = []
        for n in range(2 * MAX_YIELDS + 4):
            tasks += [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for _ in range(2)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert model.rows[0] == [n for n in range(MAX_YIELDS + 1) for _ in range(2)]
        assert [n for run in model.rows for n in run] == [
            n for n in range(2 * MAX_YIELDS + 4) for _ in range(2)
        ]

    run_in_loop(main())


def test_a_full_run_is_not_postponed(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run, max_rows=2))
        await run_concurrent_requests(batcher, model)
        tasks = [asyncio.create_task(batcher.submit(rows(n), 1, ("double",))) for n in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(model.feeds) == 1
        await asyncio.gather(*tasks)

    run_in_loop(main())


def test_a_lone_request_after_concurrent_traffic_waits_a_turn(run_in_loop: RunInLoop) -> None:
    """After some lone requests, the next ones do not wait any more."""

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))

        async def turns_until_run() -> int:
            task = asyncio.create_task(batcher.submit(rows(1), 1, ("double",)))
            before, loop_turns = len(model.feeds), 0
            while len(model.feeds) == before:
                await asyncio.sleep(0)
                loop_turns += 1
            await task
            return loop_turns

        alone = await turns_until_run()
        await asyncio.gather(*(batcher.submit(rows(n), 1, ("double",)) for n in range(8)))
        assert await turns_until_run() > alone
        for _ in range(30):
            await turns_until_run()
        assert await turns_until_run() == alone

    run_in_loop(main())


def test_short_runs_are_inline_and_long_runs_in_a_thread(run_in_loop: RunInLoop) -> None:
    """The event loop goes on during a long run."""

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run))
        await batcher.submit(rows(1), 1, ("double",))
        assert model.threads == [threading.get_ident()]
        slow = Doubler(sleep_for(0.05))
        batcher = make_batcher(slow.run)
        task = asyncio.create_task(batcher.submit(rows(1), 1, ("double",)))
        loop_turns = 0
        while not task.done():
            await asyncio.sleep(0.001)
            loop_turns += 1
        assert loop_turns > 5
        assert slow.threads != [threading.get_ident()]

    run_in_loop(main())


def test_requests_during_a_run_form_the_next_batch(run_in_loop: RunInLoop) -> None:
    async def main() -> None:
        blocked = BlockedRuns()
        batcher = make_batcher(blocked.model.run)
        tasks = []
        for n in range(6):
            tasks.append(asyncio.create_task(batcher.submit(rows(n), 1, ("double",))))
            await asyncio.sleep(0.002)
        blocked.release.set()
        assert [first_value(await task) for task in tasks] == [0, 2, 4, 6, 8, 10]
        assert blocked.model.rows == [[0], [1, 2, 3, 4, 5]]

    run_in_loop(main())


def test_max_delay_waits_for_more_requests(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run, max_delay=0.3))
        first_task = asyncio.create_task(batcher.submit(rows(1), 1, ("double",)))
        await asyncio.sleep(0.02)
        second_task = asyncio.create_task(batcher.submit(rows(2), 1, ("double",)))
        await asyncio.sleep(0.02)
        assert model.rows == []
        await asyncio.gather(first_task, second_task)
        assert model.rows == [[1, 2]]

    run_in_loop(main())


def test_a_full_batch_ends_the_delay(run_in_loop: RunInLoop) -> None:

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run, max_delay=60))
        first_task = asyncio.create_task(batcher.submit(rows(1), 1, ("double",)))
        await asyncio.sleep(0.01)
        assert model.rows == []
        await batcher.submit(rows(*range(2, 9)), 7, ("double",))
        await first_task
        assert model.rows == [[1, 2, 3, 4, 5, 6, 7, 8]]

    run_in_loop(main())


def test_a_deadline_within_the_delay_ends_the_delay(run_in_loop: RunInLoop) -> None:
    """A request must not expire because it waits for others."""

    async def main() -> None:
        model = Doubler()
        batcher = with_short_runs(make_batcher(model.run, max_delay=60))
        first_task = asyncio.create_task(batcher.submit(rows(1), 1, ("double",)))
        await asyncio.sleep(0.01)
        assert model.rows == []
        await batcher.submit(rows(2), 1, ("double",), deadline=asyncio.get_running_loop().time() + 30)
        await first_task
        assert model.rows == [[1, 2]]

    run_in_loop(main())


@pytest.mark.parametrize(
    ("names", "extra", "alone", "options"),
    [
        (("total",), False, False, {}),
        (("double",), True, False, {}),
        (("double",), False, True, {}),
        (("double",), False, False, {"batched": False}),
    ],
)
def test_requests_that_cannot_share_a_run_run_alone(
    run_in_loop: RunInLoop, names: tuple[str, ...], extra: bool, alone: bool, options: dict[str, Any]
) -> None:
    """They request unsplittable outputs, feed levers, set `unbatched`, or run a coupled model."""

    async def main() -> None:
        model = Doubler()
        batcher = make_batcher(model.run, **options)
        bias = {"bias": np.ones(3)} if extra else {}
        await asyncio.gather(
            *(batcher.submit(rows(n) | bias, 1, names, unbatched=alone) for n in range(3)),
            *(batcher.submit(rows(n), 1, ("double",)) for n in range(3, 5)),
        )
        together = [[3], [4]] if options else [[3, 4]]
        assert model.rows == [[0], [1], [2], *together]

    run_in_loop(main())


def test_every_successful_run_is_observed(run_in_loop: RunInLoop) -> None:
    """Failed runs are not reported."""

    async def main() -> None:
        def rule(feeds: Any) -> None:
            if (feeds["x"] == 7).any():
                raise ArithmeticError

        observed: list[CompletedBatch] = []
        model = Doubler(rule)
        batcher = with_short_runs(make_batcher(model.run, observed))
        await run_concurrent_requests(batcher, model)
        observed.clear()
        answers = await asyncio.gather(
            batcher.submit(rows(1, 2), 2, ("double",)), batcher.submit(rows(3), 1, ("double",))
        )
        with pytest.raises(ArithmeticError):
            await batcher.submit(rows(7), 1, ("double",))
        (batch,) = observed
        assert batch.rows == 3
        assert batch.run_ns == answers[0].run_ns > 0

    run_in_loop(main())


@pytest.mark.slow
def test_ten_thousand_requests_get_their_own_results(run_in_loop: RunInLoop) -> None:
    """Shapes are mixed, and some requests are cancelled, late or faulty."""

    async def main() -> None:
        dice, speed = random.Random(0), random.Random(1)

        def rule(feeds: Any) -> None:
            if (feeds["x"] < 0).any():
                raise ArithmeticError
            if speed.random() < 0.01:
                sleep_for(0.002)(feeds)

        batcher = make_batcher(Doubler(rule).run, max_rows=32, max_queue=10_000, pad_single_rows=True)
        loop = asyncio.get_running_loop()
        outcomes = dict.fromkeys(("good", "cancelled", "late", "bad"), 0)

        async def call(tag: int) -> None:
            await asyncio.sleep(dice.random() * 0.3)
            kind = dice.choices(["good", "cancelled", "late", "bad"], [70, 15, 10, 5])[0]
            count = dice.choice([1, 1, 1, 2, 5, 40])
            tags = [-tag - 1.0] * count if kind == "bad" else [tag + n / 64 for n in range(count)]
            names = dice.choice([("double",), ("negative", "double"), ("double", "total")])
            feeds = rows(*tags, width=dice.choice([1, 2, 3]))
            task = asyncio.ensure_future(
                batcher.submit(
                    feeds,
                    count,
                    names,
                    deadline=loop.time() + (dice.random() * 0.01 if kind == "late" else math.inf),
                    unbatched=dice.random() < 0.02,
                )
            )
            if kind == "cancelled":
                await asyncio.sleep(dice.choice([0, 0, 0.001, 0.005]))
                task.cancel()
            try:
                answer = await task
            except asyncio.CancelledError:
                assert kind == "cancelled"
            except DeadlineError:
                assert kind == "late"
            except ArithmeticError:
                assert kind == "bad"
            else:
                assert kind != "bad"
                np.testing.assert_array_equal(answer.arrays[names.index("double")], 2 * feeds["x"])
                if "negative" in names:
                    np.testing.assert_array_equal(answer.arrays[0], -feeds["x"])
                if "total" in names:
                    np.testing.assert_array_equal(answer.arrays[1], [feeds["x"].sum()])
                kind = "good"
            outcomes[kind] += 1

        await asyncio.wait_for(asyncio.gather(*(call(tag) for tag in range(10_000))), 60)
        assert sum(outcomes.values()) == 10_000
        assert min(outcomes.values()) > 100
        assert batcher.waiting == 0

    run_in_loop(main())
