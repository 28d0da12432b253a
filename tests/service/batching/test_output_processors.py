"""Tests of processors within a run: each request gets a result from its own rows only."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import pytest

from tests.support.fake_models import Doubler, make_batcher, make_runner, rows
from turnpike.service.batching.queue import QueuedRequest
from turnpike.service.inference_types import Array, RunPlan


class Summer:
    """A processor that sums up an output. It fails for one number, and records what it was given."""

    output_names = ("negative",)

    def __init__(self, unbearable: float = math.nan) -> None:
        self.unbearable = unbearable
        self.given: list[tuple[list[float], int, int]] = []

    def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
        values = arrays["negative"][:, 0]
        if self.unbearable in values:
            raise ArithmeticError("no")
        self.given.append((values.tolist(), rows, requests))
        sums: list[float] = values.reshape(requests, -1).sum(1).tolist()
        return sums


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def make_request(
    loop: asyncio.AbstractEventLoop, processor: Summer | None, *tags: float, **more: Any
) -> QueuedRequest:
    names = more.get("names", ("double",))
    needed = names if processor is None else tuple(dict.fromkeys((*names, *processor.output_names)))
    plan = RunPlan(len(tags), 1, (), names, needed, processor)
    return QueuedRequest(rows(*tags), plan, math.inf, 0, loop.create_future())


def test_outputs_of_all_requests_are_read_together(loop: asyncio.AbstractEventLoop) -> None:
    """The outputs that are read are computed in the run, but are not part of the result's arrays."""
    model, processor = Doubler(), Summer()
    requests = [
        make_request(loop, processor, 1, 2),
        make_request(loop, processor, 3, 4),
        make_request(loop, processor, 5, 6),
    ]
    make_runner(model.run).run(requests)
    assert model.requested == [("double", "negative")]
    assert processor.given == [([-1, -2, -3, -4, -5, -6], 2, 3)]
    results = [request.result() for request in requests]
    assert [result.processed for result in results] == [-3, -7, -11]
    assert [len(result.arrays) for result in results] == [1, 1, 1]


def test_only_requests_with_a_processor_are_processed(loop: asyncio.AbstractEventLoop) -> None:
    """Requests of equal length are read together."""
    processor = Summer()
    requests = [
        make_request(loop, None, 1),
        make_request(loop, processor, 2),
        make_request(loop, processor, 3, 4),
        make_request(loop, None, 5),
        make_request(loop, processor, 6),
    ]
    make_runner(Doubler().run).run(requests)
    assert processor.given == [([-2, -6], 1, 2), ([-3, -4], 2, 1)]
    results = [request.result() for request in requests]
    assert [result.processed for result in results] == [None, -2, -7, None, -6]
    assert [result.arrays[0][:, 0].tolist() for result in results] == [[2], [4], [6, 8], [10], [12]]


def test_an_output_may_be_both_read_and_returned(loop: asyncio.AbstractEventLoop) -> None:
    """It is computed once, whether the request runs alone or in a batch."""
    for others in (0, 2):
        model, processor = Doubler(), Summer()
        requests = [make_request(loop, processor, 7, names=("negative", "double")) for _ in range(1 + others)]
        make_runner(model.run).run(requests)
        assert model.requested == [("negative", "double")]
        for request in requests:
            result = request.result()
            assert [array[0, 0] for array in result.arrays] == [-7, 14]
            assert result.processed == -7


def test_a_processed_request_has_its_waiting_time(loop: asyncio.AbstractEventLoop) -> None:
    request = make_request(loop, Summer(), 1)
    request.queued_ns = perf_counter_ns() - 5_000_000_000
    make_runner(Doubler().run).run([request])
    assert 5 <= request.result().queue_ns / 1e9 < 65


def test_rows_of_a_split_request_are_read_together(loop: asyncio.AbstractEventLoop) -> None:
    processor = Summer()
    request = make_request(loop, processor, *range(19))
    make_runner(Doubler().run).run([request])
    ((values, count, requests),) = processor.given
    assert (len(values), count, requests) == (19, 19, 1)
    result = request.result()
    assert result.processed == -sum(range(19))
    assert len(result.arrays) == 1


def test_a_request_that_reads_an_unsplittable_output_is_not_split(loop: asyncio.AbstractEventLoop) -> None:
    """All of its rows are in one run, however many they are."""

    class Total(Summer):
        output_names = ("total",)

        def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
            return [arrays["total"].tolist()]

    request = make_request(loop, Total(), *range(19))
    make_runner(Doubler().run).run([request])
    assert request.result().processed == [2 * sum(range(19))]


def test_a_failing_processor_fails_only_its_own_request(loop: asyncio.AbstractEventLoop) -> None:
    """The other requests of the run succeed."""
    processor = Summer(unbearable=-3)
    requests = [
        make_request(loop, None, 1),
        make_request(loop, processor, 2),
        make_request(loop, processor, 3),
        make_request(loop, None, 3),
    ]
    make_runner(Doubler().run).run(requests)
    assert [request.outcome for request in requests if isinstance(request.outcome, ArithmeticError)] == [
        requests[2].outcome
    ]
    assert [requests[n].result().processed for n in (0, 1, 3)] == [None, -2, None]


def test_a_request_that_reads_an_unsplittable_output_runs_alone() -> None:
    class Total(Summer):
        output_names = ("total",)

        def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
            return [float(arrays["total"][0])]

    async def ask() -> list[Any]:
        batcher = make_batcher(model.run)
        asked = [batcher.submit(rows(tag), 1, ("double",), processor=processor) for tag in (1, 2, 3)]
        return [result.processed for result in await asyncio.gather(*asked)]

    model, processor = Doubler(), Total()
    assert asyncio.run(ask()) == [2, 4, 6]
    assert [len(run) for run in model.rows] == [1, 1, 1]
    model, processor = Doubler(), Summer()  # type: ignore[assignment]
    assert asyncio.run(ask()) == [-1, -2, -3]
    assert len(model.rows) < 3


def test_reading_an_output_increases_the_size_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading an output counts as much as a further input, so such a run may count as long."""
    sizes: list[int] = []

    async def ask() -> None:
        batcher = make_batcher(Doubler().run)
        monkeypatch.setattr(batcher._run_times, "observe", lambda size, requests, ns: sizes.append(size))
        await batcher.submit(rows(1), 1, ("double",))
        await batcher.submit(rows(1), 1, ("double",), processor=Summer())

    asyncio.run(ask())
    assert sizes == [2, 4]
