"""Texts in requests: as strings in JSON, as elements of bytes, and their conversion within limits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson
import pytest
from simdjson import Parser

from tests.support.text_models import encoder
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.codec.text_input import (
    expect_text_shape,
    split_elements,
    text_ids,
    texts_in_bytes,
    texts_in_json,
)
from turnpike.service.errors import RequestError, TooLargeError


def element(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + text


def in_json(items: list[Any], count: int) -> list[str]:
    return texts_in_json(Parser().parse(orjson.dumps(items)), count, "data")  # type: ignore[arg-type]


@pytest.mark.parametrize(("shape", "count"), [([3], 3), ([3, 1], 3), ([0], 0), ([0, 1], 0)])
def test_texts_have_one_axis_or_a_second_of_length_1(shape: list[int], count: int) -> None:
    assert expect_text_shape(shape, "shape") == count


@pytest.mark.parametrize("shape", [[], [2, 2], [2, 0], [1, 3, 1]])
def test_other_shapes_are_refused(shape: list[int]) -> None:
    with pytest.raises(
        RequestError, match=re.escape(f"shape: expected [texts] or [texts, 1] for BYTES, got {shape}")
    ):
        expect_text_shape(shape, "shape")


def test_strings_are_read_from_json() -> None:
    """In one list, or each in a list of its own."""
    texts = ["A é", "", "\0[", '"\U0001f600']
    assert in_json(texts, 4) == texts
    assert in_json([[text] for text in texts], 4) == texts
    assert in_json([], 0) == []


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a"], "data: expected 2 strings, got 1"),
        (["a", "b", "c"], "data: expected 2 strings, got 3"),
        (["a", 1], "data[1]: expected a string, got a number"),
        (["a", None], "data[1]: expected a string, got null"),
        (["a", ["b"]], "data[1]: expected a string, got an array"),
        ([["a"], "b"], "data[1]: expected an array of one string, got a string"),
        ([["a"], ["b", "c"]], "data[1]: expected an array of one string, got an array"),
        ([["a"], [2]], "data[1][0]: expected a string, got a number"),
        ([[["a"]], [["b"]]], "data[0][0]: expected a string, got an array"),
    ],
)
def test_json_without_a_string_for_each_text_is_refused(items: list[Any], message: str) -> None:
    with pytest.raises(RequestError, match=f"^{re.escape(message)}$"):
        in_json(items, 2)


def test_elements_of_bytes_are_split_and_decoded() -> None:
    parts = ["A é".encode(), b"", b"\0", b"x" * 300]
    data = b"".join(map(element, parts))
    assert split_elements(data, 4, "data") == split_elements(memoryview(data), 4, "data") == parts
    assert texts_in_bytes(parts, "data") == ["A é", "", "\0", "x" * 300]
    assert split_elements(b"", 0, "data") == texts_in_bytes([], "data") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (element(b"a"), "data: expected 2 strings, got 1"),
        (element(b"a") * 3, "data: expected 2 strings, got more"),
        (element(b"a") + b"\1\0\0", "data[1]: expected a length of 4 bytes and as many bytes, got 3 bytes"),
        (
            element(b"a") + b"\2\0\0\0b",
            "data[1]: expected a length of 4 bytes and as many bytes, got 5 bytes",
        ),
        (b"\xff" * 8, "data[0]: expected a length of 4 bytes and as many bytes, got 8 bytes"),
    ],
)
def test_bytes_that_are_no_elements_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(RequestError, match=f"^{re.escape(message)}$"):
        split_elements(data, 2, "data")


@pytest.mark.parametrize(
    ("text", "byte", "offset"),
    [(b"ab\xff", "b'\\xff'", 2), (b"\xc3", "b'\\xc3'", 0), (b"a\xed\xa0\x80", "b'\\xed'", 1)],
)
def test_bytes_that_are_not_utf_8_are_named(text: bytes, byte: str, offset: int) -> None:
    """Text, byte and place; also for a character that is cut off, and half of a surrogate pair."""
    message = f"data[1]: expected UTF-8, got {byte} at offset {offset}"
    with pytest.raises(RequestError, match=f"^{re.escape(message)}$"):
        texts_in_bytes([b"a", text], "data")


def test_ids_are_limited_before_they_are_made() -> None:
    """Few bytes of text may ask for many ids, and many bytes delay all other requests."""
    ids = 2 * 3 * 8
    limits = RequestLimits(max_json_bytes=4, max_ids_bytes=2 * ids)
    np.testing.assert_array_equal(
        text_ids(["AB", "CA"], encoder(), limits, "x"), encoder().encode(["AB", "CA"])
    )
    with pytest.raises(
        TooLargeError, match=r"x: expected at most 4 characters of text \(--max-json\), got 5"
    ):
        text_ids(["AB", "CAB"], encoder(), limits, "x")
    with pytest.raises(
        TooLargeError,
        match=r"x: expected texts whose ids have at most 96 bytes \(--max-body\), got 3 texts of 2 x 3 ids, "
        "which are 144",
    ):
        text_ids(["", "", ""], encoder(), limits, "x")
    with pytest.raises(TooLargeError, match="ids"):
        text_ids([""], encoder(words=10**15, characters=10**15), RequestLimits(), "x")


def test_the_length_of_a_list_is_checked_before_its_values() -> None:
    """There may be millions."""
    with pytest.raises(RequestError, match="data: expected 1 strings, got 3"):
        in_json([1, 2, 3], 1)
