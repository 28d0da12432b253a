"""Checked access to JSON from clients: a value has the expected type, or a RequestError says what it is."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, cast

import numpy as np
import orjson
from simdjson import Array as JsonArray
from simdjson import Object as JsonObject
from simdjson import Parser

from service.errors import RequestError, TooLargeError
from service.inference_types import Parameter

# spellings of NaN and Infinity that some clients write although JSON has none
NOT_FINITE = re.compile(rb"[\[,:]\s*-?(NaN|Inf)")
# keys of one object: more than any valid request has, and few enough to be checked quickly
MAX_KEYS = 1000
SCALARS = str | int | float | bool

NESTING = b'[]{}"'
NOT_NESTING = bytes(set(range(256)) - set(NESTING))
# change of nesting depth at each byte
DEPTH_STEPS = np.zeros(256, np.int8)
DEPTH_STEPS[list(b"[{")] = 1
DEPTH_STEPS[list(b"]}")] = -1


def parse(text: bytes) -> JsonObject:
    """Parse a JSON object; its values are converted on demand."""
    try:
        # a new parser for each text: a parser must not be used again as long as any value of its last text
        # lives
        document = Parser().parse(text)
    except UnicodeDecodeError as error:
        raise RequestError("body: expected JSON in UTF-8, got bytes that are not UTF-8") from error
    except ValueError as error:
        if not text:
            raise RequestError("body: expected a JSON object, got an empty body") from error
        if NOT_FINITE.search(text):
            raise RequestError(
                "body: expected JSON, which has no NaN and no Infinity; send them as binary data"
            ) from error
        raise RequestError(
            "body: expected a JSON object whose numbers fit into 64 bits, got something else"
        ) from error
    except RuntimeError as error:
        raise RequestError(
            "body: expected a JSON object whose numbers fit into 64 bits, nested less deeply"
        ) from error
    return expect_object(document, "body")


def expect_short(text: bytes, max_bytes: int) -> None:
    """Raise TooLargeError if parsing the text would delay all other requests."""
    if len(text) > max_bytes:
        raise TooLargeError(
            f"body: expected at most {max_bytes} bytes of JSON, got {len(text)}; binary data may be more"
        )


def expect_object(value: Any, where: str) -> JsonObject:
    if type(value) is not JsonObject:
        raise RequestError(f"{where}: expected an object, got {kind(value)}")
    return value


def expect_array(value: Any, where: str) -> JsonArray:
    if type(value) is not JsonArray:
        raise RequestError(f"{where}: expected an array, got {kind(value)}")
    return value


def expect_text(value: Any, where: str) -> str:
    if type(value) is not str:
        raise RequestError(f"{where}: expected a string, got {kind(value)}")
    return value


def expect_whole(value: Any, where: str) -> int:
    """A whole number from 0 on; true and false do not count as numbers."""
    if type(value) is not int or value < 0:
        got = value if type(value) in (int, float) else kind(value)
        raise RequestError(f"{where}: expected a whole number from 0, got {got}")
    return value


def expect_flag(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise RequestError(f"{where}: expected true or false, got {kind(value)}")
    return value


def keys(node: JsonObject, where: str) -> list[str]:
    """The keys of an object; raises RequestError if one comes twice.

    Check here before you access a key: looking up a missing one takes longer than parsing the whole text.
    """
    if len(node) > MAX_KEYS:
        raise RequestError(f"{where}: expected at most {MAX_KEYS} keys, got {len(node)}")
    names = list(node)
    if len(set(names)) != len(names):
        duplicate = Counter(names).most_common(1)[0][0]
        raise RequestError(f"{where}: expected each key once, got {quoted(duplicate)} twice")
    return names


def scalars(value: Any, where: str) -> dict[str, Parameter]:
    """An object whose values are strings, numbers and booleans, as a dict."""
    node = expect_object(value, where)
    keys(node, where)
    # all at once: the parser would search for each key from the start
    parameters: dict[str, Parameter] = to_python(node)
    for key, parameter in parameters.items():
        if not isinstance(parameter, SCALARS):
            raise RequestError(
                f"{where}.{quoted(key)}: expected a string, a number or a boolean, got {kind(parameter)}"
            )
    return parameters


def to_python(value: Any) -> Any:
    """Convert a value to lists, dicts and scalars."""
    # not by the parser's own as_list(): for more than 2**24 values it writes past the end of the list
    return orjson.loads(to_json(value)) if isinstance(value, JsonArray | JsonObject) else value


def to_json(value: Any) -> bytes:
    """Convert a value back to JSON, without spaces."""
    # `mini` is bytes, though the parser's stubs say str
    return cast(bytes, value.mini) if isinstance(value, JsonArray | JsonObject) else orjson.dumps(value)


def has_more_than(text: bytes, byte: bytes, count: int) -> bool:
    """Whether a byte occurs more than `count` times in a text."""
    # bytes.find is faster than bytes.count if there are few to find: it jumps from one to the next
    if count > 8:
        return text.count(byte) > count
    position = -1
    for _ in range(count + 1):
        position = text.find(byte, position + 1)
        if position < 0:
            return False
    return True


def expect_shallow(text: bytes, max_depth: int) -> None:
    """Raise RequestError if a valid JSON text is nested too deeply."""
    # Counting brackets is much faster than following them. Few brackets, even in strings, cannot nest deeply.
    if text.count(b"[") + text.count(b"{") <= max_depth:
        return
    if (depth := nesting_depth(text)) > max_depth:
        raise RequestError(f"body: expected JSON nested at most {max_depth} deep, got {depth}")


def nesting_depth(text: bytes) -> int:
    """The nesting depth of a valid JSON text."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = np.frombuffer(text.translate(None, NOT_NESTING), np.uint8)
    # An odd number of quotes so far means inside a string, where brackets do not nest. Overflow of uint8
    # keeps a number odd or even.
    inside = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1
    return int(np.cumsum(DEPTH_STEPS[marks] * (1 - inside), dtype=np.int32).max(initial=0))


def kind(value: Any) -> str:
    """The name of a value's type in JSON, for error messages."""
    if value is None:
        return "null"
    if isinstance(value, JsonArray | list):
        return "an array"
    if isinstance(value, JsonObject | dict):
        return "an object"
    return {bool: "a boolean", str: "a string"}.get(type(value), "a number")


def quoted(text: str) -> str:
    """A client's text in quotes, cut to at most 80 characters, for error messages."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
