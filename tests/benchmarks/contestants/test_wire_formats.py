"""Requests in each wire format, and when an answer is correct."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from benchmarks.contestants import wire_formats
from benchmarks.contestants.wire_formats import WireFormat
from benchmarks.errors import BenchmarkError

ROWS = [[0.5, -1.25], [3.0, 4.0], [0.0, 1.0]]


def test_rows_in_an_object() -> None:
    request = wire_formats.encode_request("rows", ROWS)
    assert json.loads(request.body) == {"x": ROWS}


def test_the_protocol_as_json() -> None:
    """With shape, datatype and flat data."""
    (tensor,) = json.loads(wire_formats.encode_request("v2 JSON", ROWS).body)["inputs"]
    assert tensor == {
        "name": "x",
        "shape": [3, 2],
        "datatype": "FP32",
        "data": [0.5, -1.25, 3.0, 4.0, 0.0, 1.0],
    }


def test_the_protocol_as_bytes() -> None:
    """The header has the length of the JSON, and the JSON the number of bytes that follow."""
    request = wire_formats.encode_request("v2 binary", ROWS)
    json_length = int(request.headers["Inference-Header-Content-Length"])
    (tensor,) = json.loads(request.body[:json_length])["inputs"]
    assert tensor["parameters"] == {"binary_data_size": 24}
    assert struct.unpack("<6f", request.body[json_length:]) == (0.5, -1.25, 3.0, 4.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("wire_format", "answer"),
    [
        ("rows", {"logits": [[1.0, 2.0]]}),
        ("rows, bare answer", [[1.0, 2.0]]),
        ("v2 JSON", {"outputs": [{"name": "more", "data": [9]}, {"name": "output", "data": [1.0, 2.0]}]}),
    ],
)
def test_logits_are_found_in_an_answer(wire_format: WireFormat, answer: Any) -> None:
    assert wire_formats.decode_logits(wire_format, json.dumps(answer).encode(), {}) == [1.0, 2.0]


def test_logits_are_found_behind_the_json() -> None:
    headers = {"inference-header-content-length": "2"}
    body = b"{}" + struct.pack("<2f", 1, 2)
    assert wire_formats.decode_logits("v2 binary", body, headers) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("wire_format", "body"),
    [
        ("rows", b'{"labels": []}'),
        ("v2 JSON", b'{"outputs": []}'),
        ("v2 JSON", b"[]"),
        ("rows, bare answer", b"oh"),
        ("v2 binary", b"no header"),
    ],
)
def test_an_answer_without_logits_is_refused(wire_format: WireFormat, body: bytes) -> None:
    with pytest.raises(BenchmarkError, match=f"expected logits as {wire_format}, got b"):
        wire_formats.decode_logits(wire_format, body, {})


def test_logits_match_up_to_rounding() -> None:
    """Sums in another order match; another value or length does not."""
    expected = [[1.0, -2.0]]
    assert wire_formats.logits_match([1.0005, -2.001], expected)
    assert not wire_formats.logits_match([1.01, -2.0], expected)
    assert not wire_formats.logits_match([1.0], expected)


def test_logits_of_a_lower_precision_match_up_to_20_percent() -> None:
    """The error may be 20 % of the norm of all logits."""
    expected = [[1.0, -2.0]]
    assert wire_formats.logits_match([1.2, -1.9], expected, exact=False)
    assert not wire_formats.logits_match([-1.0, 2.0], expected, exact=False)
