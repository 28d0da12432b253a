"""Hooks around the runs of a model: what they get, what their errors do, and where they run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.support.fake_models import with_short_runs
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike import Hooks, RowsError, Tensor, open_model
from turnpike.service.errors import HookError, InternalError, OverloadedError
from turnpike.service.inference_types import Array, InferenceResult
from turnpike.service.registry.model import Model
from turnpike.service.repository.scan import ModelFile

IDS = (Tensor("id", "int64", ("batch",)),)
TOP = (Tensor("top", "int64", ("batch",)),)
# the features of each id
TABLE = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
# ids that the table has not, and one for which the look-up fails
UNKNOWN, BROKEN = 900, 901

Outcome = InferenceResult | BaseException


class LookUp:
    """A `before` that takes rows from a table, and an `after` that adds the best class; records its calls."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.outputs: list[list[str]] = []
        self.threads: set[int] = set()

    def before(self, rows: dict[str, Array]) -> dict[str, Array]:
        self.threads.add(threading.get_ident())
        ids = rows["id"]
        self.rows.append(ids.tolist())
        if UNKNOWN in ids:
            raise RowsError(f"id {UNKNOWN} is unknown")
        if BROKEN in ids:
            raise KeyError("secret")
        return {"x": TABLE[ids]}

    def after(self, rows: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
        assert list(rows) == ["id"]
        assert len(rows["id"]) == len(outputs["logits"])
        self.outputs.append(list(outputs))
        return {"logits": 2 * outputs["logits"], "top": outputs["logits"].argmax(1)}

    @property
    def hooks(self) -> Hooks:
        return Hooks(self.before, self.after, IDS, TOP)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return put_model(tmp_path_factory.mktemp("repository"), data=with_manifest(highway()))


@pytest.fixture
def look_up() -> LookUp:
    return LookUp()


@pytest.fixture
def model(file: ModelFile, look_up: LookUp) -> Model:
    return load_model(file, hooks=look_up.hooks)


def ids(*values: int) -> dict[str, Array]:
    return {"id": np.array(values, np.int64)}


def ask(
    model: Model, *requests: dict[str, Array], names: tuple[str, ...] = ("logits", "top")
) -> list[Outcome]:
    """The outcomes of requests that come together."""

    async def submit() -> list[Outcome]:
        submitted = (
            model.batcher.submit(feeds, len(next(iter(feeds.values()))), names) for feeds in requests
        )
        return await asyncio.gather(*submitted, return_exceptions=True)

    return asyncio.run(submit())


def arrays(outcome: Outcome) -> tuple[Array, ...]:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome.arrays


def expected(file: ModelFile, *values: int) -> Array:
    """The logits of the network."""
    return open_model(file.path).run({"x": TABLE[list(values)]})[0]


def test_loading_runs_no_hook(model: Model, look_up: LookUp) -> None:
    """The probe is of the network alone."""
    assert model.batcher.runner.batched
    assert look_up.rows == []


def test_requests_share_one_call_of_each_hook(file: ModelFile, model: Model, look_up: LookUp) -> None:
    """Each request gets its own rows, bit for bit as if it had run alone."""
    outcomes = ask(model, ids(3), ids(7, 5), ids(1))
    assert look_up.rows == [[3, 7, 5, 1]]
    assert look_up.outputs == [["logits"]]
    for outcome, values in zip(outcomes, [(3,), (7, 5), (1,)], strict=True):
        logits, top = arrays(outcome)
        np.testing.assert_array_equal(logits, 2 * expected(file, *values, 0)[:-1])
        np.testing.assert_array_equal(top, logits.argmax(1))


def test_a_single_row_reaches_hooks_without_padding(file: ModelFile, look_up: LookUp) -> None:
    """The network alone runs next to a copy."""
    model = load_model(file, hooks=look_up.hooks)
    network: Any = model.batcher.runner
    network._network._pad_single_rows = True
    runs = []
    run = network._run
    network._run = lambda feeds, names: runs.append(len(feeds["x"])) or run(feeds, names)
    (outcome,) = ask(model, ids(3))
    assert arrays(outcome)[0].shape == (1, 3)
    assert (look_up.rows, runs) == ([[3]], [2])


def test_a_large_request_is_cut_before_the_hooks(file: ModelFile, look_up: LookUp) -> None:
    model = load_model(file, hooks=look_up.hooks, max_batch=2)
    (outcome,) = ask(model, ids(1, 2, 3, 4, 5))
    assert look_up.rows == [[1, 2], [3, 4], [5]]
    np.testing.assert_array_equal(arrays(outcome)[1], expected(file, 1, 2, 3, 4, 5).argmax(1))


def test_gates_alone_do_not_run_after(model: Model, look_up: LookUp) -> None:
    gate = model.gates[0].name
    (outcome,) = ask(model, ids(3, 4), names=(gate,))
    assert arrays(outcome)[0].shape == (2, 6)
    assert (look_up.rows, look_up.outputs) == ([[3, 4]], [])
    (outcome,) = ask(model, ids(3, 4), names=(gate, "top"))
    assert [array.shape for array in arrays(outcome)] == [(2, 6), (2,)]
    assert look_up.outputs == [["logits"]]


def test_levers_reach_the_network(file: ModelFile, model: Model, look_up: LookUp) -> None:
    """Beside the rows, which go through `before`."""
    moved = {name: bias - 50 for name, bias in model.biases.items()}
    (outcome,) = ask(model, ids(3, 4) | moved, names=("logits",))
    logits = open_model(file.path).run({"x": TABLE[[3, 4]], **moved})[0]
    np.testing.assert_array_equal(arrays(outcome)[0], 2 * logits)
    assert look_up.rows == [[3, 4]]


def test_hooks_never_run_in_the_event_loop(model: Model, look_up: LookUp) -> None:
    """However short their runs are."""
    with_short_runs(model.batcher)
    for n in range(5):
        ask(model, ids(n))
    assert threading.get_ident() not in look_up.threads


def test_without_a_thread_a_run_with_hooks_is_refused(model: Model, look_up: LookUp) -> None:
    with patch.object(ThreadPoolExecutor, "submit", side_effect=RuntimeError("can't start new thread")):
        outcomes = ask(model, ids(1), ids(2))
    assert [type(outcome) for outcome in outcomes] == [OverloadedError] * 2
    assert look_up.rows == []
    arrays(ask(model, ids(1))[0])


def test_only_the_faulty_requests_fail(file: ModelFile, model: Model, look_up: LookUp) -> None:
    """Each is run again by itself."""
    outcomes = ask(model, ids(1), ids(UNKNOWN), ids(2), ids(BROKEN), ids(3))
    assert look_up.rows == [[1, UNKNOWN, 2, BROKEN, 3], [1], [UNKNOWN], [2], [BROKEN], [3]]
    for index, value in ((0, 1), (2, 2), (4, 3)):
        np.testing.assert_array_equal(arrays(outcomes[index])[0], 2 * expected(file, value, 0)[:1])
    assert isinstance(outcomes[1], RowsError)
    assert str(outcomes[1]) == f"id {UNKNOWN} is unknown"
    assert isinstance(outcomes[3], HookError)
    assert isinstance(outcomes[3].__cause__, KeyError)


def test_an_error_of_the_service_in_a_hook_has_no_meaning(file: ModelFile) -> None:
    """A hook may call the service's own functions, whose errors are not about the request."""

    def before(rows: dict[str, Array]) -> dict[str, Array]:
        raise OverloadedError("another service")

    outcomes = ask(load_model(file, hooks=Hooks(before)), {"x": TABLE[:1]})
    assert [type(outcome) for outcome in outcomes] == [HookError]


def test_rows_are_read_only(file: ModelFile) -> None:
    """A lesion runs them twice."""

    def before(rows: dict[str, Array]) -> dict[str, Array]:
        rows["x"] *= 2
        return rows

    x = TABLE[:2].copy()
    (outcome,) = ask(load_model(file, hooks=Hooks(before)), {"x": x}, names=("logits",))
    assert isinstance(outcome, HookError)
    np.testing.assert_array_equal(x, TABLE[:2])
    x *= 2


def test_after_gets_the_rows_that_before_got(file: ModelFile) -> None:
    """Also if `before` removes some from its dict."""
    seen: list[Array] = []

    def before(rows: dict[str, Array]) -> dict[str, Array]:
        return {"x": rows.pop("x") + 1}

    def after(rows: dict[str, Array], outputs: dict[str, Array]) -> dict[str, Array]:
        seen.append(rows["x"])
        return outputs

    (outcome,) = ask(load_model(file, hooks=Hooks(before, after)), {"x": TABLE[:2]}, names=("logits",))
    np.testing.assert_array_equal(arrays(outcome)[0], open_model(file.path).run({"x": TABLE[:2] + 1})[0])
    np.testing.assert_array_equal(seen[0], TABLE[:2])


def test_arrays_in_any_order_of_memory_are_accepted(file: ModelFile) -> None:
    hooks = Hooks(lambda rows: {"x": np.asfortranarray(rows["x"])}, lambda _, outputs: {
        "logits": np.asfortranarray(outputs["logits"])
    })  # fmt: skip
    (outcome,) = ask(load_model(file, hooks=hooks), {"x": TABLE[:5]}, names=("logits",))
    np.testing.assert_array_equal(arrays(outcome)[0], open_model(file.path).run({"x": TABLE[:5]})[0])
    assert arrays(outcome)[0].flags.c_contiguous


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "expected a dict, got NoneType"),
        ({}, "expected the tensors x, got no tensors"),
        ({"x": TABLE[:3], "y": TABLE[:3]}, "expected the tensors x, got the tensors x, y"),
        ({"x": [[0.0] * 4] * 3}, "expected x:float32[3,4], got list"),
        ({"x": TABLE[:3].astype(np.float64)}, "expected x:float32[3,4], got x:float64[3,4]"),
        ({"x": TABLE[:3, :2]}, "expected x:float32[3,4], got x:float32[3,2]"),
        ({"x": TABLE[0]}, "expected x:float32[3,4], got x:float32[4]"),
        ({"x": TABLE[:2]}, "expected x:float32[3,4], got x:float32[2,4]"),
    ],
)
def test_a_wrong_return_of_before_fails_the_run(
    file: ModelFile, returned: Any, problem: str, errors: Callable[[], list[str]]
) -> None:
    """It is logged once, and no hook runs again."""
    calls = []

    def before(rows: dict[str, Array]) -> Any:
        calls.append(1)
        return returned

    outcomes = ask(
        load_model(file, hooks=Hooks(before)), {"x": TABLE[:1]}, {"x": TABLE[:2]}, names=("logits",)
    )
    assert [type(outcome) for outcome in outcomes] == [InternalError] * 2
    assert str(outcomes[0]) == "model 'net' failed on these rows"
    assert errors() == [f"net/1: the hook before returned something wrong: {problem}"]
    assert calls == [1]


LOGITS, BEST = np.zeros((3, 3), np.float32), np.zeros(3, np.int64)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ([], "expected a dict, got list"),
        ({"logits": LOGITS}, "expected the tensors logits, top, got the tensors logits"),
        ({"top": BEST}, "expected the tensors logits, top, got the tensors top"),
        ({"logits": LOGITS[:2], "top": BEST}, "expected logits:float32[3,3], got logits:float32[2,3]"),
        ({"logits": LOGITS, "top": BEST[:2]}, "expected top:int64[3], got top:int64[2]"),
        ({"logits": LOGITS, "top": BEST.astype(np.int32)}, "expected top:int64[3], got top:int32[3]"),
    ],
)
def test_a_wrong_return_of_after_fails_the_run(
    file: ModelFile, returned: Any, problem: str, errors: Callable[[], list[str]]
) -> None:
    hooks = Hooks(after=lambda rows, outputs: returned, outputs=TOP)
    outcomes = ask(load_model(file, hooks=hooks), {"x": TABLE[:1]}, {"x": TABLE[:2]}, names=("top",))
    assert [type(outcome) for outcome in outcomes] == [InternalError] * 2
    assert errors() == [f"net/1: the hook after returned something wrong: {problem}"]


def test_a_model_without_a_batch_axis_can_have_hooks(tmp_path: Path) -> None:
    """Each request runs by itself."""
    gated = highway(batch=1)
    file = put_model(tmp_path, data=with_manifest(gated))
    hooks = Hooks(
        lambda rows: {"x": TABLE[rows["id"]][None]},
        lambda _, outputs: {**outputs, "top": outputs["logits"].argmax(1)[0]},
        (Tensor("id", "int64", ()),),
        (Tensor("top", "int64", ()),),
    )
    model = load_model(file, hooks=hooks)

    async def submit() -> InferenceResult:
        return await model.batcher.submit({"id": np.array(3)}, 1, ("top",))

    (top,) = asyncio.run(submit()).arrays
    assert top == open_model(file.path).run({"x": TABLE[3:4]})[0].argmax()
