"""JSON that came from outside: parsed once, and read as what was expected or refused."""

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

# what is written for them by those who take JSON lightly
NOT_FINITE = re.compile(rb"[\[,:]\s*-?(NaN|Inf)")
# no request has as many by right, and to look at them takes the time of all others
MOST_KEYS = 1000
SCALARS = str | int | float | bool

NESTING = b'[]{}"'
NOT_NESTING = bytes(set(range(256)) - set(NESTING))
# how much deeper a byte leads
STEPS = np.zeros(256, np.int8)
STEPS[list(b"[{")] = 1
STEPS[list(b"]}")] = -1


def parse(text: bytes) -> JsonObject:
    """The JSON object of a text; what lies in it is read on demand."""
    try:
        # a parser of its own for each text: one in use again must not be while any part of the last lives
        document = Parser().parse(text)
    except UnicodeDecodeError as error:
        raise RequestError("body: expected JSON in UTF-8, got bytes that are no UTF-8") from error
    except ValueError as error:
        if NOT_FINITE.search(text):
            raise RequestError(
                "body: expected JSON, which has no NaN and no Infinity; the binary form takes them"
            ) from error
        raise RequestError(
            "body: expected a JSON object whose numbers fit into 64 bits, got something that is none"
        ) from error
    except RuntimeError as error:
        raise RequestError(
            "body: expected a JSON object whose numbers fit into 64 bits, not nested without end"
        ) from error
    return expect_object(document, "body")


def expect_short(text: bytes, most: int) -> None:
    """Stop with TooLarge where reading the text would hold up everybody else."""
    if len(text) > most:
        raise TooLargeError(
            f"body: expected at most {most} bytes of JSON, got {len(text)}; binary data may be more"
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
    """A whole number that is not negative; true is no number."""
    if type(value) is not int or value < 0:
        got = value if type(value) in (int, float) else kind(value)
        raise RequestError(f"{where}: expected a whole number from 0, got {got}")
    return value


def expect_flag(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise RequestError(f"{where}: expected true or false, got {kind(value)}")
    return value


def keys(node: JsonObject, where: str) -> list[str]:
    """The keys of an object, none of them twice.

    A key that is looked up and not there costs more than all of parsing, so look here first.
    """
    if len(node) > MOST_KEYS:
        raise RequestError(f"{where}: expected at most {MOST_KEYS} keys, got {len(node)}")
    found = list(node)
    if len(set(found)) != len(found):
        twice = Counter(found).most_common(1)[0][0]
        raise RequestError(f"{where}: expected each key once, got {quoted(twice)} twice")
    return found


def scalars(value: Any, where: str) -> dict[str, Parameter]:
    """The parameters in an object: strings, numbers and booleans by name."""
    node = expect_object(value, where)
    keys(node, where)
    # all at once, since the parser looks for each key from the start
    found: dict[str, Parameter] = to_python(node)
    for key, given in found.items():
        if not isinstance(given, SCALARS):
            raise RequestError(
                f"{where}.{quoted(key)}: expected a string, a number or a boolean, got {kind(given)}"
            )
    return found


def to_python(value: Any) -> Any:
    """A value as lists, dicts and scalars."""
    # the parser's own way to lists writes past their end where they have more than 2**24 values
    return orjson.loads(to_json(value)) if isinstance(value, JsonArray | JsonObject) else value


def to_json(value: Any) -> bytes:
    """A value as JSON again, without spaces."""
    # the parser's stubs call it a str
    return cast(bytes, value.mini) if isinstance(value, JsonArray | JsonObject) else orjson.dumps(value)


def holds_more(text: bytes, byte: bytes, count: int) -> bool:
    """Whether a text holds a byte more than `count` times."""
    # jumping from one to the next is the faster way where there are few
    if count > 8:
        return text.count(byte) > count
    place = -1
    for _ in range(count + 1):
        place = text.find(byte, place + 1)
        if place < 0:
            return False
    return True


def expect_shallow(text: bytes, most: int) -> None:
    """Stop with a RequestError where a JSON text, known to be valid, is nested deeper than it may be."""
    # counted far faster than nested, strings and all: what opens so little cannot be deep
    if text.count(b"[") + text.count(b"{") <= most:
        return
    if (found := nesting(text)) > most:
        raise RequestError(f"body: expected JSON nested at most {most} deep, got {found}")


def nesting(text: bytes) -> int:
    """How deep a JSON text, known to be valid, is nested."""
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = np.frombuffer(text.translate(None, NOT_NESTING), np.uint8)
    # odd between the quotes of a string, whose brackets nest nothing; sums of bytes stay odd when they wrap
    inside = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1
    return int(np.cumsum(STEPS[marks] * (1 - inside), dtype=np.int32).max(initial=0))


def kind(value: Any) -> str:
    """What a value is called in JSON."""
    if value is None:
        return "null"
    if isinstance(value, JsonArray | list):
        return "an array"
    if isinstance(value, JsonObject | dict):
        return "an object"
    return {bool: "a boolean", str: "a string"}.get(type(value), "a number")


def quoted(text: str) -> str:
    """What a caller wrote, quoted and cut to what a sentence can hold."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
