"""Encoding ModelInferResponse: what protobuf reads is what was written."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.support.infer_messages import every_array
from turnpike.common.datatypes import DATATYPES
from turnpike.service.errors import NotFiniteError
from turnpike.service.grpc.messages.infer_request import CONTENT_FIELDS
from turnpike.service.grpc.messages.infer_response import (
    InferResponse,
    RawAnswers,
    encode_raw,
    encode_response,
    varint,
    with_id,
)
from turnpike.service.inference_types import (
    Array,
    FeedLayout,
    InferAnswer,
    RequestedOutput,
    RequestForm,
)

ARRAYS = every_array()
LOGITS = np.array([[0.5, 3.3, -1, 2], [1, 1, 0, 0.25]], np.float32)
HALF = np.array([[1, 2], [3, 65504]], np.float16)


def form_of(*outputs: RequestedOutput, rows: int = 2) -> RequestForm:
    return RequestForm(rows, outputs, FeedLayout(rows, 0, ()))


def encoded(*pairs: tuple[RequestedOutput, Array], labels: tuple[str, ...] = ()) -> Any:
    """The message for these outputs with their arrays, as protobuf reads it."""
    form = form_of(*(output for output, _ in pairs))
    answer = InferAnswer("net", 3, form, [array for _, array in pairs], labels)
    return InferResponse.FromString(encode_response(answer))


@pytest.mark.parametrize("dtype", DATATYPES)
def test_raw_tensors_of_every_datatype(dtype: str) -> None:
    """By all three ways to write them."""
    array = ARRAYS[dtype]
    answers = RawAnswers("net", 3, ("y",))
    written = [
        encoded((RequestedOutput("y", binary=True), array)),
        InferResponse.FromString(encode_raw("net", 3, [("y", array)])),
        InferResponse.FromString(answers.process({"y": array}, 2, 1)[0]),
    ]
    for message in written:
        assert (message.model_name, message.model_version, message.id) == ("net", "3", "")
        (entry,) = message.outputs
        assert (entry.name, entry.datatype, list(entry.shape)) == ("y", DATATYPES[dtype], [2, 3])
        assert list(message.raw_output_contents) == [array.tobytes()]
        assert not entry.HasField("contents")


@pytest.mark.parametrize("dtype", [dtype for dtype in DATATYPES if dtype != "float16"])
def test_typed_tensors_of_every_datatype(dtype: str) -> None:
    """In the field of the datatype, and only there."""
    array = ARRAYS[dtype]
    message = encoded((RequestedOutput("y"), array))
    (entry,) = message.outputs
    ((descriptor, values),) = entry.contents.ListFields()
    assert descriptor.name == CONTENT_FIELDS[dtype]
    assert np.array(values, dtype).tobytes() == array.tobytes()
    assert not message.raw_output_contents


def test_one_fp16_output_makes_all_raw() -> None:
    """Clients read either the raw tensors of a message or its typed ones."""
    message = encoded((RequestedOutput("half"), HALF), (RequestedOutput("y"), LOGITS))
    assert list(message.raw_output_contents) == [HALF.tobytes(), LOGITS.tobytes()]
    assert [entry.datatype for entry in message.outputs] == ["FP16", "FP32"]
    assert not any(entry.HasField("contents") for entry in message.outputs)


def test_classes_of_an_fp16_output_are_typed() -> None:
    """They are strings, which have a typed field."""
    message = encoded((RequestedOutput("half", classes=1), HALF))
    assert list(message.outputs[0].contents.bytes_contents) == [b"2.000000:1", b"65504.000000:1"]


@pytest.mark.parametrize("binary", [True, False])
def test_classes_are_strings(binary: bool) -> None:
    """Value, index and label of the best, as of Triton. Raw, each has its length before it."""
    message = encoded(
        (RequestedOutput("y", binary=binary, classes=2), LOGITS),
        (RequestedOutput("z", binary=binary), LOGITS),
        labels=("a", "b", "ü", "d"),
    )
    classes, values = message.outputs
    strings = [b"3.300000:1:b", b"2.000000:3:d", b"1.000000:0:a", b"1.000000:1:b"]
    assert (classes.datatype, list(classes.shape)) == ("BYTES", [2, 2])
    if binary:
        raw = b"".join(len(string).to_bytes(4, "little") + string for string in strings)
        assert list(message.raw_output_contents) == [raw, LOGITS.tobytes()]
    else:
        assert list(classes.contents.bytes_contents) == strings
        assert np.array_equal(np.array(values.contents.fp32_contents, np.float32), LOGITS.ravel())


def test_labels_may_be_any_text() -> None:
    message = encoded(
        (RequestedOutput("y", classes=1), np.array([[0.0, 1.0]], np.float32)), labels=("a", "grün:1")
    )
    assert list(message.outputs[0].contents.bytes_contents) == ["1.000000:1:grün:1".encode()]


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_nothing_is_the_best_of_nan(number: float) -> None:
    array = np.array([[0, number]], np.float32)
    with pytest.raises(NotFiniteError, match="outputs: 'y' has NaN or Inf among its values"):
        encoded((RequestedOutput("y", classes=1), array))
    # as numbers they can be sent
    assert encoded((RequestedOutput("y", binary=True), array)).raw_output_contents[0] == array.tobytes()
    typed = encoded((RequestedOutput("y"), array)).outputs[0].contents.fp32_contents
    assert np.array(typed, np.float32).tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(0, 4), (1,), (), (2, 0, 3)])
def test_shapes_without_rows_or_dimensions(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    for message in (
        encoded((RequestedOutput("y", binary=True), array)),
        InferResponse.FromString(RawAnswers("net", 3, ("y",)).process({"y": array}, 1, 1)[0]),
        InferResponse.FromString(
            RawAnswers("net", 3, ("y", "z")).process({"y": array, "z": LOGITS}, 1, 1)[0]
        ),
    ):
        assert tuple(message.outputs[0].shape) == shape
        assert message.raw_output_contents[0] == array.tobytes()


def test_the_answers_of_a_shared_run_are_those_of_single_runs() -> None:
    """Three requests of two rows each, with one output and with two."""
    run = {
        "y": np.arange(24, dtype=np.float32).reshape(6, 4),
        "z": np.arange(12, dtype=np.int64).reshape(6, 2),
    }
    for names in (("y",), ("z", "y")):
        answers = RawAnswers("net", 3, names).process(run, 2, 3)
        for index, answer in enumerate(answers):
            part = {name: run[name][2 * index : 2 * index + 2] for name in names}
            assert answer == encode_raw("net", 3, list(part.items()))
            message = InferResponse.FromString(answer)
            assert [entry.name for entry in message.outputs] == list(names)
            assert list(message.raw_output_contents) == [array.tobytes() for array in part.values()]


def test_only_raw_numbers_are_written_for_a_whole_run() -> None:
    raw, typed = RequestedOutput("y", binary=True), RequestedOutput("y")
    assert RawAnswers.of("net", 3, form_of(raw)) == RawAnswers("net", 3, ("y",))
    assert RawAnswers.of("net", 3, form_of(typed)) is None
    assert RawAnswers.of("net", 3, form_of(raw, RequestedOutput("z", binary=True, classes=2))) is None


@pytest.mark.parametrize("request_id", ["", "seven", "zwölf", "x" * 200, "x" * 20_000])
def test_the_id_is_added_at_the_end(request_id: str) -> None:
    """A response may be for several requests, which differ only in their ids."""
    answer = encode_raw("net", 3, [("y", LOGITS)])
    message = InferResponse.FromString(with_id(answer, request_id.encode()))
    assert message.id == request_id
    assert message.raw_output_contents[0] == LOGITS.tobytes()


def test_raw_tensors_are_written_without_lists_of_numbers() -> None:
    """A list of floats would take eight times as much memory as the tensor."""
    array = np.ones((2, 250_000), np.float32)
    tracemalloc.start()
    try:
        RawAnswers("net", 3, ("y",)).process({"y": array}, 2, 1)
        encode_raw("net", 3, [("y", array)])
        assert tracemalloc.get_traced_memory()[1] < 4 * array.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16384, b"\x80\x80\x01"),
        (2**32, b"\x80\x80\x80\x80\x10"),
    ],
)
def test_lengths_as_protobuf_writes_them(number: int, data: bytes) -> None:
    assert varint(number) == data
