"""Readers of a run: each request has what is made of its own rows, whoever is in the run beside it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from service.batching.queue import QueuedRequest
from service.inference_types import Array
from tests.support.fake_models import Doubler, make_batcher, make_runner, rows


class Summer:
    """Sums up an output of each request, and keeps what it was given; it cannot bear one number."""

    output_names = ("negative",)

    def __init__(self, unbearable: float = math.nan) -> None:
        self.unbearable = unbearable
        self.given: list[tuple[list[float], int, int]] = []

    def read(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
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


def job(loop: asyncio.AbstractEventLoop, reader: Summer | None, *tags: float, **more: Any) -> QueuedRequest:
    names = more.get("names", ("double",))
    return QueuedRequest(rows(*tags), len(tags), names, (), math.inf, 0, loop.create_future(), 1, reader)


def test_all_are_read_at_once(loop: asyncio.AbstractEventLoop) -> None:
    """Requests of equal length; what is read is made in the run, and is no part of the answer."""
    model, reader = Doubler(), Summer()
    jobs = [job(loop, reader, 1, 2), job(loop, reader, 3, 4), job(loop, reader, 5, 6)]
    make_runner(model.run).run(jobs, inline=True)
    assert model.asked == [("double", "negative")]
    assert reader.given == [([-1, -2, -3, -4, -5, -6], 2, 3)]
    answers = [one.result() for one in jobs]
    assert [answer.reader_result for answer in answers] == [-3, -7, -11]
    assert [len(answer.arrays) for answer in answers] == [1, 1, 1]


def test_only_rows_of_those_who_want_it_are_read(loop: asyncio.AbstractEventLoop) -> None:
    """Those of one length together, and nobody else's."""
    reader = Summer()
    jobs = [
        job(loop, None, 1),
        job(loop, reader, 2),
        job(loop, reader, 3, 4),
        job(loop, None, 5),
        job(loop, reader, 6),
    ]
    make_runner(Doubler().run).run(jobs, inline=True)
    assert reader.given == [([-2, -6], 1, 2), ([-3, -4], 2, 1)]
    answers = [one.result() for one in jobs]
    assert [answer.reader_result for answer in answers] == [None, -2, -7, None, -6]
    assert [answer.arrays[0][:, 0].tolist() for answer in answers] == [[2], [4], [6, 8], [10], [12]]


def test_an_output_may_be_read_and_asked_for(loop: asyncio.AbstractEventLoop) -> None:
    """It is made once, and a request by itself is as one in company."""
    for others in (0, 2):
        model, reader = Doubler(), Summer()
        jobs = [job(loop, reader, 7, names=("negative", "double")) for _ in range(1 + others)]
        make_runner(model.run).run(jobs, inline=True)
        assert model.asked == [("negative", "double")]
        for one in jobs:
            answer = one.result()
            assert [array[0, 0] for array in answer.arrays] == [-7, 14]
            assert answer.reader_result == -7


def test_rows_of_several_runs_are_read_as_one_request(loop: asyncio.AbstractEventLoop) -> None:
    """When all of them are there."""
    reader = Summer()
    one = job(loop, reader, *range(19))
    make_runner(Doubler().run).run([one], inline=True)
    ((values, count, requests),) = reader.given
    assert (len(values), count, requests) == (19, 19, 1)
    answer = one.result()
    assert answer.reader_result == -sum(range(19))
    assert len(answer.arrays) == 1


def test_a_request_is_not_cut_where_what_is_read_cannot_be(loop: asyncio.AbstractEventLoop) -> None:
    """It is run whole, however many rows it has."""

    class Total(Summer):
        output_names = ("total",)

        def read(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
            return [arrays["total"].tolist()]

    one = job(loop, Total(), *range(19))
    make_runner(Doubler().run).run([one], inline=True)
    assert one.result().reader_result == [2 * sum(range(19))]


def test_a_reader_that_fails_fails_its_own_requests(loop: asyncio.AbstractEventLoop) -> None:
    """Others in the run have their answers."""
    reader = Summer(unbearable=-3)
    jobs = [job(loop, None, 1), job(loop, reader, 2), job(loop, reader, 3), job(loop, None, 3)]
    make_runner(Doubler().run).run(jobs, inline=True)
    assert [one.outcome for one in jobs if isinstance(one.outcome, ArithmeticError)] == [jobs[2].outcome]
    assert [jobs[n].result().reader_result for n in (0, 1, 3)] == [None, -2, None]


def test_what_is_read_says_who_may_run_together() -> None:
    """An output that falls into no rows is read in a run of the request's own."""

    class Total(Summer):
        output_names = ("total",)

        def read(self, arrays: Mapping[str, Array], rows: int, requests: int) -> Sequence[Any]:
            return [float(arrays["total"][0])]

    async def ask() -> list[Any]:
        batcher = make_batcher(model.run)
        asked = [batcher.submit(rows(tag), 1, ("double",), reader=reader) for tag in (1, 2, 3)]
        return [answer.reader_result for answer in await asyncio.gather(*asked)]

    model, reader = Doubler(), Total()
    assert asyncio.run(ask()) == [2, 4, 6]
    assert [len(run) for run in model.rows] == [1, 1, 1]
    model, reader = Doubler(), Summer()  # type: ignore[assignment]
    assert asyncio.run(ask()) == [-1, -2, -3]
    assert len(model.rows) < 3


def test_reading_counts_as_more_that_goes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of which much is read is long, and one of the same rows that is not read is still short."""
    sizes: list[int] = []

    async def ask() -> None:
        batcher = make_batcher(Doubler().run)
        monkeypatch.setattr(batcher._run_times, "observe", lambda size, requests, ns: sizes.append(size))
        await batcher.submit(rows(1), 1, ("double",))
        await batcher.submit(rows(1), 1, ("double",), reader=Summer())

    asyncio.run(ask())
    assert sizes == [2, 4]
