"""Refused messages: each error says what was expected, what came, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.infer_bodies import signature
from tests.support.infer_messages import error_of, with_inputs, with_texts
from tests.support.text_models import TEXTS
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.grpc.messages.infer_request import InferRequest

X = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "int16", ("batch",)))
A, B = np.ones((3, 2), np.float32), np.arange(3, dtype=np.int16)


def rename(message: Any) -> None:
    message.inputs[0].name = "y"


def add_input(message: Any) -> None:
    message.inputs.add().CopyFrom(message.inputs[0])
    message.raw_input_contents.append(message.raw_input_contents[0])


def set_shape(*shape: int) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        message.inputs[0].shape[:] = shape

    return change


def set_parameter(where: Callable[[Any], Any], name: str, **value: Any) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        parameter = where(message).parameters[name]
        for key, content in value.items():
            setattr(parameter, key, content)

    return change


def add_output(name: str, **parameters: int) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        output = message.outputs.add(name=name)
        for key, value in parameters.items():
            output.parameters[key].int64_param = value

    return change


def both(message: Any) -> None:
    message.inputs[0].contents.fp32_contents.append(1)


def request_itself(message: Any) -> Any:
    return message


def first_input(message: Any) -> Any:
    return message.inputs[0]


RAW_ERRORS: list[tuple[Callable[[Any], Any], str]] = [
    (rename, "inputs[0].name: expected one of 'x', got 'y'"),
    (add_input, "inputs[1].name: expected each input once, got 'x' twice"),
    (
        lambda message: message.ClearField("inputs"),
        "raw_input_contents: expected one for each of the 0 inputs, or none, got 1",
    ),
    (
        lambda message: message.raw_input_contents.append(b""),
        "raw_input_contents: expected one for each of the 1 inputs, or none, got 2",
    ),
    (both, "inputs[0]: expected raw_input_contents or contents, got both"),
    (
        lambda message: setattr(message.inputs[0], "datatype", "FP64"),
        "inputs[0].datatype: expected FP32, got 'FP64'",
    ),
    (lambda message: message.inputs[0].ClearField("datatype"), "inputs[0].datatype: expected FP32, got ''"),
    (set_shape(2, 6), "inputs[0].shape: expected 3 dimensions [batch, 2, 3], got 2"),
    (set_shape(), "inputs[0].shape: expected 3 dimensions [batch, 2, 3], got 0"),
    (set_shape(2, 3, 2), "inputs[0].shape: expected [batch, 2, 3], got [2, 3, 2]"),
    (set_shape(-2, 2, 3), "inputs[0].shape: expected a whole number from 0, got -2"),
    (set_shape(51, 2, 3), "inputs[0].shape: expected at most 50 rows (--max-rows), got 51"),
    (
        set_shape(3, 2, 3),
        "raw_input_contents of inputs[0]: expected 72 bytes for shape [3, 2, 3] FP32, got 48",
    ),
    (
        set_parameter(first_input, "shared_memory_region", string_param="r"),
        "inputs[0]: shared memory is not supported; expected raw or typed contents",
    ),
    (set_parameter(first_input, "empty"), "inputs[0].parameters.empty: expected a value, got none"),
    (
        set_parameter(request_itself, "timeout", string_param="1"),
        "parameters.timeout: expected a whole number from 0, got a string",
    ),
    (
        set_parameter(request_itself, "timeout", double_param=0.5),
        "parameters.timeout: expected a whole number from 0, got 0.5",
    ),
    (
        set_parameter(request_itself, "priority", int64_param=-1),
        "parameters.priority: expected a whole number from 0, got -1",
    ),
    (
        set_parameter(request_itself, "sequence_start", int64_param=1),
        "parameters.sequence_start: expected true or false, got a number",
    ),
    (set_parameter(request_itself, "e" * 50), f"parameters.{'e' * 40}: expected a value, got none"),
    (add_output("absent"), "outputs[0].name: expected one of 'logits' or a gate, got 'absent'"),
    (
        lambda message: (add_output("logits")(message), add_output("logits")(message)),
        "outputs[1].name: expected each output once, got 'logits' twice",
    ),
    (
        add_output("logits", classification=-1),
        "outputs[0].parameters.classification: expected a whole number from 0, got -1",
    ),
    (add_output("logits", shared_memory_region=1), "outputs[0].parameters: shared memory is not supported"),
]


@pytest.mark.parametrize(("change", "text"), RAW_ERRORS, ids=[text[:60] for _, text in RAW_ERRORS])
def test_errors_say_what_was_expected_and_where(change: Callable[[Any], Any], text: str) -> None:
    message = with_inputs(x=X)
    change(message)
    assert error_of(message) == text


def test_errors_of_several_inputs() -> None:
    assert error_of(with_inputs(a=A), PAIR) == "inputs: expected one named 'b', which is missing"
    message = with_inputs(a=A, b=B[:2])
    assert error_of(message, PAIR) == "inputs[1].shape: expected [batch] with batch = 3 as before, got [2]"
    message = with_inputs(a=A, b=B)
    message.raw_input_contents.reverse()
    text = "raw_input_contents of inputs[0]: expected 24 bytes for shape [3, 2] FP32, got 6"
    assert error_of(message, PAIR) == text


@pytest.mark.parametrize(
    ("dtype", "numbers", "text"),
    [
        ("float32", {"fp32_contents": [1, 2]}, "expected 3 values for shape [1, 3], got 2"),
        ("float32", {}, "expected 3 values for shape [1, 3], got 0"),
        ("float32", {"fp64_contents": [1] * 3}, "expected values in fp32_contents, got fp64_contents"),
        (
            "float32",
            {"fp32_contents": [1] * 3, "bytes_contents": [b"a"]},
            "expected values in fp32_contents, got bytes_contents",
        ),
        ("int64", {"int_contents": [1] * 3}, "expected values in int64_contents, got int_contents"),
        ("bool", {"uint_contents": [1] * 3}, "expected values in bool_contents, got uint_contents"),
        ("int8", {"int_contents": [1, 2, 128]}, "expected whole numbers from -128 to 127 (INT8), got 128"),
        (
            "int16",
            {"int_contents": [-32769, 1, 2]},
            "expected whole numbers from -32768 to 32767 (INT16), got -32769",
        ),
        ("uint8", {"uint_contents": [1, 256, 2]}, "expected whole numbers from 0 to 255 (UINT8), got 256"),
        (
            "uint16",
            {"uint_contents": [1, 65536, 2]},
            "expected whole numbers from 0 to 65535 (UINT16), got 65536",
        ),
    ],
)
def test_errors_of_typed_contents(dtype: str, numbers: dict[str, Any], text: str) -> None:
    message = InferRequest(model_name="m")
    datatype = {"float32": "FP32"}.get(dtype, dtype.upper())
    message.inputs.add(name="x", datatype=datatype, shape=[1, 3], contents=numbers)
    model = signature(Tensor("x", dtype, ("batch", 3)))
    assert error_of(message, model) == f"inputs[0].contents: {text}"


def test_raw_booleans_are_0_or_1() -> None:
    message = with_inputs(x=np.array([[True, False]]))
    message.raw_input_contents[0] = b"\x01\x02"
    text = "raw_input_contents of inputs[0]: expected bytes of 0 or 1 (BOOL), got another"
    assert error_of(message, signature(Tensor("x", "bool", ("batch", 2)))) == text


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (with_texts(["a", "b"], (1,)), "raw_input_contents of inputs[0]: expected 1 strings, got more"),
        (with_texts(["a", "b"], (3,)), "raw_input_contents of inputs[0]: expected 3 strings, got 2"),
        (with_texts(["a"], (2,), typed=True), "inputs[0].contents: expected 2 strings, got 1"),
        (
            with_texts(["a", b"b\xff"], (2,)),
            "raw_input_contents of inputs[0][1]: expected UTF-8, got b'\\xff' at offset 1",
        ),
        (
            with_texts([b"\xff"], (1,), typed=True),
            "inputs[0].contents[0]: expected UTF-8, got b'\\xff' at offset 0",
        ),
        (with_texts(["a"], (1, 2)), "inputs[0].shape: expected [texts] or [texts, 1] for BYTES, got [1, 2]"),
        (with_texts(["a"], ()), "inputs[0].shape: expected [texts] or [texts, 1] for BYTES, got []"),
        (with_texts(["a"], (-1,)), "inputs[0].shape: expected a whole number from 0, got -1"),
        (with_texts(["a"] * 51, (51,)), "inputs[0].shape: expected at most 50 rows (--max-rows), got 51"),
        (
            with_inputs(ids=np.ones((1, 2, 3), np.int32)),
            "inputs[0].datatype: expected INT64 or BYTES, got 'INT32'",
        ),
    ],
)
def test_errors_of_texts(message: Any, text: str) -> None:
    assert error_of(message, TEXTS) == text


def test_only_some_models_take_texts() -> None:
    model = signature(Tensor("ids", "int64", ("batch", "words", 3)))
    assert error_of(with_texts(["a"], (1,)), model) == "inputs[0].datatype: expected INT64, got 'BYTES'"


def test_ids_of_texts_fit_the_other_inputs() -> None:
    """The model's texts have two words."""
    mask = Tensor("mask", "int64", ("batch", "words"))
    model = replace(signature(mask, *TEXTS.inputs.values()), text=TEXTS.text)
    message = with_inputs(mask=np.ones((1, 5), np.int64))
    del message.raw_input_contents[:]
    message.inputs[0].contents.int64_contents.extend([1] * 5)
    message.inputs.append(with_texts(["a"], (1,), typed=True).inputs[0])
    text = "inputs[1].shape: expected [batch, words, 3] with words = 5 as before, got [1, 2, 3]"
    assert error_of(message, model) == text


def test_a_named_dimension_has_one_size() -> None:
    """Here the lengths of two inputs."""
    model = signature(Tensor("a", "int64", ("batch", "time")), Tensor("b", "int64", ("batch", "time")))
    short, long = np.ones((1, 2), np.int64), np.ones((1, 3), np.int64)
    message = with_inputs(a=short, b=long)
    assert error_of(message, model).startswith("inputs[1].shape: expected")
