"""Deadlines, requests without rows, and errors for rows that the model cannot run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.support.fake_models import make_runner
from tests.support.fake_request import FakeRequest
from tests.support.infer_bodies import signature
from turnpike.service.api.endpoint import parse_timeout_ms
from turnpike.service.api.inference import InferenceCall, run_deadline
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import (
    InternalError,
    NotFiniteError,
    OverloadedError,
    RequestError,
    RunError,
    expect_finite,
)
from turnpike.service.inference_types import (
    FeedLayout,
    InferenceRequest,
    InferenceResult,
    RequestedOutput,
    RequestForm,
)
from turnpike.service.registry.model import Model

WORDS = signature(Tensor("ids", "int64", ("batch", "words")))


@dataclass
class Batcher:
    """Gives every request the same result, or raises the error."""

    error: Exception | None = None
    is_full: bool = False
    requests: list[Any] = field(default_factory=list)

    @property
    def runner(self) -> Any:
        return make_runner(None, inputs=("ids",), splittable=("logits",))

    def enqueue(self, *request: Any, **more: Any) -> Any:
        self.requests.append(request)
        waiter = request[-1]
        waiter.set_result(None)
        return SimpleNamespace(future=waiter, result=self.result, queued_ns=1)

    def result(self) -> InferenceResult:
        if self.error is not None:
            raise self.error
        return InferenceResult((np.zeros(1),))

    def overloaded_error(self) -> OverloadedError:
        return OverloadedError("queue: expected room", 3)


def model(**batcher: Any) -> Model:
    return cast("Model", SimpleNamespace(name="net", version=1, signature=WORDS, batcher=Batcher(**batcher)))


def words_request(rows: int, words: int = 5, **more: Any) -> InferenceRequest:
    feeds = {"ids": np.ones((rows, words), np.int64)}
    return InferenceRequest(
        RequestForm(rows, (RequestedOutput("logits"),), FeedLayout.of(feeds), **more), feeds
    )


def run(model: Model, inference: InferenceRequest) -> InferenceResult:
    """Run a request for its logits."""

    async def call() -> InferenceResult:
        inference_call = InferenceCall(model, inference, 0.0, FakeRequest("POST"))
        await inference_call.start(inference_call.plan(("logits",)))
        return inference_call.result()

    return asyncio.run(call())


def wait(timeout: int | None, client_timeout: float | None) -> float:
    """The seconds until the deadline."""

    async def measure() -> float:
        deadline = run_deadline(words_request(1, timeout_us=timeout).form, client_timeout, 2000)
        return deadline - asyncio.get_running_loop().time()

    return asyncio.run(measure())


@pytest.mark.parametrize(
    ("timeout", "client_timeout", "seconds"),
    [
        (None, None, 2.0),
        (500_000, None, 0.5),
        (9_000_000, None, 2.0),
        (None, 0.7, 0.7),
        (None, 7.0, 2.0),
        (500_000, 0.7, 0.5),
        (900_000, 0.7, 0.7),
    ],
)
def test_the_shortest_timeout_counts(
    timeout: int | None, client_timeout: float | None, seconds: float
) -> None:
    """A caller may shorten the usual time limit in two ways, and cannot extend it."""
    assert wait(timeout, client_timeout) == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize("header", [b"", b"0", b"-1", b"1.5", b"soon", b"9" * 11, b"\xb2"])
def test_an_invalid_timeout_is_refused(header: bytes) -> None:
    """The error names the header."""
    with pytest.raises(RequestError, match="X-Request-Timeout-Ms: expected whole milliseconds from 1, got '"):
        parse_timeout_ms(header)


def test_zero_rows_are_answered_without_a_run() -> None:
    """Shapes come from the request and the graph. A dimension that only a run can determine is 0."""
    served = model()
    result = run(served, words_request(0, words=4))
    dims = WORDS.outputs["logits"].dims
    assert result.arrays[0].shape == tuple(0 if dim == "batch" else dim for dim in dims)
    assert result.batch_rows == 0
    assert cast("Any", served.batcher).requests == []


def test_a_run_error_caused_by_the_input_gives_400() -> None:
    """The answer is 400 with a message of the service. The message of onnxruntime stays in the log."""
    error = RunError("onnxruntime: idx=9 must be within the inclusive range [-5,4]", caused_by_input=True)
    with pytest.raises(RequestError, match="cannot be run on these values") as raised:
        run(model(error=error), words_request(1))
    assert raised.value.status == 400
    assert "idx" not in str(raised.value)


def test_an_id_outside_of_a_table_is_named() -> None:
    """With the highest that there is."""
    error = RunError("onnxruntime: Gather", caused_by_input=True, id_and_range=(9, -5, 4))
    with pytest.raises(RequestError, match="a table of it has ids, or positions, up to 4, got 9"):
        run(model(error=error), words_request(1))


def test_any_other_run_error_gives_500(caplog: pytest.LogCaptureFixture) -> None:
    """The answer is 500, and only the log says what happened."""
    with pytest.raises(InternalError, match="model 'net' failed on these rows"):
        run(model(error=RunError("out of memory at 0x7f")), words_request(1))
    assert "out of memory at 0x7f" in caplog.text


def test_an_error_of_a_result_does_not_hold_the_request() -> None:
    """The result holds the error. If that held the frames of the request, both would stay in memory."""
    error = NotFiniteError("outputs: NaN")
    with pytest.raises(NotFiniteError, match="outputs: NaN"):
        expect_finite(error)
    assert error.__traceback__ is None
