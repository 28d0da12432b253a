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

from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.inference_types import Parameter

# Bytes of an invalid text that is parsed once more to find the position of the error, which takes less than
# 10 ms. The error of a longer text has no position.
MAX_EXPLAINED_BYTES = 1 << 20
# bytes that are searched for a number that is too large, in less than 10 ms
MAX_SEARCHED_BYTES = 1 << 16
# characters that are quoted from the position of an error on
MAX_NEAR_LENGTH = 20
# spellings of NaN and Infinity that some clients write although JSON has none, behind their sign
NOT_FINITE = re.compile(r"(?:[Nn]a[Nn]|[Ii]nf(?:inity)?)\b")
# strings, which are passed over even if cut off, and whole numbers that may be too large for 64 bits
STRING_OR_LONG_NUMBER = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|(?<![\d.eE+-])-?\d{19,}(?![\d.eE])', re.DOTALL
)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# keys of one object: more than any valid request has, and few enough to be checked quickly
MAX_KEYS = 1000
SCALARS = str | int | float | bool
# stands for the value of a key that an object lacks
MISSING = object()

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
        raise RequestError(f"body: expected JSON in UTF-8, got other bytes{_undecodable(text)}") from error
    except (ValueError, RuntimeError) as error:
        raise _parse_error(text, str(error)) from error
    return expect_object(document, "body")


def _parse_error(text: bytes, reason: str) -> RequestError:
    """The error for a text that simdjson refused, for a reason that begins with its error code."""
    if not text.strip():
        return RequestError("body: expected a JSON object, got an empty body")
    if reason.startswith("DEPTH_ERROR"):
        return RequestError("body: expected JSON nested less deeply (--max-depth), got over 1000 levels")
    is_number = reason.startswith("BIGINT_ERROR")
    if len(text) <= MAX_EXPLAINED_BYTES and not is_number:
        try:
            orjson.loads(text.removeprefix(BYTE_ORDER_MARK))
        except orjson.JSONDecodeError as fault:
            return syntax_error(fault)
        # valid JSON, but orjson reads whole numbers of any size
        is_number = reason.startswith("NUMBER_ERROR")
    if is_number:
        return RequestError(
            f"body: expected numbers that fit into 64 bits, got a larger one{_large_number(text)}"
        )
    return RequestError(
        f"body: expected valid JSON, got an error somewhere in {len(text)} bytes; "
        f"bodies of up to {MAX_EXPLAINED_BYTES} bytes are searched"
    )


def _undecodable(text: bytes) -> str:
    """The position of the first bytes that are not UTF-8, in words."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f", {text[error.start : error.start + 1]!r} at offset {error.start}"
    return ""


def _large_number(text: bytes) -> str:
    """Position and beginning of the first whole number over 64 bits; empty if none is found soon."""
    for match in STRING_OR_LONG_NUMBER.finditer(text, 0, MAX_SEARCHED_BYTES):
        number = match[0]
        if number[:1] == b'"' or (len(number) <= 20 and -(2**63) <= int(number) < 2**64):
            continue
        line_start = text.rfind(b"\n", 0, match.start()) + 1
        line = text.count(b"\n", 0, line_start) + 1
        column = len(text[line_start : match.start()].decode()) + 1
        return f" at line {line}, column {column}: {quoted(number[:MAX_NEAR_LENGTH].decode())}"
    return ""


def syntax_error(fault: orjson.JSONDecodeError) -> RequestError:
    """The error for a text that orjson refused."""
    text, position = fault.doc, fault.pos
    if fault.msg.startswith(("depth limit", "failed to allocate")):
        # a limit of orjson, so the position is not where the text is wrong
        return RequestError("body: expected valid JSON, got something else")
    where = f"at line {fault.lineno}, column {fault.colno}"
    if position >= len(text):
        return RequestError(f"body: expected valid JSON, got only a part, which ends {where}")
    if NOT_FINITE.match(text, position):
        return RequestError(
            f"body: expected JSON, which has no NaN and no Infinity, got one {where}; "
            "send them as binary data"
        )
    near = quoted(text[position : position + MAX_NEAR_LENGTH])
    if fault.msg.startswith("number is infinity"):
        return RequestError(f"body: expected numbers that fit into 64 bits, got a larger one {where}: {near}")
    return RequestError(f"body: expected valid JSON, got an error {where}, near {near}")


def expect_short(text: bytes, max_bytes: int) -> None:
    """Raise TooLargeError if parsing the text would delay all other requests."""
    if len(text) > max_bytes:
        raise TooLargeError(
            f"body: expected at most {max_bytes} bytes of JSON (--max-json), got {len(text)}; "
            "binary data may be more"
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
        raise RequestError(f"body: expected JSON nested at most {max_depth} deep (--max-depth), got {depth}")


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
    if value is MISSING:
        return "no such key"
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
