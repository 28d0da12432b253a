"""Fuzz tests of decoding: any bytes are decoded correctly or refused with a message."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.infer_bodies import IDS, ROWS, binary, body, entry, signature
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.infer_request import decode_infer
from turnpike.service.codec.infer_response import encode_infer
from turnpike.service.codec.predict_json import decode_instances
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import (
    FeedLayout,
    InferAnswer,
    InferenceRequest,
    RequestedOutput,
    RequestForm,
)

LIMITS = RequestLimits(max_rows=50, max_depth=8)
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "bool", ("batch",)))
MODELS = [ROWS, IDS, PAIR, signature(Tensor("x", "float16", ("?", "?")), batch="?")]

# as many examples as take one or two seconds
quick = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

NAMES = st.sampled_from(["x", "a", "b", "ids", "logits", "layer00.transform_gate", "", "\0", "y" * 200])
NUMBERS = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 9)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5) | NAMES,
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)
SHAPES = st.lists(st.integers(-1, 4) | st.integers(-(2**64), 2**65), max_size=4)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        ["binary_data_size", "binary_data", "classification", "timeout", "binary_data_output", "p"]
    ),
    st.integers(-1, 30) | VALUES,
    max_size=3,
)
INPUTS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES | VALUES,
        "shape": SHAPES | VALUES,
        "datatype": st.sampled_from(["FP32", "FP16", "INT64", "BOOL", "BYTES", "BF16"]) | VALUES,
        "data": st.lists(NUMBERS, max_size=12) | VALUES,
        "parameters": PARAMETERS | VALUES,
    },
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.lists(INPUTS, max_size=3) | VALUES,
        "outputs": st.lists(
            st.fixed_dictionaries({}, optional={"name": NAMES, "parameters": PARAMETERS | VALUES}), max_size=3
        )
        | VALUES,
        "parameters": PARAMETERS | VALUES,
        "id": st.text(max_size=5) | VALUES,
        "instances": VALUES,
        "more": VALUES,
    },
)


def expect_valid(inference: InferenceRequest, model: Signature) -> None:
    """Check that the decoded request is one that the model accepts."""
    assert inference.feeds.keys() == model.inputs.keys()
    for name, array in inference.feeds.items():
        tensor = model.inputs[name]
        assert array.dtype == tensor.dtype
        assert len(array.shape) == len(tensor.dims)
        assert all(
            size == dim for size, dim in zip(array.shape, tensor.dims, strict=True) if isinstance(dim, int)
        )
        assert array.shape[0] == inference.form.rows <= LIMITS.max_rows
    assert inference.form.outputs
    assert set(inference.form.output_names) <= model.outputs.keys() | model.hidden.keys()


def expect_error_message(error: RequestError) -> None:
    """Check that the message can be sent to a client."""
    said = str(error)
    assert 400 <= error.status < 500
    assert (
        "expected" in said
        or "shared memory" in said
        or "cannot be written in JSON" in said
        or "needs" in said
    )
    assert len(said) < 700
    # an address in memory, unless the client's own text has it
    assert "0x" not in said.partition(", near ")[0]
    assert "_ERROR" not in said


def decode_and_check(content: bytes, header: int | None, model: Signature) -> None:
    try:
        expect_valid(decode_infer(content, header, model, LIMITS, frozenset({"more"})), model)
    except RequestError as error:
        expect_error_message(error)
    try:
        expect_valid(decode_instances(content, model, LIMITS), model)
    except RequestError as error:
        expect_error_message(error)


@quick
@given(st.binary(max_size=60), st.none() | st.integers(0, 70), st.sampled_from(MODELS))
def test_random_bytes_raise_only_declared_errors(
    content: bytes, header: int | None, model: Signature
) -> None:
    """Random bytes behind any header."""
    decode_and_check(content, header, model)


@quick
@given(REQUESTS, st.binary(max_size=30), st.integers(-2, 2), st.booleans(), st.sampled_from(MODELS))
def test_near_valid_requests_raise_only_declared_errors(
    request: Any, tail: bytes, off: int, plain: bool, model: Signature
) -> None:
    """JSON that resembles a request, with a tail and a header that is a few bytes off."""
    text = json.dumps(request).encode()
    decode_and_check(text if plain else text + tail, None if plain else max(0, len(text) + off), model)


@quick
@given(st.data(), st.sampled_from([True, False]))
def test_a_damaged_valid_request_raises_only_declared_errors(data: st.DataObject, as_json: bool) -> None:
    """Bytes of a valid request are changed, removed or repeated."""
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    wanted = {"id": "7", "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}
    header: int | None = None
    if as_json:
        content = body(entry(x.tolist(), 2, 2, 3), **wanted)
    else:
        sized = {"name": "x", "shape": [2, 2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 48}}
        content, header = binary({"inputs": [sized], **wanted}, x.tobytes())
    spoiled = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(spoiled) - 1))
        spoiled[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"[", b"]", b'"', b"-", b"9", b"\0", b"\xff", b"{", b",", b"e", b"\\"])
        )
    decode_and_check(bytes(spoiled), header, ROWS)


@quick
@given(st.data())
def test_nested_data_is_read_as_by_numpy(data: st.DataObject) -> None:
    """Nested data is accepted exactly if NumPy reads an array of that shape from it."""
    element = st.integers(-5, 5) | st.floats(-1e30, 1e30) | st.lists(st.integers(0, 3), max_size=2)
    values = data.draw(
        st.lists(
            st.lists(st.lists(element, min_size=2, max_size=3) | element, min_size=1, max_size=2), max_size=3
        )
        | st.lists(element, max_size=6)
    )
    shape = data.draw(st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(2, 3)))
    model = signature(Tensor("x", "float64", ("batch", "height", "width")))
    try:
        expected = np.array(values, np.float64)
    except ValueError:
        expected = None
    if expected is not None and expected.ndim == 1 and expected.size == np.prod(shape):
        expected = expected.reshape(shape)
    more = data.draw(st.sampled_from([{}, {"other": [[]]}]))
    content = body(entry(values, *shape, datatype="FP64"), **more)
    if expected is None or expected.shape != shape:
        with pytest.raises(RequestError):
            decode_infer(content, None, model, LIMITS)
    else:
        np.testing.assert_array_equal(
            decode_infer(content, None, model, LIMITS).feeds["x"], expected, strict=True
        )


@quick
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_a_response_sent_back_has_the_same_bits(values: list[float]) -> None:
    """Encoding and decoding keep every bit, as JSON and as binary data."""
    array = np.array(values, np.float32)
    model = signature(Tensor("x", "float32", ("batch",)))
    for as_binary in (False, True):
        wanted = (RequestedOutput("x", binary=as_binary),)
        form = RequestForm(len(array), wanted, FeedLayout.of({}))
        text, header = encode_infer(InferAnswer("m", 1, form, [array]))
        answer = json.loads(text[:header])
        again = json.dumps({"inputs": answer["outputs"]}).encode()
        content, length = (again + text[header:], len(again)) if as_binary else (again, None)
        assert decode_infer(content, length, model, LIMITS).feeds["x"].tobytes() == array.tobytes()
