"""Messages read as protobuf itself writes them."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.artifact.protobuf import Field, MalformedError, fields, unpack_varints


def test_every_kind_of_field_is_read() -> None:
    """Whole numbers, bytes, and those of four and eight bytes, in order and in place."""
    attribute = onnx.AttributeProto(name="a", i=-1, f=1.0)
    message = attribute.SerializeToString() + b"\x79" + bytes(8)
    assert {field.number: field.value for field in fields(memoryview(message))} == {
        1: b"a",
        2: b"\0\0\x80\x3f",
        3: -1,
        15: bytes(8),
    }


@pytest.mark.parametrize(
    "message",
    [b"\x0a", b"\x0a\x05abc", b"\x08", b"\x80" * 11, b"\x0d\0\0", b"\x0b\x0c", b"\x00\x00", b"\x02\x00"],
)
def test_what_is_cut_or_no_message_is_said(message: bytes) -> None:
    """Rather than read beyond its end."""
    with pytest.raises(MalformedError):
        list(fields(memoryview(message)))


def test_a_length_cannot_lead_backwards() -> None:
    """A negative one would be read for ever."""
    backwards = b"\x0a" + b"\xf6\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    with pytest.raises(MalformedError, match="it ends too early"):
        list(fields(memoryview(backwards)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_are_protobuf_s_own(numbers: list[int]) -> None:
    """Of any size and sign, as the real protobuf writes them."""
    written = onnx.TensorProto(int64_data=numbers).SerializeToString()
    packed = next((field.value for field in fields(memoryview(written))), memoryview(b""))
    assert isinstance(packed, memoryview)
    assert unpack_varints(packed) == numbers


@given(st.binary())
def test_any_bytes_are_fields_or_an_error(message: bytes) -> None:
    """And fields lie one after another within them."""
    try:
        found = list(fields(memoryview(message)))
    except MalformedError:
        return
    assert all(isinstance(field, Field) and field.number > 0 for field in found)
    assert sum(len(field.value) for field in found if isinstance(field.value, memoryview)) <= len(message)
