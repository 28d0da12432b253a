"""Tests of decoding infer requests: valid ones, and the message for each kind of invalid one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.infer_bodies import IDS, ROWS, binary, body, entry, signature
from tests.support.text_models import TEXTS, encoder
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.infer_request import decode_infer
from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.inference_types import RequestedOutput

LIMITS = RequestLimits(max_rows=100, max_depth=8)
X = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
GATE = "layer00.transform_gate"
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "int8", ("batch",)))
HALVES = signature(Tensor("x", "float16", ("batch", 3)))
GRID = signature(Tensor("x", "float32", ("batch", "height", "width")))
SQUARE = signature(Tensor("x", "float32", ("n", "n")), batch="n")
WHOLE = signature(Tensor("x", "float32", (3,)), batch=None)


def decode(*inputs: Any, model: Signature = ROWS, limits: RequestLimits = LIMITS, **more: Any) -> Any:
    return decode_infer(body(*inputs, **more), None, model, limits)


def sized(size: int, *shape: int, name: str = "x", datatype: str = "FP32") -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(shape),
        "datatype": datatype,
        "parameters": {"binary_data_size": size},
    }


def test_a_json_request_is_decoded() -> None:
    for data in (X.tolist(), X.ravel().tolist()):
        got = decode(entry(data, 1, 2, 3))
        np.testing.assert_array_equal(got.feeds["x"], X, strict=True)
        assert (got.form.rows, got.form.outputs, got.form.id, got.form.timeout_us) == (
            1,
            (RequestedOutput("logits"),),
            None,
            None,
        )
        assert got.form.parameters == {}


def test_a_binary_request_is_decoded() -> None:
    """Binary tensors follow the JSON in the order of the inputs; other inputs may be in the JSON."""
    a, b = np.arange(4, dtype=np.float32), np.array([-1, 2], np.int8)
    first, second = sized(16, 2, 2, name="a"), sized(2, 2, name="b", datatype="INT8")
    for inputs, tensors in (
        ([first, second], [a, b]),
        ([second, first], [b, a]),
        ([entry(b.tolist(), 2, name="b", datatype="INT8"), first], [a]),
    ):
        content, header = binary({"inputs": inputs}, *(tensor.tobytes() for tensor in tensors))
        got = decode_infer(content, header, PAIR, LIMITS)
        np.testing.assert_array_equal(got.feeds["a"], a.reshape(2, 2), strict=True)
        np.testing.assert_array_equal(got.feeds["b"], b, strict=True)
        assert got.form.rows == 2


def test_a_header_length_of_the_whole_body_is_plain_json() -> None:
    text = body(entry(X.tolist(), 1, 2, 3))
    assert decode_infer(memoryview(text), len(text), ROWS, LIMITS).form.rows == 1


def test_a_raw_request_is_decoded() -> None:
    """The body is the only input, and there is no JSON. Its size determines the rows. Outputs are binary."""
    rows = np.arange(12, dtype=np.float32)
    got = decode_infer(rows.tobytes(), 0, ROWS, LIMITS)
    np.testing.assert_array_equal(got.feeds["x"], rows.reshape(2, 2, 3), strict=True)
    assert (got.form.rows, got.form.outputs, got.form.id) == (
        2,
        (RequestedOutput("logits", binary=True),),
        None,
    )
    assert decode_infer(b"", 0, ROWS, LIMITS).form.rows == 0


def test_a_raw_request_is_one_row_if_another_dimension_varies() -> None:
    """As Triton reads it. Its size is that of the dimension, which may have no name."""
    ids = np.arange(5)
    for model in (IDS, signature(Tensor("ids", "int64", ("?", "?")), batch="?")):
        got = decode_infer(ids.tobytes(), 0, model, LIMITS)
        np.testing.assert_array_equal(got.feeds["ids"], [ids], strict=True)
        assert got.form.rows == 1


def test_as_many_rows_as_the_limit_are_accepted() -> None:
    """As bytes alone, and in JSON."""
    assert decode_infer(bytes(24 * LIMITS.max_rows), 0, ROWS, LIMITS).form.rows == LIMITS.max_rows
    values = [0] * 6 * LIMITS.max_rows
    assert decode(entry(values, LIMITS.max_rows, 2, 3)).form.rows == LIMITS.max_rows


@pytest.mark.parametrize(
    ("content", "model", "message"),
    [
        (bytes(23), ROWS, "body: expected a multiple of 6 values, got 5|expected 24 bytes"),
        (bytes(25), ROWS, "body: expected 24 bytes for shape .1, 2, 3. FP32, got 25"),
        (bytes(24 * 101), ROWS, r"body: expected at most 100 rows \(--max-rows\), got 101"),
        (bytes(9), IDS, "body: expected 8 bytes for shape .1, 1. INT64, got 9"),
        (bytes(8), GRID, "body: expected a shape, since more than one of .1, height, width. varies"),
        (bytes(16), SQUARE, r"body: expected \[n, n\] with n = 1 as before, got \[1, 4\]"),
        (bytes(8), PAIR, "0 needs a model with one input, and this one has 2"),
    ],
)
def test_a_raw_request_of_the_wrong_size_is_refused(content: bytes, model: Signature, message: str) -> None:
    """Sizes that fit no number of rows, and models whose shape does not follow from the size."""
    with pytest.raises(RequestError, match=message):
        decode_infer(content, 0, model, LIMITS)


def test_requested_outputs_are_read() -> None:
    """Outputs in the order named, hidden ones included, each as JSON or binary as requested."""
    named = [
        {"name": GATE, "parameters": {"binary_data": False}},
        {"name": "logits", "parameters": {"classification": 3}},
    ]
    got = decode(entry(X.tolist(), 1, 2, 3), outputs=named, parameters={"binary_data_output": True})
    assert got.form.outputs == (RequestedOutput(GATE), RequestedOutput("logits", binary=True, classes=3))
    assert got.form.output_names == (GATE, "logits")
    got = decode(entry(X.tolist(), 1, 2, 3), outputs=[], parameters={"binary_data_output": True})
    assert got.form.outputs == (RequestedOutput("logits", binary=True),)


def test_id_timeout_and_parameters_are_kept() -> None:
    """Other parameters are kept; a timeout of 0 means none; unknown keys are ignored."""
    parameters = {"timeout": 2500, "priority": 1, "sequence_id": 7, "mine": "yes"}
    got = decode(entry(X.tolist(), 1, 2, 3), id="seven", parameters=parameters, unknown={"a": [1]})
    assert (got.form.id, got.form.timeout_us, got.form.parameters) == ("seven", 2500, parameters)
    assert decode(entry(X.tolist(), 1, 2, 3), parameters={"timeout": 0}).form.timeout_us is None


def test_requested_extra_keys_are_kept() -> None:
    """They are lists and dicts among the parameters."""
    text = body(entry(X.ravel().tolist(), 1, 2, 3), close=["a", 2], curve=True, other=[1])
    got = decode_infer(text, None, ROWS, LIMITS, frozenset({"close", "curve", "open"}))
    assert got.form.parameters == {"close": ["a", 2], "curve": True}


def test_empty_data_must_be_nested_like_its_shape() -> None:
    """There are no values to count, so the nested arrays are counted."""
    for data in ([], [[], []]):
        assert decode(entry(data, 2, 0, name="ids", datatype="INT64"), model=IDS).feeds["ids"].shape == (2, 0)
    for data, message in (
        ([[]], r"data: expected 2 arrays, got 1"),
        ([[], [], []], r"data: expected 2 arrays, got 3"),
        ([[[]], []], r"data\[0\]\[0\]: expected a whole number, got an array"),
    ):
        with pytest.raises(RequestError, match=r"inputs\[0\]." + message):
            decode(entry(data, 2, 0, name="ids", datatype="INT64"), model=IDS)


def test_rows_of_models_with_and_without_a_batch() -> None:
    assert decode(entry([], 0, 2, 3)).form.rows == 0
    assert decode(entry([1, 2, 3], 3), model=WHOLE).form.rows == 1


def test_fp16_is_accepted_only_as_binary() -> None:
    with pytest.raises(RequestError, match="data: FP16 cannot be written in JSON; expected binary data"):
        decode(entry([1, 2, 3], 1, 3, datatype="FP16"), model=HALVES)
    content, header = binary({"inputs": [sized(6, 1, 3, datatype="FP16")]}, np.float16([1, 2, 3]).tobytes())
    assert decode_infer(content, header, HALVES, LIMITS).feeds["x"].tolist() == [[1, 2, 3]]


GOOD = entry([0] * 6, 1, 2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (body(), "inputs: expected one named 'x', which is missing"),
        (b"{}", "inputs: expected an array, got no such key"),
        (b'{"instances": [[1]]}', "inputs: expected tensors .*, got `instances`, which only :predict takes"),
        (b'{"inputs": 3}', "inputs: expected an array, got a number"),
        (b'{"inputs": [3]}', r"inputs\[0\]: expected an object, got a number"),
        (b'{"inputs": [], "inputs": []}', "body: expected each key once, got 'inputs' twice"),
        (body(GOOD, GOOD), r"inputs\[1\].name: expected each input once, got 'x' twice"),
        (body(entry([0], 1, name="y")), r"inputs\[0\].name: expected one of 'x', got 'y'"),
        (body(GOOD | {"name": 3}), r"inputs\[0\].name: expected a string, got a number"),
        (body(GOOD | {"datatype": "FP64"}), r"inputs\[0\].datatype: expected FP32, got 'FP64'"),
        (body(GOOD | {"datatype": "BF16"}), r"inputs\[0\].datatype: expected FP32, got 'BF16'"),
        (body(GOOD | {"datatype": None}), r"inputs\[0\].datatype: expected a string, got null"),
        (body(GOOD | {"shape": [1, 3, 2]}), r"inputs\[0\].shape: expected .batch, 2, 3., got .1, 3, 2."),
        (body(GOOD | {"shape": [-1, 2, 3]}), r"inputs\[0\].shape: expected a whole number from 0, got -1"),
        (
            body(GOOD | {"shape": [101, 2, 3]}),
            r"inputs\[0\].shape: expected at most 100 rows \(--max-rows\), got 101",
        ),
        (body(GOOD | {"data": [1]}), r"inputs\[0\].data: expected 6 values for shape .1, 2, 3., got 1"),
        (body({"name": "x", "shape": [1, 2, 3], "datatype": "FP32"}), r"inputs\[0\].data: expected an array"),
        (body(GOOD | {"parameters": []}), r"inputs\[0\].parameters: expected an object, got an array"),
        (body(GOOD | {"parameters": {"a": []}}), r"inputs\[0\].parameters.'a': expected a string"),
        (body(GOOD | {"parameters": {"binary_data_size": 24}}), r"inputs\[0\]: .* got both"),
        (body(GOOD | {"parameters": {"shared_memory_region": "a"}}), r"inputs\[0\]: shared memory"),
        (body(sized(24, 1, 2, 3)), "expected 24 bytes after the JSON, got 0"),
        (body(GOOD, id=3), "id: expected a string, got a number"),
        (body(GOOD, parameters=[]), "parameters: expected an object, got an array"),
        (body(GOOD, parameters={"a": None}), "parameters.'a': expected a string"),
        (
            body(GOOD, parameters={"timeout": -1}),
            "parameters.timeout: expected a whole number from 0, got -1",
        ),
        (
            body(GOOD, parameters={"timeout": 1.5}),
            "parameters.timeout: expected a whole number from 0, got 1.5",
        ),
        (body(GOOD, parameters={"binary_data_output": 1}), "parameters.binary_data_output: expected true"),
        (body(GOOD, outputs={}), "outputs: expected an array, got an object"),
        (body(GOOD, outputs=["logits"]), r"outputs\[0\]: expected an object, got a string"),
        (body(GOOD, outputs=[{}]), r"outputs\[0\].name: expected a string, got no such key"),
        (
            body(GOOD, outputs=[{"name": "y"}]),
            r"outputs\[0\].name: expected one of 'logits' or a gate, got 'y'",
        ),
        (body(GOOD, outputs=[{"name": GATE}] * 2), r"outputs\[1\].name: expected each output once"),
        (
            body(GOOD, outputs=[{"name": GATE, "parameters": {"binary_data": 1}}]),
            r"outputs\[0\].parameters.binary_data: expected true or false, got a number",
        ),
        (
            body(GOOD, outputs=[{"name": GATE, "parameters": {"classification": -1}}]),
            r"outputs\[0\].parameters.classification: expected a whole number from 0, got -1",
        ),
        (
            body(GOOD, outputs=[{"name": GATE, "parameters": {"shared_memory_region": "a"}}]),
            r"outputs\[0\].parameters: shared memory",
        ),
    ],
)
def test_invalid_requests_are_refused(text: bytes, message: str) -> None:
    """Each message names the place, the expected value and the actual value."""
    with pytest.raises(RequestError, match=message) as caught:
        decode_infer(text, None, ROWS, LIMITS)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("content", "header", "message"),
    [
        (b"{}", 3, "Inference-Header-Content-Length: expected at most the 2 bytes of the body, got 3"),
        (body(GOOD) + b"x", len(body(GOOD)), "body: expected .* bytes, .* got"),
        (body(GOOD), len(body(GOOD)) - 1, "got only a part, which ends at line 1, column 80"),
        (*binary({"inputs": [sized(24, 1, 2, 3)]}, bytes(23)), "expected 24 bytes after the JSON, got 23"),
        (*binary({"inputs": [sized(24, 1, 2, 3)]}, bytes(25)), "body: expected .* bytes, .* got"),
        (*binary({"inputs": [sized(23, 1, 2, 3)]}, bytes(23)), "expected 24 bytes for shape .* got 23"),
        (*binary({"inputs": [sized(-1, 1, 2, 3)]}, bytes(24)), "expected a whole number from 0, got -1"),
    ],
)
def test_wrong_lengths_are_refused(content: bytes, header: int, message: str) -> None:
    """The size of the JSON, of a tensor or of the body is wrong."""
    with pytest.raises(RequestError, match=message):
        decode_infer(content, header, ROWS, LIMITS)


def test_inputs_must_have_the_same_number_of_rows() -> None:
    with pytest.raises(RequestError, match=r"inputs\[1\].shape: expected .* batch = 2 as before, got \[3\]"):
        decode(entry([0] * 4, 2, 2, name="a"), entry([0] * 3, 3, name="b", datatype="INT8"), model=PAIR)
    nameless = signature(Tensor("a", "float32", ("?", 2)), Tensor("b", "float32", ("?", 2)), batch="?")
    with pytest.raises(
        RequestError, match=r"inputs\[1\].shape: expected 2 rows as in the inputs before it, got 1"
    ):
        decode(entry([0] * 4, 2, 2, name="a"), entry([0] * 2, 1, 2, name="b"), model=nameless)


def test_an_array_in_place_of_a_number_is_refused() -> None:
    unusual = {"id": "[[[[", "unknown": [[1]]}
    assert decode(entry([0, 1, 2, 3, 4, 5], 1, 2, 3), **unusual).form.rows == 1
    assert decode(entry(X.tolist(), 1, 2, 3), **unusual).form.rows == 1
    for more in ({}, unusual):
        for data in ([0, [1], 2, 3, 4, 5], [[[0, 1, [2]], [3, 4, 5]]], [[[0, 1, []], [2, 3, [4, 5]]]]):
            with pytest.raises(RequestError, match=r"inputs\[0\].data\[.*\]: .*, got an array"):
                decode(entry(data, 1, 2, 3), **more)
    # brackets that one input has too many must not make up for those missing in another
    with pytest.raises(RequestError, match=r"inputs\[0\].data\[.*\]: .*, got an array"):
        decode(entry([[0, [1]]], 1, 2, name="a"), entry([1], 1, name="b", datatype="INT8"), model=PAIR)


@pytest.mark.parametrize("outside", [True, False])
def test_nesting_depth_is_limited_everywhere(outside: bool) -> None:
    """The limit holds for ignored keys and for the data."""
    if outside:
        deep: Any = 1
        for _ in range(7):
            deep = [deep]
        assert decode(GOOD, unknown=deep).form.rows == 1
        with pytest.raises(
            RequestError, match=r"body: expected JSON nested at most 8 deep \(--max-depth\), got 9"
        ):
            decode(GOOD, unknown=[deep])
        with pytest.raises(
            RequestError, match=r"body: expected JSON nested at most 8 deep \(--max-depth\), got 9"
        ):
            decode(GOOD, unknown={"a": deep})
    else:
        text = body(entry(X.tolist(), 1, 2, 3))
        assert decode_infer(text, None, ROWS, RequestLimits(max_depth=6)).form.rows == 1
        with pytest.raises(
            RequestError, match=r"body: expected JSON nested at most 5 deep \(--max-depth\), got 6"
        ):
            decode_infer(text, None, ROWS, RequestLimits(max_depth=5))


def test_long_names_are_cut_in_messages() -> None:
    """Messages quote at most 80 characters."""
    with pytest.raises(RequestError) as caught:
        decode(entry([0], 1, name="y" * 1_000_000))
    assert len(str(caught.value)) < 200


def test_json_size_is_checked_before_parsing() -> None:
    """The limit holds for the JSON; binary tensors may be larger."""
    text = body(entry(X.ravel().tolist(), 1, 2, 3))
    few = RequestLimits(max_json_bytes=len(text))
    assert decode_infer(text, None, ROWS, few).form.rows == 1
    with pytest.raises(TooLargeError):
        decode_infer(text + b" ", None, ROWS, few)
    content, header = binary({"inputs": [sized(24, 1, 2, 3)]}, X.tobytes())
    assert decode_infer(content, header, ROWS, RequestLimits(max_json_bytes=header)).form.rows == 1


def test_the_size_of_extra_keys_is_limited() -> None:
    layers = list(range(20_000))
    asked_for = body(entry(X.ravel().tolist(), 1, 2, 3), close=layers[:1000])
    got = decode_infer(asked_for, None, ROWS, LIMITS, frozenset({"close"}))
    assert got.form.parameters["close"] == layers[:1000]
    asked_for = body(entry(X.ravel().tolist(), 1, 2, 3), close=layers)
    with pytest.raises(RequestError, match="close: expected at most 65536 bytes, got "):
        decode_infer(asked_for, None, ROWS, LIMITS, frozenset({"close"}))


def texts(data: Any, *shape: int, **more: Any) -> dict[str, Any]:
    return entry(data, *shape, name="ids", datatype="BYTES", **more)


def strings(*elements: bytes) -> bytes:
    """A BYTES tensor in binary form."""
    return b"".join(len(element).to_bytes(4, "little") + element for element in elements)


def test_texts_become_ids() -> None:
    """In JSON, nested or not, and in binary form; of any content, also what looks like JSON."""
    content = ["AB C", '[[[[[[[[[[{"', ""]
    expected = encoder().encode(content)
    for data, shape in ((content, (3,)), (content, (3, 1)), ([[text] for text in content], (3, 1))):
        got = decode(texts(data, *shape), model=TEXTS)
        np.testing.assert_array_equal(got.feeds["ids"], expected, strict=True)
        assert (got.form.rows, got.form.has_texts) == (3, True)
    tensor = strings(*(text.encode() for text in content))
    head = {"inputs": [sized(len(tensor), 3, name="ids", datatype="BYTES")]}
    got = decode_infer(*binary(head, tensor), TEXTS, LIMITS)
    np.testing.assert_array_equal(got.feeds["ids"], expected, strict=True)
    assert got.form.has_texts
    assert got.form.layout.row_shapes == (("ids", (2, 3), np.dtype("int64")),)


def test_ids_are_taken_as_before_by_a_model_that_takes_texts() -> None:
    ids = [[[1, 2, 0]], [[0, 0, 0]]]
    got = decode(entry(ids, 2, 1, 3, name="ids", datatype="INT64"), model=TEXTS)
    assert got.feeds["ids"].tolist() == ids
    assert not got.form.has_texts


def test_texts_come_among_other_inputs() -> None:
    """Binary tensors keep their order, and a dimension has one size in all inputs."""
    more = replace(
        signature(Tensor("mask", "bool", ("batch", "words")), Tensor("ids", "int64", ("batch", "words", 3))),
        text=encoder(),
    )
    mask, tensor = np.array([[True, False]]), strings(b"A B")
    head = {
        "inputs": [
            sized(len(tensor), 1, name="ids", datatype="BYTES"),
            sized(2, 1, 2, name="mask", datatype="BOOL"),
        ]
    }
    got = decode_infer(*binary(head, tensor, mask.tobytes()), more, LIMITS)
    assert got.feeds["mask"].tolist() == mask.tolist()
    assert got.feeds["ids"].tolist() == [[[1, 0, 0], [2, 0, 0]]]
    with pytest.raises(RequestError, match=r"inputs\[1\].shape: expected .* with words = 3 as before"):
        decode(entry([[True] * 3], 1, 3, name="mask", datatype="BOOL"), texts(["A"], 1), model=more)
    with pytest.raises(RequestError, match="expected 1 rows as in the inputs before it, got 2"):
        decode(entry([[True] * 2], 1, 2, name="mask", datatype="BOOL"), texts(["A", "B"], 2), model=more)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            texts(["A"], 1, parameters={"binary_data_size": 3}),
            "expected data or parameters.binary_data_size, got both",
        ),
        (texts(["A"], 1) | {"shape": [-1]}, "inputs[0].shape: expected a whole number from 0, got -1"),
        (texts(["A"], 1) | {"shape": 1}, "inputs[0].shape: expected an array, got a number"),
        (texts(["A"], 1, 2), "inputs[0].shape: expected [texts] or [texts, 1] for BYTES, got [1, 2]"),
        (texts([], 101), "inputs[0].shape: expected at most 100 rows (--max-rows), got 101"),
        (texts("A", 1), "inputs[0].data: expected an array, got a string"),
        (texts(["A", 7], 2), "inputs[0].data[1]: expected a string, got a number"),
        (texts(["A"], 1) | {"datatype": "FP32"}, "inputs[0].datatype: expected INT64 or BYTES, got 'FP32'"),
        (texts(["A"], 1) | {"datatype": 5}, "inputs[0].datatype: expected a string, got a number"),
    ],
)
def test_texts_that_do_not_fit_are_refused(tensor: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        decode(tensor, model=TEXTS)


@pytest.mark.parametrize(
    ("size", "tensor", "message"),
    [
        (7, strings(b"AB") + b"\0", "inputs[0].data[1]: expected a length of 4 bytes"),
        (7, strings(b"AB"), "inputs[0].parameters.binary_data_size: expected 7 bytes after the JSON, got 6"),
        (6, strings(b"AB") + b"\0", "body: expected "),
        (6, strings(b"A\xff"), "inputs[0].data[0]: expected UTF-8, got b'\\xff' at offset 1"),
    ],
)
def test_binary_texts_that_do_not_fit_are_refused(size: int, tensor: bytes, message: str) -> None:
    head = {"inputs": [sized(size, 1, name="ids", datatype="BYTES")]}
    with pytest.raises(RequestError, match=re.escape(message)):
        decode_infer(*binary(head, tensor), TEXTS, LIMITS)


def test_texts_are_refused_by_models_and_inputs_that_take_none() -> None:
    with pytest.raises(RequestError, match=r"inputs\[0\].datatype: expected INT64, got 'BYTES'"):
        decode(texts(["A"], 1), model=IDS)
    other = replace(signature(Tensor("x", "int64", ("batch", "words", 3))), text=encoder())
    with pytest.raises(RequestError, match=r"inputs\[0\].datatype: expected INT64, got 'BYTES'"):
        decode(texts(["A"], 1) | {"name": "x"}, model=other)
