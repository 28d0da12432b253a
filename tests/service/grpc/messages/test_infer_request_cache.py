"""The fast path of decoding, which cuts a message by hand, agrees with protobuf about every message."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.infer_bodies import ROWS, signature
from tests.support.infer_messages import (
    ID,
    INPUTS,
    LIMITS,
    NAME,
    OUTPUTS,
    PARAMETERS,
    RAW,
    VERSION,
    field,
    outcome,
    tensor,
    with_inputs,
    with_texts,
)
from tests.support.text_models import TEXTS
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.request_templates import MAX_TEMPLATE_BYTES, MAX_TEMPLATES
from turnpike.service.errors import RequestError
from turnpike.service.grpc.messages.descriptors import parse
from turnpike.service.grpc.messages.infer_request import InferRequest, decode_message
from turnpike.service.grpc.messages.infer_request_cache import InferMessageDecoder
from turnpike.service.grpc.messages.infer_response import varint
from turnpike.service.inference_types import InferenceRequest

X = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "int16", ("batch",)))
FLAGS = signature(Tensor("x", "bool", ("batch", 2)))
GOOD = with_inputs(x=X).SerializeToString()
TYPED = with_inputs(typed=True, x=X).SerializeToString()


def length(number: int, size: int) -> bytes:
    """A length in more bytes than it needs."""
    digits = [number >> 7 * index & 127 for index in range(size)]
    return bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])


class Both:
    """The decoder with its cache, beside protobuf's parser and the decoder of parsed messages."""

    def __init__(self) -> None:
        self.messages = InferMessageDecoder(LIMITS, lambda request, model: None)

    def agree(self, data: bytes, model: Signature = ROWS, serial: int = 0) -> None:
        """Both must give the same request, or the same error."""

        def fast() -> InferenceRequest:
            return self.messages.decode(self.messages.split(data), model, serial)

        def slow() -> InferenceRequest:
            return decode_message(parse(InferRequest, data), model, LIMITS)

        assert outcome(fast) == outcome(slow)
        try:
            parsed = parse(InferRequest, data)
        except RequestError:
            return
        opened = self.messages.split(data)
        assert (opened.model_name, opened.id.decode()) == (parsed.model_name, parsed.id)
        assert opened.model_version == (parsed.model_version or None)


BOTH = Both()

fields = st.one_of(
    st.sampled_from(
        [
            field(NAME, b"m"),
            field(NAME, b"other"),
            field(NAME, b"\xff"),
            field(VERSION, b"1"),
            field(VERSION, b""),
            field(ID, b"seven"),
            field(ID, "zwölf".encode()),
            field(ID, b"\xc3"),
            field(ID, b""),
            field(PARAMETERS, field(1, b"timeout") + field(2, b"\x10\x05")),
            field(PARAMETERS, b"\xff"),
            tensor(X),
            tensor(X[:1]),
            tensor(X, name="y"),
            field(INPUTS, b"\x0a\x05"),
            field(OUTPUTS, field(1, b"logits")),
            field(OUTPUTS, field(1, b"absent")),
            field(RAW, X.tobytes()),
            field(RAW, X[:1].tobytes()),
            field(RAW, b""),
            # later fields of the protocol, of each wire type
            field(8, b"later"),
            field(100, b"later"),
            field(9, b"\x01", wire_type=0),
            field(9, b"12345678", wire_type=1),
            field(9, b"1234", wire_type=5),
            # with an id inside, where the hand would look if it took the number for one byte
            field(100, b"12345" + field(ID, b"inner")),
            # known fields of a wrong wire type, and a group
            field(NAME, b"\x01", wire_type=0),
            field(RAW, b"1234", wire_type=5),
            b"\x3b\x3c",
            # number 0, which protobuf does not have
            b"\x02\x01a",
            # lengths in more bytes than they need, and too many
            b"\x0a\x81\x00m",
            b"\x0a\x81\x80\x80\x80\x80\x00m",
            b"\x0a\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00m",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x3a\xff\xff\xff\xff\x0f",
            b"\x3a" + length(len(X.tobytes()), 5) + X.tobytes(),
            b"\x3a" + length(len(X.tobytes()), 6) + X.tobytes(),
            b"\x3a" + length(len(X.tobytes()), 11) + X.tobytes(),
            b"\x1a" + length(1, 11) + b"a",
        ]
    ),
    st.binary(max_size=6),
)


@settings(max_examples=800, deadline=None)
@given(st.lists(fields, max_size=8), st.integers(0, 400))
def test_fields_in_any_order(parts: list[bytes], end: int) -> None:
    """Repeated, unknown, damaged and cut off. The cache has what the examples before left there."""
    data = b"".join(parts)
    BOTH.agree(data)
    BOTH.agree(data[:end])


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([GOOD, TYPED]), st.lists(st.tuples(st.integers(0, 199), st.integers(0, 255)), max_size=4)
)
def test_changed_bytes_of_valid_messages(data: bytes, changes: list[tuple[int, int]]) -> None:
    """Also those that change a length or a shape."""
    changed = bytearray(data)
    for position, byte in changes:
        changed[position % len(changed)] = byte
    BOTH.agree(bytes(changed))


@pytest.mark.parametrize("end", range(len(GOOD) + 1))
def test_messages_that_are_cut_off(end: int) -> None:
    """The cache has the whole message."""
    both = Both()
    both.agree(GOOD)
    both.agree(GOOD[:end])


@pytest.mark.parametrize("request_id", [b"", b"a", "ä".encode(), b"\xff", b"a" * 200])
def test_the_id_is_checked_in_cached_forms_too(request_id: bytes) -> None:
    """It would make the answer unreadable if it were not UTF-8."""
    both = Both()
    both.agree(GOOD)
    data = field(NAME, b"m") + field(ID, request_id) + tensor(X) + field(RAW, X.tobytes())
    for _ in range(2):
        both.agree(data)


def test_a_cached_form_is_that_of_its_model() -> None:
    """The same bytes mean something else for a model with other tensors, or of another serial number."""
    both = Both()
    for model, serial in ((ROWS, 0), (PAIR, 1), (ROWS, 0), (FLAGS, 2), (PAIR, 1)):
        for data in (
            GOOD,
            with_inputs(a=np.ones((2, 2), np.float32), b=np.ones(2, np.int16)).SerializeToString(),
        ):
            both.agree(data, model, serial)


def test_sizes_are_checked_in_cached_forms_too() -> None:
    """The form has the shape, and the bytes of the tensor are another field."""
    both = Both()
    both.agree(GOOD)
    form = GOOD[: -len(field(RAW, X.tobytes()))]
    for raw in (X[:1].tobytes(), X.tobytes() + b"\0", b""):
        both.agree(form + field(RAW, raw))
    for size in (5, 6, 11):
        both.agree(form + b"\x3a" + length(X.nbytes, size) + X.tobytes())
    # a byte fewer than the length says
    both.agree(form + b"\x3a" + varint(X.nbytes + 1) + X.tobytes())
    both.agree(form)
    both.agree(form + field(RAW, X.tobytes()) * 2)


def test_booleans_are_checked_in_each_message() -> None:
    """Their forms are not kept, because their bytes can be wrong."""
    both = Both()
    message = with_inputs(x=np.array([[True, False]]))
    both.agree(message.SerializeToString(), FLAGS)
    message.raw_input_contents[0] = b"\x01\x07"
    both.agree(message.SerializeToString(), FLAGS)


def test_the_ids_of_texts_are_not_remembered() -> None:
    """Though they may by chance have as many bytes as the texts."""
    both = Both()
    ids_of_one = 2 * 3 * 8
    for text in ("A" * (ids_of_one - 4), "B" * (ids_of_one - 4), "C"):
        both.agree(with_texts([text], (1,)).SerializeToString(), TEXTS)
        both.agree(with_texts([text], (1,), typed=True).SerializeToString(), TEXTS)


def test_what_is_cached_is_bounded() -> None:
    """In number and in size; forms of typed tensors are as many as requests, and none is kept."""
    messages = InferMessageDecoder(LIMITS, lambda request, model: None)
    for number in range(MAX_TEMPLATES + 10):
        message = with_inputs(x=X, model=f"m{number}")
        messages.decode(messages.split(message.SerializeToString()), ROWS, 0)
        assert 0 < len(messages._models) <= MAX_TEMPLATES
        assert 0 < len(messages._templates) <= MAX_TEMPLATES
    # fields behind the tensors would take them into the form
    assert messages.split(GOOD + field(OUTPUTS, field(1, b"logits"))).form is None
    for message in (with_inputs(typed=True, x=X), with_inputs(x=X, model="m" * MAX_TEMPLATE_BYTES)):
        messages = InferMessageDecoder(LIMITS, lambda request, model: None)
        messages.decode(messages.split(message.SerializeToString()), ROWS, 0)
        assert not messages._models
        assert not messages._templates


def test_tensors_are_aligned_wherever_they_begin() -> None:
    """Each model name moves the tensor by a byte."""
    messages = InferMessageDecoder(LIMITS, lambda request, model: None)
    for length in range(1, 9):
        for _ in range(2):
            data = with_inputs(x=X, model="m" * length).SerializeToString()
            feed = messages.decode(messages.split(data), ROWS, 0).feeds["x"]
            assert feed.flags.aligned
            assert feed.tolist() == X.tolist()


def test_a_request_that_the_check_refuses_is_refused_each_time() -> None:
    def refuse(request: InferenceRequest, model: Signature) -> None:
        raise RequestError("too large")

    messages = InferMessageDecoder(LIMITS, refuse)
    for _ in range(2):
        with pytest.raises(RequestError, match="too large"):
            messages.decode(messages.split(GOOD), ROWS, 0)
