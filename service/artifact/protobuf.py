"""Reads protobuf messages without the onnx package, and computes the content digest of a model file.

A message is a sequence of fields. Each field has a key (field number and wire type) and a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

# wire types
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# field number of `ModelProto.metadata_props`
METADATA_FIELD = 14


class MalformedError(ValueError):
    """The bytes are not a valid protobuf message."""


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
