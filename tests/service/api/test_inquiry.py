"""Answers put together of parts, with the bytes of their tensors in order."""

from __future__ import annotations

import json

import pytest

from service.api.inference import merge_json, wrap_json
from service.http.response import ResponseBody

ONE: ResponseBody = (b'{"a":1}', None)
TWO: ResponseBody = (b'{"b":[2]}', None)
ONE_WITH_BYTES: ResponseBody = (b'{"a":1}xyz', 7)
TWO_WITH_BYTES: ResponseBody = (b'{"b":[2]}123', 9)


@pytest.mark.parametrize(
    ("first", "second", "tail"),
    [
        (ONE, TWO, None),
        (ONE_WITH_BYTES, TWO, b"xyz"),
        (ONE, TWO_WITH_BYTES, b"123"),
        (ONE_WITH_BYTES, TWO_WITH_BYTES, b"xyz123"),
    ],
)
def test_two_answers_are_one(first: ResponseBody, second: ResponseBody, tail: bytes | None) -> None:
    """One object, and after it the bytes of the first, then of the second."""
    content, length = merge_json(first, second)
    assert json.loads(content[:length]) == {"a": 1, "b": [2]}
    assert (length is None) == (tail is None)
    if length is not None:
        assert content[length:] == tail


def test_an_answer_within_another() -> None:
    """Its bytes stay behind all JSON."""
    assert wrap_json("in", ONE) == (b'{"in":{"a":1}}', None)
    assert wrap_json("in", ONE_WITH_BYTES) == (b'{"in":{"a":1}}xyz', 14)
    content, length = merge_json(ONE_WITH_BYTES, wrap_json("in", TWO_WITH_BYTES))
    assert json.loads(content[:length]) == {"a": 1, "in": {"b": [2]}}
    assert length is not None
    assert content[length:] == b"xyz123"
