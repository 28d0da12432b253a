"""Protobuf messages as protobuf itself writes them, and the digest of a model file without its metadata."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import with_manifest
from turnpike.service.artifact.onnx_file.protobuf import (
    MAX_MODEL_FIELDS,
    Field,
    MalformedError,
    content_digest,
    encode_varint,
    fields,
    read_metadata,
    unpack_varints,
)
from turnpike.service.artifact.runtime import PRODUCT_MODEL, session_options


def test_every_kind_of_field_is_read() -> None:
    """Integers, bytes, and values of four and eight bytes."""
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
def test_invalid_messages_are_errors(message: bytes) -> None:
    """They are cut off or are not protobuf."""
    with pytest.raises(MalformedError):
        list(fields(memoryview(message)))


def test_a_negative_length_is_an_error() -> None:
    """Following it would read forever."""
    backwards = b"\x0a" + b"\xf6\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    with pytest.raises(MalformedError, match="it ends too early"):
        list(fields(memoryview(backwards)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_read_as_protobuf_writes_them(numbers: list[int]) -> None:
    """They may have any size and sign."""
    message = onnx.TensorProto(int64_data=numbers).SerializeToString()
    packed = next((field.value for field in fields(memoryview(message))), memoryview(b""))
    assert isinstance(packed, memoryview)
    assert unpack_varints(packed) == numbers


@given(st.binary())
def test_random_bytes_are_fields_or_an_error(message: bytes) -> None:
    """Fields do not overlap."""
    try:
        parsed = list(fields(memoryview(message)))
    except MalformedError:
        return
    assert all(isinstance(field, Field) and field.number > 0 for field in parsed)
    assert sum(len(field.value) for field in parsed if isinstance(field.value, memoryview)) <= len(message)


def test_the_digest_ignores_metadata() -> None:
    """The manifest, which is metadata, has the digest of the file that it is in."""
    gated = highway()
    assert content_digest(with_manifest(gated)) == content_digest(gated.model)
    assert content_digest(with_manifest(gated, labels=("x", "y", "z"))) == content_digest(gated.model)


def test_the_digest_depends_on_weights_and_operators() -> None:
    """Other weights, another operator and another opset give other digests."""
    gated = highway()
    digests = {content_digest(gated.model), content_digest(highway(seed=7).model)}
    model = onnx.load_from_string(gated.model)
    model.graph.node[0].op_type = "Tanh"
    digests.add(content_digest(model.SerializeToString(deterministic=True)))
    model = onnx.load_from_string(gated.model)
    model.opset_import[0].version += 1
    digests.add(content_digest(model.SerializeToString(deterministic=True)))
    assert len(digests) == 4


def test_the_digest_depends_on_the_borders_of_fields() -> None:
    """The same bytes divided differently are another file."""
    one = b"\x0a\x02ab\x12\x01c"
    other = b"\x0a\x01a\x12\x02bc"
    assert content_digest(one) != content_digest(other)


def test_the_digest_of_an_invalid_file_is_an_error() -> None:
    """The file ends within a field."""
    with pytest.raises(MalformedError):
        content_digest(b"\x0a\x09ab")


def model_with(*entries: tuple[str, str]) -> bytes:
    model = onnx.load_from_string(PRODUCT_MODEL)
    model.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in entries)
    return model.SerializeToString()


@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=9), st.text()))
def test_metadata_is_read_as_the_runtime_reads_it(metadata: dict[str, str]) -> None:
    """Also empty values, and keys that begin alike."""
    data = model_with(*metadata.items())
    session = onnxruntime.InferenceSession(data, session_options(1), providers=["CPUExecutionProvider"])
    expected = session.get_modelmeta().custom_metadata_map
    for key in (*metadata, "absent"):
        value = read_metadata(data, key)
        assert (None if value is None else bytes(value).decode()) == expected.get(key)


def test_the_last_of_repeated_fields_of_an_entry_counts() -> None:
    """As in protobuf. A whole entry that is repeated is refused, as readers differ in which they take."""
    entry = onnx.StringStringEntryProto(key="a", value="1").SerializeToString()
    entry += onnx.StringStringEntryProto(key="b", value="2").SerializeToString()
    data = PRODUCT_MODEL + b"\x72" + encode_varint(len(entry)) + entry
    assert read_metadata(data, "a") is None
    assert bytes(read_metadata(data, "b") or b"") == b"2"
    with pytest.raises(MalformedError, match="its metadata has the key 'a' 2 times"):
        read_metadata(model_with(("a", "1"), ("b", "2"), ("a", "1")), "a")


@pytest.mark.parametrize("inside", [False, True])
def test_the_search_for_metadata_ends(inside: bool) -> None:
    """A file of 2 GiB may have a thousand million fields, in an entry of its metadata too."""
    many = b"\x08\x00" * (MAX_MODEL_FIELDS + 1)
    data = b"\x72" + encode_varint(len(many)) + many if inside else many
    with pytest.raises(MalformedError, match=f"more than {MAX_MODEL_FIELDS} fields"):
        read_metadata(data, "a")
