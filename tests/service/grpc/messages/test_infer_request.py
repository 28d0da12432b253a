"""Decoding ModelInferRequest: tensors of every datatype, raw and typed, and what stands beside them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.infer_bodies import ROWS, signature
from tests.support.infer_messages import LIMITS, decode, error_of, every_array, field, with_inputs, with_texts
from tests.support.text_models import TEXTS
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.grpc.messages.infer_request_cache import InferMessageDecoder
from turnpike.service.inference_types import Array, RequestedOutput

X = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "int16", ("batch",)))
A, B = np.ones((3, 2), np.float32), np.arange(3, dtype=np.int16)
ARRAYS = every_array()


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
@pytest.mark.parametrize("dtype", ARRAYS)
def test_tensors_of_every_datatype(dtype: str, typed: bool) -> None:
    """With all bits, down to the smallest and up to the largest number."""
    array = ARRAYS[dtype]
    model = signature(Tensor("x", dtype, ("batch", 3)))
    if typed and dtype == "float16":
        message = with_inputs(x=array)
        del message.raw_input_contents[:]
        expected = "inputs[0].contents: FP16 has no typed contents; expected raw_input_contents"
        assert error_of(message, model) == expected
        return
    request = decode(with_inputs(typed=typed, x=array), model)
    (feed,) = request.feeds.values()
    assert (feed.dtype, feed.shape, feed.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert feed.flags.aligned
    # answers are raw if the request is
    assert request.form.outputs == (RequestedOutput("logits", binary=not typed),)
    assert request.form.rows == 2


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -0.0])
@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
def test_numbers_that_json_has_not(number: float, typed: bool) -> None:
    array = np.full((1, 2, 3), number, np.float32)
    assert decode(with_inputs(typed=typed, x=array)).feeds["x"].tobytes() == array.tobytes()


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
def test_several_inputs_in_any_order(typed: bool) -> None:
    """Raw tensors belong to the inputs in the order of the message."""
    for arrays in ({"a": A, "b": B}, {"b": B, "a": A}):
        request = decode(with_inputs(typed=typed, **arrays), PAIR)
        assert request.feeds["a"].tolist() == A.tolist()
        assert request.feeds["b"].tolist() == B.tolist()
        assert request.form.rows == 3


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
def test_zero_rows(typed: bool) -> None:
    """A typed tensor without values has no contents, so the request counts as typed."""
    request = decode(with_inputs(typed=typed, x=X[:0]))
    assert request.feeds["x"].shape == (0, 2, 3)
    assert request.form.rows == 0


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
def test_texts_become_ids(shape: tuple[int, ...], typed: bool) -> None:
    """As the encoder of the model converts them."""
    request = decode(with_texts(["AB C", "é", ""], shape, typed=typed), TEXTS)
    assert TEXTS.text is not None
    assert request.feeds["ids"].tolist() == TEXTS.text.encode(["AB C", "é", ""]).tolist()
    assert request.form.has_texts
    assert request.form.rows == 3
    assert request.form.outputs == (RequestedOutput("logits", binary=not typed),)


def test_ids_are_accepted_where_texts_are() -> None:
    ids = np.ones((1, 2, 3), np.int64)
    request = decode(with_inputs(ids=ids), TEXTS)
    assert request.feeds["ids"].tolist() == ids.tolist()
    assert not request.form.has_texts


def test_requested_outputs_in_order() -> None:
    """Hidden ones too, and classes."""
    message = with_inputs(x=X)
    message.outputs.add(name="layer00.transform_gate")
    message.outputs.add(name="logits").parameters["classification"].int64_param = 3
    assert decode(message).form.outputs == (
        RequestedOutput("layer00.transform_gate", binary=True),
        RequestedOutput("logits", binary=True, classes=3),
    )


def test_parameters_of_every_type() -> None:
    """`timeout` is one of them; 0 is none, which clients send."""
    message = with_inputs(x=X)
    message.parameters["flag"].bool_param = False
    message.parameters["whole"].int64_param = -(2**63)
    message.parameters["text"].string_param = "ä"
    message.parameters["number"].double_param = 0.5
    message.parameters["large"].uint64_param = 2**64 - 1
    message.parameters["timeout"].int64_param = 0
    form = decode(message).form
    assert form.parameters == {
        "flag": False,
        "whole": -(2**63),
        "text": "ä",
        "number": 0.5,
        "large": 2**64 - 1,
        "timeout": 0,
    }
    assert form.timeout_us is None
    message.parameters["timeout"].uint64_param = 7
    assert decode(message).form.timeout_us == 7


def test_the_id_is_that_of_each_message() -> None:
    """It is no part of the form, so that messages with different ids share one."""
    messages = InferMessageDecoder(LIMITS, lambda request, model: None)
    forms = set()
    for request_id in ("", "one", "zwölf", "x" * 300):
        message = with_inputs(x=X)
        message.id = request_id
        opened = messages.split(message.SerializeToString())
        assert opened.id.decode() == request_id
        forms.add(id(messages.decode(opened, ROWS, 0).form))
    # the first request is decoded by itself, and its form is kept
    assert len(forms) == 1


def test_unknown_fields_are_ignored() -> None:
    """Of any message, as in all of protobuf: a later version of the protocol may have more."""
    unknown = field(1000, b"later") + field(1001, b"\x07", wire_type=0)
    for typed in (False, True):
        message = with_inputs(typed=typed, x=X)
        for part in (message, message.inputs[0], message.inputs[0].contents):
            if part is not message.inputs[0].contents or typed:
                part.MergeFromString(unknown)
        assert decode(message).feeds["x"].tolist() == X.tolist()


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most memory that is allocated at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_list_of_numbers_is_built() -> None:
    """A list of floats takes eight times as much memory as the tensor. A repeated form takes next to none."""
    wide = signature(Tensor("x", "float32", ("batch", 250_000)))
    array: Array = np.ones((2, 250_000), np.float32)
    for typed in (False, True):
        data = with_inputs(typed=typed, x=array).SerializeToString()
        messages = InferMessageDecoder(LIMITS, lambda request, model: None)

        def work(messages: InferMessageDecoder = messages, data: bytes = data) -> None:
            messages.decode(messages.split(data), wide, 0)

        # one copy of the tensor in the parsed message, and one to align it
        assert peak_bytes(work) < 4 * array.nbytes
        # of a raw tensor, the copy that aligns it is left
        assert peak_bytes(work) < (4 if typed else 1.1) * array.nbytes
