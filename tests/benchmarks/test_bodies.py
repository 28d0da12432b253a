"""What is sent to every contestant, and when an answer is right."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from benchmarks import bodies
from benchmarks.bodies import Form
from benchmarks.errors import BenchmarkError

ROWS = [[0.5, -1.25], [3.0, 4.0], [0.0, 1.0]]


def test_rows_in_an_object() -> None:
    """As most people's first server takes them."""
    asked = bodies.request("rows", ROWS)
    assert json.loads(asked.body) == {"x": ROWS}


def test_the_protocol_as_json() -> None:
    """With shape, datatype and flat data."""
    (tensor,) = json.loads(bodies.request("v2 JSON", ROWS).body)["inputs"]
    assert tensor == {
        "name": "x",
        "shape": [3, 2],
        "datatype": "FP32",
        "data": [0.5, -1.25, 3.0, 4.0, 0.0, 1.0],
    }


def test_the_protocol_as_bytes() -> None:
    """The header says where the JSON ends, and the JSON how many bytes follow."""
    asked = bodies.request("v2 binary", ROWS)
    cut = int(asked.headers["Inference-Header-Content-Length"])
    (tensor,) = json.loads(asked.body[:cut])["inputs"]
    assert tensor["parameters"] == {"binary_data_size": 24}
    assert struct.unpack("<6f", asked.body[cut:]) == (0.5, -1.25, 3.0, 4.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("rows", {"logits": [[1.0, 2.0]]}),
        ("rows, bare answer", [[1.0, 2.0]]),
        ("v2 JSON", {"outputs": [{"name": "more", "data": [9]}, {"name": "output", "data": [1.0, 2.0]}]}),
    ],
)
def test_logits_are_found_in_an_answer(form: Form, told: Any) -> None:
    """However deep a form has them."""
    assert bodies.answered(form, json.dumps(told).encode(), {}) == [1.0, 2.0]


def test_logits_are_found_behind_the_json() -> None:
    """In the bytes of a binary answer."""
    headers = {"inference-header-content-length": "2"}
    assert bodies.answered("v2 binary", b"{}" + struct.pack("<2f", 1, 2), headers) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("rows", b'{"labels": []}'),
        ("v2 JSON", b'{"outputs": []}'),
        ("v2 JSON", b"[]"),
        ("rows, bare answer", b"oh"),
        ("v2 binary", b"no header"),
    ],
)
def test_an_answer_without_logits_is_none(form: Form, body: bytes) -> None:
    """What came is said."""
    with pytest.raises(BenchmarkError, match=f"expected logits as {form}, got b"):
        bodies.answered(form, body, {})


def test_an_answer_is_right_to_some_digits() -> None:
    """Another order of the same sums is right, another value or length is not."""
    right = [[1.0, -2.0]]
    assert bodies.near([1.0005, -2.001], right)
    assert not bodies.near([1.01, -2.0], right)
    assert not bodies.near([1.0], right)


def test_a_lower_precision_is_right_to_some_percent() -> None:
    """Of the size of the whole answer."""
    right = [[1.0, -2.0]]
    assert bodies.near([1.2, -1.9], right, exact=False)
    assert not bodies.near([-1.0, 2.0], right, exact=False)
