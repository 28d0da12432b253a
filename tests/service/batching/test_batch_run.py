"""Runs of several requests: stacked, checked, and dealt out to those they belong to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from service.batching.queue import QueuedRequest
from service.errors import InternalError
from service.inference_types import Array, InferenceResult
from tests.support.fake_models import Doubler, make_runner, rows

MakeJob = Callable[..., QueuedRequest]


@pytest.fixture
def job() -> Iterator[MakeJob]:
    loop = asyncio.new_event_loop()

    def make(feeds: Mapping[str, Array], names: tuple[str, ...] = ("double",)) -> QueuedRequest:
        return QueuedRequest(feeds, len(feeds["x"]), names, (), math.inf, 0, loop.create_future(), 1)

    yield make
    loop.close()


def arrays(job: QueuedRequest) -> list[list[Any]]:
    return [array.tolist() for array in job.result().arrays]


def test_each_gets_its_own_rows(job: MakeJob) -> None:
    """Requests of one and of several rows share one run, and each gets the part that it brought."""
    model = Doubler()
    jobs = [job(rows(1)), job(rows(2, 3)), job(rows(4))]
    (batch,) = make_runner(model.run).run(jobs, inline=True)
    assert model.rows == [[1, 2, 3, 4]]
    assert [arrays(one) for one in jobs] == [[[[2, 2]]], [[[4, 4], [6, 6]]], [[[8, 8]]]]
    assert (batch.rows, batch.requests, batch.inline) == (4, 3, True)


def test_each_gets_the_outputs_it_named_in_its_order(job: MakeJob) -> None:
    """The run makes every output that anybody asked for, once."""
    model = Doubler()
    jobs = [
        job(rows(1), ("negative",)),
        job(rows(2), ("double", "negative")),
        job(rows(3), ("negative", "double")),
    ]
    make_runner(model.run).run(jobs, inline=True)
    assert model.asked == [("negative", "double")]
    assert [arrays(one) for one in jobs] == [[[[-1, -1]]], [[[4, 4]], [[-2, -2]]], [[[-3, -3]], [[6, 6]]]]


def test_inputs_are_stacked_by_name(job: MakeJob) -> None:
    """Two inputs in any order stay with their requests."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [feeds["x"] - feeds["y"]]

    one = {"x": np.array([[5.0]]), "y": np.array([[1.0]])}
    two = {"y": np.array([[2.0]]), "x": np.array([[9.0]])}
    jobs = [job(one), job(two)]
    make_runner(run, inputs=("x", "y")).run(jobs, inline=True)
    assert [arrays(each) for each in jobs] == [[[[4]]], [[[7]]]]


def test_an_answer_tells_what_it_took(job: MakeJob) -> None:
    """Time in the queue counts from the request's arrival, and the batch observed has the sum of all."""
    jobs = [job(rows(1)), job(rows(2))]
    jobs[0].queued_ns, jobs[1].queued_ns = -1_000, -3_000
    (batch,) = make_runner(Doubler().run).run(jobs, inline=False)
    answers = [each.result() for each in jobs]
    assert answers[1].queue_ns - answers[0].queue_ns == 2_000
    assert batch.queue_ns == answers[0].queue_ns + answers[1].queue_ns
    assert answers[0].run_ns == answers[1].run_ns == batch.run_ns > 0
    assert [answer.batch_rows for answer in answers] == [2, 2]
    assert not batch.inline


def test_too_many_rows_are_cut_and_put_together_again(job: MakeJob) -> None:
    """Nineteen rows go in runs of eight, eight and three, and come back as one answer."""
    model = Doubler()
    one = job(rows(*range(19)), ("double", "negative"))
    batches = make_runner(model.run).run([one], inline=True)
    answer = one.result()
    assert [len(each) for each in model.rows] == [8, 8, 3]
    np.testing.assert_array_equal(answer.arrays[0][:, 0], 2 * np.arange(19))
    np.testing.assert_array_equal(answer.arrays[1][:, 1], -np.arange(19))
    assert answer.batch_rows == 8
    assert [(batch.rows, batch.requests) for batch in batches] == [(8, 0), (8, 0), (3, 1)]
    assert [batch.queue_ns for batch in batches] == [0, 0, answer.queue_ns]


def test_what_is_more_than_the_inputs_is_not_cut(job: MakeJob) -> None:
    """Tensors that override the file's own go whole into each run, whatever their length."""
    model = Doubler()
    one = job(rows(*range(9)) | {"bias": np.arange(9)})
    make_runner(model.run).run([one], inline=True)
    assert [fed["bias"].tolist() for fed in model.fed] == [list(range(9))] * 2


@pytest.mark.parametrize(("names", "batched"), [(("total",), True), (("double",), False)])
def test_what_cannot_be_put_together_is_not_cut(job: MakeJob, names: tuple[str, ...], batched: bool) -> None:
    """An output that does not split by rows, and a model that couples them, need all rows in one run."""
    model = Doubler()
    one = job(rows(*range(9)), names)
    make_runner(model.run, batched=batched).run([one], inline=True)
    assert [len(each) for each in model.rows] == [9]
    assert isinstance(one.outcome, InferenceResult)


def test_nothing_more_is_run_for_a_caller_who_has_gone(job: MakeJob) -> None:
    """Of a request of many runs, those that have not begun are left out."""
    one = job(rows(*range(30)))

    def rule(feeds: Mapping[str, Array]) -> None:
        one.future.cancel()

    model = Doubler(rule)
    batches = make_runner(model.run).run([one], inline=True)
    assert [len(each) for each in model.rows] == [8]
    assert [(batch.rows, batch.requests) for batch in batches] == [(8, 0)]
    assert one.outcome is None


def test_a_row_by_itself_is_given_company(job: MakeJob) -> None:
    """Where rows alone come out with other last bits, one row runs beside its copy and comes back alone."""
    model = Doubler()
    one = job(rows(7) | {"bias": np.ones(1)})
    (batch,) = make_runner(model.run, pad_single_rows=True).run([one], inline=True)
    assert model.rows == [[7, 7]]
    assert model.fed[0]["bias"].shape == (1,)
    assert arrays(one) == [[[14, 14]]]
    assert batch.rows == 1


def test_the_last_row_of_a_cut_request_is_given_company(job: MakeJob) -> None:
    """Nine rows are eight and one."""
    model = Doubler()
    one = job(rows(*range(9)))
    make_runner(model.run, pad_single_rows=True).run([one], inline=True)
    assert [len(each) for each in model.rows] == [8, 2]
    assert len(one.result().arrays[0]) == 9


@pytest.mark.parametrize(("names", "batched"), [(("double", "total"), True), (("double",), False)])
def test_company_is_not_given_where_it_could_not_be_taken_away(
    job: MakeJob, names: tuple[str, ...], batched: bool
) -> None:
    """An output that does not split by rows would be another with a second row."""
    model = Doubler()
    one = job(rows(7), names)
    make_runner(model.run, pad_single_rows=True, batched=batched).run([one], inline=True)
    assert model.rows == [[7]]


def no_sevens(feeds: Mapping[str, Array]) -> None:
    if (feeds["x"] == 7).any():
        raise ArithmeticError("a seven")


@pytest.mark.parametrize("bad", [{0}, {3}, {7}, {0, 1}, {2, 6}, set(range(8))])
def test_only_the_bad_request_fails(job: MakeJob, bad: set[int]) -> None:
    """A run that fails is parted until the requests at fault are by themselves; each has its own error."""
    jobs = [job(rows(7 if n in bad else 10 + n)) for n in range(8)]
    batches = make_runner(Doubler(no_sevens).run).run(jobs, inline=True)
    errors = {n: each.outcome for n, each in enumerate(jobs) if isinstance(each.outcome, ArithmeticError)}
    assert set(errors) == bad
    assert len({id(error) for error in errors.values()}) == len(bad)
    for n in set(range(8)) - bad:
        assert arrays(jobs[n]) == [[[20 + 2 * n] * 2]]
    assert sum(batch.requests for batch in batches) == 8 - len(bad)


def test_a_bad_request_costs_few_runs(job: MakeJob) -> None:
    """One of 64 is found in 13 runs, not in 65."""
    model = Doubler(no_sevens)
    make_runner(model.run, max_rows=64).run([job(rows(7 if n == 20 else 1)) for n in range(64)], inline=True)
    assert len(model.fed) == 13


def test_a_missing_output_is_nobodys_answer(job: MakeJob) -> None:
    """A model that gives fewer or more outputs than were asked for is broken."""
    for given in (0, 1, 3):
        one = job(rows(1), ("double", "negative"))
        make_runner(lambda feeds, names, given=given: [feeds["x"]] * given).run([one], inline=True)
        with pytest.raises(InternalError, match=f"outputs: expected 2 of the model, got {given}"):
            one.result()


@pytest.mark.parametrize("wrong", [0, 1, 3, 5])
def test_a_wrong_number_of_rows_is_nobodys_answer(job: MakeJob, wrong: int) -> None:
    """A model that gives fewer or more rows than it was given would hand out another's."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [np.zeros((wrong if len(feeds["x"]) == 2 else 9, 1))]

    jobs = [job(rows(1, 2)), job(rows(3, 4))]
    make_runner(run).run(jobs, inline=True)
    for each in jobs:
        with pytest.raises(
            InternalError, match=f"outputs: expected 2 rows of 'double', got shape \\[{wrong}, 1\\]"
        ):
            each.result()


def test_a_number_in_place_of_rows_is_nobodys_answer(job: MakeJob) -> None:
    """An output without a first axis has no rows at all."""
    one = job(rows(1))
    make_runner(lambda feeds, names: [np.array(1.0)]).run([one], inline=True)
    with pytest.raises(InternalError, match=r"expected 1 rows of 'double', got shape \[\]"):
        one.result()


def test_requests_are_told_apart_by_their_rows() -> None:
    """Shape and dtype of a row, for every input, in one order however the request names them."""
    runner = make_runner(Doubler().run, inputs=("x", "y"))
    x, y = np.zeros((2, 3), np.float32), np.zeros((2,), np.int64)
    own = runner.row_shapes({"x": x, "y": y}, 2, ("double",))
    assert own == runner.row_shapes({"y": y[:1], "x": x[:1]}, 1, ("negative",)) is not None
    for other in (
        {"x": np.zeros((2, 4), np.float32), "y": y},
        {"x": x.astype(np.float64), "y": y},
        {"x": x, "y": y[:, None]},
    ):
        assert runner.row_shapes(other, 2, ("double",)) not in (None, own)


def test_requests_that_run_by_themselves() -> None:
    """Those of an output that does not split, those that bring more than inputs, and all of some models."""
    fed = rows(1)
    assert make_runner(Doubler().run).row_shapes(fed, 1, ("double",)) is not None
    assert make_runner(Doubler().run).row_shapes(fed, 1, ("double", "total")) is None
    assert make_runner(Doubler().run).row_shapes(fed | {"bias": np.ones(1)}, 1, ("double",)) is None
    assert make_runner(Doubler().run, batched=False).row_shapes(fed, 1, ("double",)) is None


def test_rows_that_are_not_there_are_refused() -> None:
    """A request that says more or fewer rows than it brings would shift everybody's behind it."""
    with pytest.raises(InternalError, match="inputs: expected 2 rows of 'x', got 1"):
        make_runner(Doubler().run).row_shapes(rows(1), 2, ("double",))


def test_rows_of_several_places_are_dealt_out_whole(job: MakeJob) -> None:
    """A gate may have a value for each word of a row; each row gets those of its own words."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [np.repeat(feeds["x"] * 2, 3, axis=0)]

    jobs = [job(rows(1, 2)), job(rows(3))]
    make_runner(run).run(jobs, inline=True)
    assert arrays(jobs[0]) == [[[2, 2]] * 3 + [[4, 4]] * 3]
    assert arrays(jobs[1]) == [[[6, 6]] * 3]
