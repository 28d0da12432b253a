"""Tests of encoding responses: every bit of every number, in JSON or binary, and never null for NaN."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from turnpike.common.datatypes import DATATYPES, WIRE_DTYPES
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.infer_response import JsonAnswers, assemble, encode_infer, tensor_entry
from turnpike.service.errors import NotFiniteError, RequestError
from turnpike.service.inference_types import Array, FeedLayout, InferAnswer, RequestedOutput, RequestForm


def encoded(
    *pairs: tuple[RequestedOutput, Array], labels: Any = (), name: str | None = None
) -> tuple[bytes, int | None]:
    """The answer to a request of two rows whose id is `name`."""
    requested, arrays = zip(*pairs, strict=True)
    form = RequestForm(2, requested, FeedLayout.of({}), name)
    return encode_infer(InferAnswer("digits", 3, form, arrays, labels))


def outputs(*pairs: tuple[RequestedOutput, Array], **more: Any) -> list[dict[str, Any]]:
    """The outputs of an answer that is all JSON."""
    text, header = encoded(*pairs, **more)
    assert header is None
    found: list[dict[str, Any]] = json.loads(text)["outputs"]
    return found


def test_a_json_response_is_encoded() -> None:
    """Name, version as a string, outputs with flat data, and an id only if the request had one."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    text, header = encoded((RequestedOutput("y"), array))
    assert header is None
    assert json.loads(text) == {
        "model_name": "digits",
        "model_version": "3",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [0, 1, 2, 3, 4, 5]}],
    }
    assert json.loads(encoded((RequestedOutput("y"), array), name="7")[0])["id"] == "7"


@pytest.mark.parametrize("dtype", [name for name in WIRE_DTYPES if name != "float16"])
def test_json_keeps_every_bit(dtype: str) -> None:
    """The text is decoded to the same bits, up to the limits of each dtype."""
    random_bytes = np.random.default_rng(0).integers(0, 256, 80_000, np.uint8)
    array = random_bytes > 127 if dtype == "bool" else random_bytes.view(dtype)
    array = array[np.isfinite(array)]
    (got,) = outputs((RequestedOutput("y"), array))
    assert got["datatype"] == DATATYPES[dtype]
    assert np.array(got["data"], dtype).tobytes() == array.tobytes()


def test_a_binary_response_is_encoded() -> None:
    """Binary tensors follow the JSON in the order of the outputs; other outputs may be in the JSON."""
    a, b, c = np.float32([[1, np.nan], [3, 4]]), np.int8([5, 6]), np.float16([[7], [8]])
    text, header = encoded(
        (RequestedOutput("a", binary=True), a),
        (RequestedOutput("b"), b),
        (RequestedOutput("c", binary=True), c),
    )
    assert header is not None
    head = json.loads(text[:header])["outputs"]
    assert head[0] == {
        "name": "a",
        "datatype": "FP32",
        "shape": [2, 2],
        "parameters": {"binary_data_size": 16},
    }
    assert head[1] == {"name": "b", "datatype": "INT8", "shape": [2], "data": [5, 6]}
    assert head[2] == {
        "name": "c",
        "datatype": "FP16",
        "shape": [2, 1],
        "parameters": {"binary_data_size": 4},
    }
    assert text[header:] == a.tobytes() + c.tobytes()


def test_arrays_of_any_memory_order_are_written_row_major() -> None:
    array = np.arange(6, dtype=np.float32).reshape(3, 2).T
    assert outputs((RequestedOutput("y"), array))[0]["data"] == [0, 2, 4, 1, 3, 5]
    text, header = encoded((RequestedOutput("y", binary=True), array))
    assert np.frombuffer(text[header:], np.float32).tolist() == [0, 2, 4, 1, 3, 5]


def test_outputs_without_rows_keep_their_shape() -> None:
    """This holds for JSON and for binary data."""
    array = np.empty((0, 3), np.float32)
    assert outputs((RequestedOutput("y"), array))[0] == {
        "name": "y",
        "datatype": "FP32",
        "shape": [0, 3],
        "data": [],
    }
    text, header = encoded((RequestedOutput("y", binary=True), array))
    assert header == len(text)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_are_refused_in_json(value: float) -> None:
    """NaN is never written as null: the response is 422, and names the output and binary data as a remedy."""
    bad = np.float32([[1, 2], [3, value]])
    for pairs in (
        [(RequestedOutput("y"), bad)],
        [(RequestedOutput("a"), np.float32([[1], [1]])), (RequestedOutput("y"), bad.astype(np.float64))],
        [(RequestedOutput("a", binary=True), bad), (RequestedOutput("y"), bad)],
    ):
        with pytest.raises(NotFiniteError, match="outputs: 'y' has NaN or Inf .* binary data") as caught:
            encoded(*pairs)
        assert caught.value.status == 422
    with pytest.raises(NotFiniteError, match="outputs: 'y' has NaN or Inf"):
        encoded((RequestedOutput("y", classes=1), bad))


def test_a_name_that_contains_null_is_accepted() -> None:
    """Finite numbers with such a name or id are not taken for NaN."""
    (got,) = outputs((RequestedOutput("null"), np.float32([[1], [2]])), name="null")
    assert got["data"] == [1, 2]


def test_fp16_is_refused_in_json() -> None:
    """The message names binary data as a remedy."""
    with pytest.raises(
        RequestError, match="outputs: 'y' is FP16, which cannot be written in JSON; .* binary data"
    ) as caught:
        encoded((RequestedOutput("y"), np.float16([[1], [2]])))
    assert caught.value.status == 400


def test_classes_are_encoded_as_json_and_binary() -> None:
    """The best classes of each row with value, index and label; in binary, each after its length."""
    array = np.float32([[0.1, 3.3, 0.2], [5, 1, 2]])
    (got,) = outputs((RequestedOutput("y", classes=2), array), labels=("a", "b", "ü"))
    expected = ["3.300000:1:b", "0.200000:2:ü", "5.000000:0:a", "2.000000:2:ü"]
    assert got == {"name": "y", "datatype": "BYTES", "shape": [2, 2], "data": expected}
    text, header = encoded((RequestedOutput("y", binary=True, classes=2), array), labels=("a", "b", "ü"))
    assert header is not None
    (head,) = json.loads(text[:header])["outputs"]
    rest, found = text[header:], []
    assert head["parameters"] == {"binary_data_size": len(rest)}
    assert "data" not in head
    while rest:
        size = int.from_bytes(rest[:4], "little")
        found.append(rest[4 : 4 + size].decode())
        rest = rest[4 + size :]
    assert found == expected


def test_tensors_are_added_to_any_json_object() -> None:
    """Null values of the object itself stay null."""
    pairs = [("a", np.float32([1, 2])), ("b", np.int8([3]))]
    tail: list[Any] = []
    entries = [tensor_entry(*pair, tail, binary=True) for pair in pairs]
    text, header = assemble({"x": None, "tensors": entries}, tail)
    assert json.loads(text[:header])["x"] is None
    assert text[header:] == np.float32([1, 2]).tobytes() + b"\3"
    entries = [tensor_entry(*pair, [], binary=False) for pair in pairs]
    assert assemble({"x": None, "tensors": entries}, [])[1] is None
    entries = [tensor_entry("a", np.float32([np.nan]), [], binary=False)]
    for head in ({"x": None, "tensors": entries}, {"inner": {"x": None, "tensors": entries}}):
        with pytest.raises(NotFiniteError, match="tensors: 'a' has NaN"):
            assemble(head, [])


def test_a_missing_array_is_an_error() -> None:
    """Names and arrays are paired one to one."""
    form = RequestForm(1, (RequestedOutput("a"), RequestedOutput("b")), FeedLayout.of({}))
    with pytest.raises(ValueError, match="zip"):
        encode_infer(InferAnswer("digits", 1, form, [np.float32([1])]))


@pytest.mark.parametrize("shape", [(3, 4), (6, 2, 2), (3, 0), (3,)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_answers_of_a_run_are_those_of_each_request(shape: tuple[int, ...], dtype: str) -> None:
    """`JsonAnswers` writes the same bytes for three requests of a run as `encode_infer` for each."""
    array = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    answers = JsonAnswers("digits", 3, "y").process({"y": array}, 1, 3)
    form = RequestForm(1, (RequestedOutput("y"),), FeedLayout.of({}))
    own = [encode_infer(InferAnswer("digits", 3, form, [part])) for part in np.split(array, 3)]
    assert [(json.loads(answer), None) for answer in answers if isinstance(answer, bytes)] == [
        (json.loads(text), length) for text, length in own
    ]


def test_nan_in_a_run_is_the_error_of_its_own_request() -> None:
    array = np.float32([[1, 2], [3, np.nan], [np.inf, 4], [5, 6]])
    first, second, third, last = JsonAnswers("digits", 3, "y").process({"y": array}, 1, 4)
    assert isinstance(first, bytes)
    assert isinstance(last, bytes)
    assert json.loads(last)["outputs"][0]["data"] == [5, 6]
    for error in (second, third):
        assert isinstance(error, NotFiniteError)
        assert "outputs: 'y' has NaN or Inf" in str(error)


def test_a_number_without_axes_is_an_answer() -> None:
    (answer,) = JsonAnswers("digits", 3, "y").process({"y": np.array(7, np.int64)}, 2, 1)
    assert isinstance(answer, bytes)
    assert json.loads(answer)["outputs"] == [{"name": "y", "datatype": "INT64", "shape": [], "data": [7]}]


@pytest.mark.parametrize(
    ("outputs", "name"),
    [
        ((RequestedOutput("y"), RequestedOutput("y")), None),
        ((RequestedOutput("y", binary=True),), None),
        ((RequestedOutput("y", classes=2),), None),
        ((RequestedOutput("half"),), None),
        ((RequestedOutput("y"),), "7"),
    ],
)
def test_other_forms_are_not_written_for_a_whole_run(
    outputs: tuple[RequestedOutput, ...], name: str | None
) -> None:
    """Several outputs, bytes, classes, FP16, and requests with an id."""
    tensors = {"y": Tensor("y", "float32", ("batch", 2)), "half": Tensor("half", "float16", ("batch", 2))}
    signature = Signature({}, tensors, {}, "batch", frozenset(tensors))
    plain = RequestForm(1, (RequestedOutput("y"),), FeedLayout.of({}))
    assert JsonAnswers.of("digits", 3, plain, signature) is not None
    other = RequestForm(1, outputs, FeedLayout.of({}), name)
    assert JsonAnswers.of("digits", 3, other, signature) is None
