"""Deadlines, requests of no rows, and what becomes of rows that the model cannot take."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from service.api.inference import InferenceCall, merge_json, run_deadline, wrap_json
from service.artifact.runtime import Tensor
from service.errors import InternalError, OverloadedError, RequestError, RunError
from service.http.response import ResponseBody
from service.inference_types import InferenceRequest, InferenceResult, RequestedOutput
from service.registry.model import Model
from tests.support.fake_request import FakeRequest
from tests.support.infer_bodies import signature

WORDS = signature(Tensor("ids", "int64", ("batch", "words")))


@dataclass
class Batcher:
    """Gives one answer, or raises."""

    error: Exception | None = None
    is_full: bool = False
    asked: list[Any] = field(default_factory=list)

    def enqueue(self, *asked: Any, **more: Any) -> Any:
        self.asked.append(asked)
        more["future"].set_result(None)
        return SimpleNamespace(future=more["future"], result=self.result)

    def result(self) -> InferenceResult:
        if self.error is not None:
            raise self.error
        return InferenceResult((np.zeros(1),))

    def overloaded_error(self) -> OverloadedError:
        return OverloadedError("queue: expected room", 3)


def model(**of: Any) -> Model:
    return cast("Model", SimpleNamespace(name="net", version=1, signature=WORDS, batcher=Batcher(**of)))


def of_words(rows: int, words: int = 5, **more: Any) -> InferenceRequest:
    return InferenceRequest(
        {"ids": np.ones((rows, words), np.int64)}, rows, (RequestedOutput("logits"),), **more
    )


def run(of: Model, inference: InferenceRequest) -> InferenceResult:
    """One run of a request, for its logits."""

    async def call() -> InferenceResult:
        return await InferenceCall(of, inference, 0.0, FakeRequest("POST")).run(("logits",))

    return asyncio.run(call())


def wait(timeout: int | None, header: bytes | None) -> float:
    """How many seconds there are until the deadline."""

    async def measure() -> float:
        until = run_deadline(of_words(1, timeout_us=timeout), header, 2000)
        return until - asyncio.get_running_loop().time()

    return asyncio.run(measure())


@pytest.mark.parametrize(
    ("timeout", "header", "seconds"),
    [
        (None, None, 2.0),
        (500_000, None, 0.5),
        (9_000_000, None, 2.0),
        (None, b"700", 0.7),
        (None, b"7000", 2.0),
        (500_000, b"700", 0.5),
        (900_000, b"700", 0.7),
    ],
)
def test_the_shortest_wait_counts(timeout: int | None, header: bytes | None, seconds: float) -> None:
    """A caller may shorten the usual wait in two ways, and lengthen it in none."""
    assert wait(timeout, header) == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize("header", [b"", b"0", b"-1", b"1.5", b"soon", b"9" * 11, b"\xb2"])
def test_a_wait_that_makes_no_sense_is_refused(header: bytes) -> None:
    """The header's name is said."""
    with pytest.raises(RequestError, match="X-Request-Timeout-Ms: expected whole milliseconds from 1, got '"):
        wait(None, header)


def test_no_rows_are_answered_without_a_run() -> None:
    """In the shape that the request and the graph tell, and 0 where only a run could tell."""
    of = model()
    given = run(of, of_words(0, words=4))
    named = WORDS.outputs["logits"].dims
    assert given.arrays[0].shape == tuple(0 if dim == "batch" else dim for dim in named)
    assert given.batch_rows == 0
    assert cast("Any", of.batcher).asked == []


def test_values_that_the_model_does_not_know_are_the_callers_fault() -> None:
    """400 with a sentence of ours; the library's words stay in the log."""
    error = RunError("onnxruntime: idx=9 must be within the inclusive range [-5,4]", caused_by_input=True)
    with pytest.raises(RequestError, match="cannot be run on these values") as refused:
        run(model(error=error), of_words(1))
    assert refused.value.status == 400
    assert "idx" not in str(refused.value)


def test_any_other_failure_is_ours(caplog: pytest.LogCaptureFixture) -> None:
    """500, with what happened in the log alone."""
    with pytest.raises(InternalError, match="model 'net' failed on these rows"):
        run(model(error=RunError("out of memory at 0x7f")), of_words(1))
    assert "out of memory at 0x7f" in caplog.text


ONE: ResponseBody = (b'{"a":1}', None)
TWO: ResponseBody = (b'{"b":[2]}', None)
ONE_WITH_BYTES: ResponseBody = (b'{"a":1}xyz', 7)
TWO_WITH_BYTES: ResponseBody = (b'{"b":[2]}123', 9)


@pytest.mark.parametrize(
    ("first", "second", "tail"),
    [
        (ONE, TWO, None),
        (ONE_WITH_BYTES, TWO, b"xyz"),
        (ONE, TWO_WITH_BYTES, b"123"),
        (ONE_WITH_BYTES, TWO_WITH_BYTES, b"xyz123"),
    ],
)
def test_two_answers_are_one(first: ResponseBody, second: ResponseBody, tail: bytes | None) -> None:
    """One object, and after it the bytes of the first, then of the second."""
    content, length = merge_json(first, second)
    assert json.loads(content[:length]) == {"a": 1, "b": [2]}
    assert (length is None) == (tail is None)
    if length is not None:
        assert content[length:] == tail


def test_an_answer_within_another() -> None:
    """Its bytes stay behind all JSON."""
    assert wrap_json("in", ONE) == (b'{"in":{"a":1}}', None)
    assert wrap_json("in", ONE_WITH_BYTES) == (b'{"in":{"a":1}}xyz', 14)
    content, length = merge_json(ONE_WITH_BYTES, wrap_json("in", TWO_WITH_BYTES))
    assert json.loads(content[:length]) == {"a": 1, "in": {"b": [2]}}
    assert length is not None
    assert content[length:] == b"xyz123"
