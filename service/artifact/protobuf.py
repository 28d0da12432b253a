"""Messages as protobuf writes them: a row of fields, each a key (number and wire type) and a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

# wire types
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class MalformedError(ValueError):
    """These bytes are no message."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number, and a whole number or the bytes of it."""

    number: int
    value: int | memoryview


def fields(message: memoryview) -> Iterator[Field]:
    """All fields, in order; values are looked at in place, not copied."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if number < 1:
            raise MalformedError(f"a field has the number {number}")
        if wire == VARINT:
            value, at = _varint(message, at)
            yield Field(number, value)
            continue
        if wire == BYTES:
            size, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise MalformedError(f"wire type {wire} is none of protobuf's")
        if not 0 <= size <= end - at:
            raise MalformedError("it ends too early")
        yield Field(number, message[at : at + size])
        at += size


def submessages(message: memoryview, *numbers: int) -> Iterator[memoryview]:
    """The messages in some fields of a message."""
    for field in fields(message):
        if field.number in numbers and isinstance(field.value, memoryview):
            yield field.value


def unpack_varints(packed: memoryview) -> list[int]:
    """Whole numbers that are written one after another."""
    values, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        values.append(value)
    return values


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A whole number with a sign, of one to ten bytes with seven bits each, and where it ends."""
    # most are so small that they take one byte
    if at < len(message) and (value := message[at]) < 0x80:
        return value, at + 1
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64) if value >> 63 else value, at + place + 1
    raise MalformedError("it ends too early")


METADATA_FIELD = 14


def content_digest(data: bytes | memoryview) -> str:
    """SHA-256 of every field of the file but its metadata, in order; a MalformedError of what is no file."""
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
