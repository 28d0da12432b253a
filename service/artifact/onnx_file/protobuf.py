"""Reads protobuf messages without the onnx package: the metadata of a model file, and its content digest.

A message is a sequence of fields. Each field has a key (field number and wire type) and a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from turnpike.service.errors import ModelFileError

# wire types
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# field numbers of `ModelProto`: its graph, opsets and `metadata_props`
GRAPH_FIELD, OPSET_FIELD, METADATA_FIELD = 7, 8, 14
# Fields of a model beside those inside its graph, and of its metadata. A file may have a function for each
# module of its network; with a million, the look at them would take a second.
MAX_MODEL_FIELDS = 100_000


class MalformedError(ValueError):
    """The bytes are not a valid protobuf message."""


def damaged_error(where: str, error: MalformedError) -> ModelFileError:
    """The error for a model file whose bytes are not valid; `where` names the file."""
    return ModelFileError(
        f"{where}: expected an ONNX model: {error}", "its file is damaged or not an ONNX model"
    )


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number, and its value as an integer or as bytes."""

    number: int
    value: int | memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """All fields in order. Values are views of the message, not copies."""
    for number, _, value in raw_fields(message):
        yield Field(number, value)


def raw_fields(message: memoryview) -> Iterator[tuple[int, memoryview, int | memoryview]]:
    """The number of each field in order, all of its bytes, and its value; both are views."""
    position, end = 0, len(message)
    while position < end:
        start = position
        key, position = _varint(message, position)
        number, wire_type = key >> 3, key & 7
        if number < 1:
            raise MalformedError(f"a field has the number {number}")
        if wire_type == VARINT:
            value, position = _varint(message, position)
            yield number, message[start:position], value
            continue
        if wire_type == BYTES:
            size, position = _varint(message, position)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise MalformedError(f"protobuf has no wire type {wire_type}")
        if not 0 <= size <= end - position:
            raise MalformedError("it ends too early")
        value_start, position = position, position + size
        yield number, message[start:position], message[value_start:position]


def submessages(message: memoryview, *numbers: int) -> Iterator[memoryview]:
    """The values of all fields with these numbers that are messages, strings or bytes."""
    for field in fields(message):
        if field.number in numbers and isinstance(field.value, memoryview):
            yield field.value


def expect_graph(data: bytes | memoryview) -> None:
    """Raise MalformedError if a message lacks a field that every ONNX model has."""
    if not {GRAPH_FIELD, OPSET_FIELD} <= {field.number for field in fields(memoryview(data))}:
        raise MalformedError("it has no graph")


def read_metadata(data: bytes | memoryview, key: str) -> memoryview | None:
    """The value of a key in the metadata of a model file; None if it is absent.

    Looks only at the fields of the model itself, so it takes no time however large the graph is.

    Raises:
        MalformedError: The data is no protobuf message, has too many fields, or has the key twice: readers
            differ in which value they take.
    """
    values: list[memoryview] = []
    left = MAX_MODEL_FIELDS

    def counted(message: memoryview) -> Iterator[Field]:
        nonlocal left
        for field in fields(message):
            left -= 1
            if left < 0:
                raise MalformedError(f"it has more than {MAX_MODEL_FIELDS} fields beside those of its graph")
            yield field

    for field in counted(memoryview(data)):
        if field.number == METADATA_FIELD and isinstance(field.value, memoryview):
            # as in protobuf, the last one counts if a field comes twice, and an absent one is empty
            entry = {
                part.number: part.value for part in counted(field.value) if isinstance(part.value, memoryview)
            }
            if entry.get(1, memoryview(b"")) == key.encode():
                values.append(entry.get(2, memoryview(b"")))
    if len(values) > 1:
        raise MalformedError(f"its metadata has the key {key!r} {len(values)} times")
    return values[0] if values else None


def encode_varint(value: int) -> bytes:
    """A whole number from 0 on, seven bits in each byte."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def unpack_varints(packed: memoryview) -> list[int]:
    """The integers of a packed repeated field."""
    values, position = [], 0
    while position < len(packed):
        value, position = _varint(packed, position)
        values.append(value)
    return values


def content_digest(data: bytes | memoryview) -> str:
    """SHA-256 of every field of a model file except its metadata, in the order of the file.

    Raises:
        MalformedError: The data is not a protobuf message.
    """
    digest = sha256()
    for field in fields(memoryview(data)):
        if field.number == METADATA_FIELD:
            continue
        if isinstance(field.value, int):
            digest.update(f"{field.number}={field.value};".encode())
        else:
            digest.update(f"{field.number}:{len(field.value)};".encode())
            digest.update(field.value)
    return digest.hexdigest()


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A signed 64-bit integer in one to ten bytes of seven bits each, and the position after it."""
    # most integers fit into one byte
    if position < len(message) and (value := message[position]) < 0x80:
        return value, position + 1
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64) if value >> 63 else value, position + index + 1
    raise MalformedError("it ends too early")
