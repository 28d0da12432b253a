"""Reads texts of requests, in whatever form they were sent, and converts them to the ids of the model."""

from __future__ import annotations

from collections.abc import Sequence

from simdjson import Array as JsonArray

from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.codec.json_document import kind
from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.inference_types import Array

# bytes of the number before a string in binary form
LENGTH_BYTES = 4


def expect_text_shape(shape: Sequence[int], where: str) -> int:
    """The number of texts in a tensor of this shape: [texts], or [texts, 1] as some clients send it."""
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        raise RequestError(f"{where}: expected [texts] or [texts, 1] for BYTES, got {list(shape)}")
    return shape[0]


def texts_in_json(data: JsonArray, count: int, where: str) -> list[str]:
    """The texts of a JSON array, or of the arrays of one string that it consists of."""
    # before any value is converted, since there may be millions
    if len(data) != count:
        raise RequestError(f"{where}: expected {count} strings, got {len(data)}")
    nested = count > 0 and type(data[0]) is JsonArray
    texts = []
    for index, item in enumerate(data):
        text, place = item, f"{where}[{index}]"
        if nested:
            if type(item) is not JsonArray or len(item) != 1:
                raise RequestError(f"{place}: expected an array of one string, got {kind(item)}")
            text, place = item[0], f"{place}[0]"
        if type(text) is not str:
            raise RequestError(f"{place}: expected a string, got {kind(text)}")
        texts.append(text)
    return texts


def texts_in_bytes(elements: Sequence[bytes], where: str) -> list[str]:
    """Texts from their bytes in UTF-8."""
    texts = []
    for index, element in enumerate(elements):
        try:
            texts.append(element.decode())
        except UnicodeDecodeError as error:
            raise RequestError(
                f"{where}[{index}]: expected UTF-8, got {element[error.start : error.start + 1]!r} "
                f"at offset {error.start}"
            ) from None
    return texts


def split_elements(data: bytes | memoryview, count: int, where: str) -> list[bytes]:
    """The elements of a BYTES tensor in binary form: each is its length as a u32, and then its bytes."""
    elements: list[bytes] = []
    position, size = 0, len(data)
    while position < size:
        start = position + LENGTH_BYTES
        stop = start + int.from_bytes(data[position:start], "little")
        if start > size or stop > size:
            raise RequestError(
                f"{where}[{len(elements)}]: expected a length of {LENGTH_BYTES} bytes and as many bytes, "
                f"got {size - position} bytes"
            )
        if len(elements) == count:
            raise RequestError(f"{where}: expected {count} strings, got more")
        elements.append(bytes(data[start:stop]))
        position = stop
    if len(elements) != count:
        raise RequestError(f"{where}: expected {count} strings, got {len(elements)}")
    return elements


def text_ids(texts: Sequence[str], encoder: TextEncoder, limits: RequestLimits, where: str) -> Array:
    """The ids of texts, of shape (texts, words, characters)."""
    size = sum(map(len, texts))
    if size > limits.max_json_bytes:
        raise TooLargeError(
            f"{where}: expected at most {limits.max_json_bytes} characters of text (--max-json), got {size}"
        )
    size = len(texts) * encoder.row_bytes
    if size > limits.max_ids_bytes:
        words, characters = encoder.row_shape
        raise TooLargeError(
            f"{where}: expected texts whose ids have at most {limits.max_ids_bytes} bytes (--max-body), "
            f"got {len(texts)} texts of {words} x {characters} ids, which are {size}"
        )
    return encoder.encode(texts)
