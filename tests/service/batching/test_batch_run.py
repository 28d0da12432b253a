"""Tests of BatchRunner: rows are stacked, run and checked, and each request gets its own outputs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.fake_models import Doubler, make_runner, rows
from turnpike.service.batching.queue import QueuedRequest
from turnpike.service.errors import InternalError
from turnpike.service.inference_types import Array, FeedLayout, InferenceResult, RunPlan

MakeRequest = Callable[..., QueuedRequest]


@pytest.fixture
def make_request() -> Iterator[MakeRequest]:
    loop = asyncio.new_event_loop()

    def build(
        feeds: Mapping[str, Array], names: tuple[str, ...] = ("double",), *, unobserved: bool = False
    ) -> QueuedRequest:
        plan = RunPlan(len(feeds["x"]), 1, (), names, names)
        return QueuedRequest(feeds, plan, math.inf, 0, loop.create_future(), unobserved)

    yield build
    loop.close()


def arrays(request: QueuedRequest) -> list[list[Any]]:
    return [array.tolist() for array in request.result().arrays]


def test_each_request_gets_its_own_rows(make_request: MakeRequest) -> None:
    """Requests of one row and of several rows share a run."""
    model = Doubler()
    requests = [make_request(rows(1)), make_request(rows(2, 3)), make_request(rows(4))]
    (batch,) = make_runner(model.run).run(requests)
    assert model.rows == [[1, 2, 3, 4]]
    assert [arrays(request) for request in requests] == [[[[2, 2]]], [[[4, 4], [6, 6]]], [[[8, 8]]]]
    assert batch.rows == 4


@pytest.mark.parametrize(
    ("marks", "size"),
    [([False], 1), ([True], 1), ([False, False], 1), ([False, True], 1), ([False], 20), ([True], 20)],
)
def test_runs_with_an_unobserved_request_are_not_observed(
    make_request: MakeRequest, marks: list[bool], size: int
) -> None:
    """A run for one request, for several, and each of the runs for a large one."""
    plain, watched = Doubler(), Doubler()
    requests = [make_request(rows(*range(size)), unobserved=unobserved) for unobserved in marks]
    make_runner(watched.run, unobserved_run=plain.run).run(requests)
    assert (bool(watched.feeds), bool(plain.feeds)) == (not any(marks), any(marks))
    assert all(len(arrays(request)[0]) == size for request in requests)


def test_each_request_gets_its_outputs_in_its_order(make_request: MakeRequest) -> None:
    """The run computes every requested output once."""
    model = Doubler()
    requests = [
        make_request(rows(1), ("negative",)),
        make_request(rows(2), ("double", "negative")),
        make_request(rows(3), ("negative", "double")),
    ]
    make_runner(model.run).run(requests)
    assert model.requested == [("negative", "double")]
    assert [arrays(request) for request in requests] == [
        [[[-1, -1]]],
        [[[4, 4]], [[-2, -2]]],
        [[[-3, -3]], [[6, 6]]],
    ]


def test_inputs_are_stacked_by_name(make_request: MakeRequest) -> None:
    """The order of the inputs in a request does not matter."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [feeds["x"] - feeds["y"]]

    first_value = {"x": np.array([[5.0]]), "y": np.array([[1.0]])}
    second = {"y": np.array([[2.0]]), "x": np.array([[9.0]])}
    requests = [make_request(first_value), make_request(second)]
    make_runner(run, inputs=("x", "y")).run(requests)
    assert [arrays(request) for request in requests] == [[[[4]]], [[[7]]]]


def test_queue_time_and_run_time_are_measured(make_request: MakeRequest) -> None:
    """Queue time counts from the request's arrival."""
    requests = [make_request(rows(1)), make_request(rows(2))]
    requests[0].queued_ns, requests[1].queued_ns = -1_000, -3_000
    (batch,) = make_runner(Doubler().run).run(requests)
    results = [request.result() for request in requests]
    assert results[1].queue_ns - results[0].queue_ns == 2_000
    assert results[0].run_ns == results[1].run_ns == batch.run_ns > 0
    assert [result.batch_rows for result in results] == [2, 2]


def test_a_large_request_is_split_over_several_runs(make_request: MakeRequest) -> None:
    """Nineteen rows take runs of eight, eight and three rows."""
    model = Doubler()
    request = make_request(rows(*range(19)), ("double", "negative"))
    batches = make_runner(model.run).run([request])
    result = request.result()
    assert [len(run) for run in model.rows] == [8, 8, 3]
    np.testing.assert_array_equal(result.arrays[0][:, 0], 2 * np.arange(19))
    np.testing.assert_array_equal(result.arrays[1][:, 1], -np.arange(19))
    assert result.batch_rows == 8
    assert [batch.rows for batch in batches] == [8, 8, 3]


def test_levers_are_not_split(make_request: MakeRequest) -> None:
    """Levers are fed whole to each run, whatever their length."""
    model = Doubler()
    request = make_request(rows(*range(9)) | {"bias": np.arange(9)})
    make_runner(model.run).run([request])
    assert [feeds["bias"].tolist() for feeds in model.feeds] == [list(range(9))] * 2


@pytest.mark.parametrize(("names", "batched"), [(("total",), True), (("double",), False)])
def test_a_request_with_an_unsplittable_output_is_not_split(
    make_request: MakeRequest, names: tuple[str, ...], batched: bool
) -> None:
    """If the model couples rows, all of them must be in one run too."""
    model = Doubler()
    request = make_request(rows(*range(9)), names)
    make_runner(model.run, batched=batched).run([request])
    assert [len(run) for run in model.rows] == [9]
    assert isinstance(request.outcome, InferenceResult)


def test_a_cancelled_request_gets_no_further_runs(make_request: MakeRequest) -> None:
    """The remaining runs of a cancelled request do not take place."""
    request = make_request(rows(*range(30)))

    def rule(feeds: Mapping[str, Array]) -> None:
        request.future.cancel()

    model = Doubler(rule)
    batches = make_runner(model.run).run([request])
    assert [len(run) for run in model.rows] == [8]
    assert [batch.rows for batch in batches] == [8]
    assert request.outcome is None


def test_a_single_row_is_padded_with_a_copy(make_request: MakeRequest) -> None:
    """If single rows get other last bits, a row runs next to a copy of itself."""
    model = Doubler()
    request = make_request(rows(7) | {"bias": np.ones(1)})
    (batch,) = make_runner(model.run, pad_single_rows=True).run([request])
    assert model.rows == [[7, 7]]
    assert model.feeds[0]["bias"].shape == (1,)
    assert arrays(request) == [[[14, 14]]]
    assert batch.rows == 1


def test_the_last_row_of_a_split_request_is_padded(make_request: MakeRequest) -> None:
    """Nine rows are split into eight and one."""
    model = Doubler()
    request = make_request(rows(*range(9)))
    make_runner(model.run, pad_single_rows=True).run([request])
    assert [len(run) for run in model.rows] == [8, 2]
    assert len(request.result().arrays[0]) == 9


@pytest.mark.parametrize(("names", "batched"), [(("double", "total"), True), (("double",), False)])
def test_a_row_with_an_unsplittable_output_is_not_padded(
    make_request: MakeRequest, names: tuple[str, ...], batched: bool
) -> None:
    """An output that cannot be split would change with a second row."""
    model = Doubler()
    request = make_request(rows(7), names)
    make_runner(model.run, pad_single_rows=True, batched=batched).run([request])
    assert model.rows == [[7]]


def no_sevens(feeds: Mapping[str, Array]) -> None:
    if (feeds["x"] == 7).any():
        raise ArithmeticError("a seven")


@pytest.mark.parametrize("bad", [{0}, {3}, {7}, {0, 1}, {2, 6}, set(range(8))])
def test_only_the_faulty_request_fails(make_request: MakeRequest, bad: set[int]) -> None:
    """A failed run is halved until the faulty requests are on their own; each gets its own error."""
    requests = [make_request(rows(7 if n in bad else 10 + n)) for n in range(8)]
    batches = make_runner(Doubler(no_sevens).run).run(requests)
    errors = {
        n: request.outcome
        for n, request in enumerate(requests)
        if isinstance(request.outcome, ArithmeticError)
    }
    assert set(errors) == bad
    assert len({id(error) for error in errors.values()}) == len(bad)
    for n in set(range(8)) - bad:
        assert arrays(requests[n]) == [[[20 + 2 * n] * 2]]
    assert sum(batch.rows for batch in batches) == 8 - len(bad)


def test_finding_a_faulty_request_takes_few_runs(make_request: MakeRequest) -> None:
    """One faulty request among 64 takes 13 runs, not 65."""
    model = Doubler(no_sevens)
    make_runner(model.run, max_rows=64).run([make_request(rows(7 if n == 20 else 1)) for n in range(64)])
    assert len(model.feeds) == 13


def test_a_wrong_number_of_outputs_is_an_error(make_request: MakeRequest) -> None:
    for given in (0, 1, 3):
        request = make_request(rows(1), ("double", "negative"))
        make_runner(lambda feeds, names, given=given: [feeds["x"]] * given).run([request])
        with pytest.raises(InternalError, match=f"outputs: expected 2 of the model, got {given}"):
            request.result()


@pytest.mark.parametrize("wrong", [0, 1, 3, 5])
def test_a_wrong_number_of_rows_is_an_error_for_all_requests(make_request: MakeRequest, wrong: int) -> None:
    """Otherwise a request could get the rows of another request."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [np.zeros((wrong if len(feeds["x"]) == 2 else 9, 1))]

    requests = [make_request(rows(1, 2)), make_request(rows(3, 4))]
    make_runner(run).run(requests)
    for request in requests:
        with pytest.raises(
            InternalError, match=f"outputs: expected 2 rows of 'double', got shape \\[{wrong}, 1\\]"
        ):
            request.result()


def test_a_scalar_output_is_an_error(make_request: MakeRequest) -> None:
    request = make_request(rows(1))
    make_runner(lambda feeds, names: [np.array(1.0)]).run([request])
    with pytest.raises(InternalError, match=r"expected 1 rows of 'double', got shape \[\]"):
        request.result()


def test_requests_with_different_row_shapes_have_different_keys() -> None:
    """The order of the inputs does not matter; shape and dtype of each do."""
    runner = make_runner(Doubler().run, inputs=("x", "y"))
    x, y = np.zeros((2, 3), np.float32), np.zeros((2,), np.int64)
    own = runner.plan(FeedLayout.of({"x": x, "y": y}), 2, ("double",)).row_shapes
    assert (
        own == runner.plan(FeedLayout.of({"y": y[:1], "x": x[:1]}), 1, ("negative",)).row_shapes is not None
    )
    for other in (
        {"x": np.zeros((2, 4), np.float32), "y": y},
        {"x": x.astype(np.float64), "y": y},
        {"x": x, "y": y[:, None]},
    ):
        assert runner.plan(FeedLayout.of(other), 2, ("double",)).row_shapes not in (None, own)


def test_requests_that_cannot_share_a_run_have_no_key() -> None:
    """They request unsplittable outputs, feed levers, or run a model that couples rows."""
    fed = rows(1)
    layout, with_lever = FeedLayout.of(fed), FeedLayout.of(fed | {"bias": np.ones(1)})
    assert make_runner(Doubler().run).plan(layout, 1, ("double",)).row_shapes is not None
    assert make_runner(Doubler().run).plan(layout, 1, ("double", "total")).row_shapes is None
    assert make_runner(Doubler().run).plan(with_lever, 1, ("double",)).row_shapes is None
    assert make_runner(Doubler().run, batched=False).plan(layout, 1, ("double",)).row_shapes is None


def test_missing_rows_of_an_input_are_refused() -> None:
    """A wrong number of rows would shift the rows of all requests behind it."""
    with pytest.raises(InternalError, match="inputs: expected 2 rows of each, got 1"):
        make_runner(Doubler().run).plan(FeedLayout.of(rows(1)), 2, ("double",))


def test_outputs_with_several_values_per_row_are_split_by_row(make_request: MakeRequest) -> None:
    """A gate may have a value for each word of a row; each request gets the values of its own words."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [np.repeat(feeds["x"] * 2, 3, axis=0)]

    requests = [make_request(rows(1, 2)), make_request(rows(3))]
    make_runner(run).run(requests)
    assert arrays(requests[0]) == [[[2, 2]] * 3 + [[4, 4]] * 3]
    assert arrays(requests[1]) == [[[6, 6]] * 3]


def test_an_output_may_be_empty_if_one_of_the_inputs_is(make_request: MakeRequest) -> None:
    """A row of no words has no gates of words, whatever its other inputs. Without that, rows are missing."""

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        return [np.zeros((feeds["words"].size, 4))]

    runner = make_runner(run, inputs=("x", "words"))
    request = make_request(rows(1, 2) | {"words": np.zeros((2, 0))})
    runner.run([request])
    assert arrays(request) == [[]]
    request = make_request(rows(1, 2) | {"words": np.zeros((2, 1))})
    make_runner(lambda feeds, names: [np.zeros((0, 4))], inputs=("x", "words")).run([request])
    with pytest.raises(InternalError, match=r"expected 2 rows of 'double', got shape \[0, 4\]"):
        request.result()
