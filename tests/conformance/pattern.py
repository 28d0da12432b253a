"""Patterns of answers: what a value of JSON, or a message, must look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.models import DTYPES, Array

# the key must not be there; of a message, the field must be empty
ABSENT = object()
# any value
ANYTHING = object()


@dataclass(frozen=True)
class Numbers:
    """The values of an array, nested in any way."""

    array: Array

    def difference(self, got: Any) -> str | None:
        try:
            array = np.array(list(_flat(got)), self.array.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            return f"expected numbers, got {got!r} ({error})"
        same = array.size == self.array.size and np.array_equal(array, self.array.ravel(), equal_nan=True)
        return None if same else f"expected {self.array.ravel().tolist()}, got {got!r}"


@dataclass(frozen=True)
class Where:
    """A value for which a condition holds, which `text` describes."""

    text: str
    condition: Callable[[Any], bool]

    def difference(self, got: Any) -> str | None:
        return None if self.condition(got) else f"expected {self.text}, got {got!r}"


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def difference(expected: Any, got: Any, where: str = "answer") -> str | None:
    """Where an answer differs from its pattern, in words; None if it does not.

    A dict has a pattern for some keys of an object, or for some fields of a message. A list has a pattern for
    each item. A type stands for any of its values. Anything else must be equal.
    """
    if expected is ANYTHING:
        return None
    if isinstance(expected, Numbers | Where):
        text = expected.difference(got)
        return text and f"{where}: {text}"
    if isinstance(expected, dict):
        return _object_difference(expected, got, where)
    if isinstance(expected, list):
        items = got if isinstance(got, list) else None
        if items is None or len(items) != len(expected):
            return f"{where}: expected {len(expected)} items, got {got!r}"
        texts = (
            difference(part, item, f"{where}[{index}]")
            for index, (part, item) in enumerate(zip(expected, items, strict=True))
        )
        return next((text for text in texts if text), None)
    if isinstance(expected, type):
        return None if type(got) is expected else f"{where}: expected {expected.__name__}, got {got!r}"
    same = type(got) is type(expected) and got == expected
    return None if same else f"{where}: expected {expected!r}, got {got!r}"


def _object_difference(expected: dict[str, Any], got: Any, where: str) -> str | None:
    if not isinstance(got, dict):
        return f"{where}: expected an object, got {got!r}"
    for key, pattern in expected.items():
        if pattern is ABSENT:
            if key in got:
                return f"{where}.{key}: expected none, got {got[key]!r}"
        elif key not in got:
            return f"{where}.{key}: expected it, and it is missing"
        elif text := difference(pattern, got[key], f"{where}.{key}"):
            return text
    return None


def tensor(name: str, datatype: str, array: Array) -> dict[str, Any]:
    """The pattern of an output in JSON, for an array of the datatype."""
    numbers = Numbers(array.astype(DTYPES[datatype]))
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": numbers}


# the answer to a request that fails
ERROR = {"error": Where("a text", lambda value: isinstance(value, str) and len(value) > 5)}
