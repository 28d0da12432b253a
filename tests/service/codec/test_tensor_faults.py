"""The first value of a tensor that does not fit: errors name its place, and a search for it is short."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from turnpike.service.codec.json_document import parse
from turnpike.service.codec.tensor_faults import MAX_STEPS, first_fault
from turnpike.service.errors import RequestError

INT8 = "expected whole numbers from -128 to 127 (INT8)"
GOOD = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def fault(data: Any, shape: tuple[int, ...], dtype: str = "float32", member: str = "") -> str | None:
    value = parse(json.dumps({"data": data}).encode())["data"]
    error = first_fault(value, shape, np.dtype(dtype), "data", member)
    assert error is None or type(error) is RequestError
    return None if error is None else str(error)


def replaced(value: Any, *path: int) -> Any:
    """The good rows with another value at this path of indices."""
    data = json.loads(json.dumps(GOOD))
    node = data
    for index in path[:-1]:
        node = node[index]
    node[path[-1]] = value
    return data


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64"])
def test_good_values_have_no_fault(dtype: str) -> None:
    assert fault(GOOD, (2, 2, 2), dtype) is None
    assert fault([1, 2, 3, 4], (2, 2), dtype) is None
    assert fault([], (0, 3), dtype) is None
    assert fault([[True], [False]], (2, 1), "bool") is None
    assert fault(3, (1,), dtype) is None


@pytest.mark.parametrize(
    ("data", "dtype", "message"),
    [
        (replaced("a", 1, 0, 1), "float32", "data[1][0][1]: expected a number, got a string"),
        (replaced(True, 1, 0, 1), "int8", "data[1][0][1]: expected a whole number, got a boolean"),
        (replaced(None, 0, 1, 1), "int8", "data[0][1][1]: expected a whole number, got null"),
        (replaced([4], 0, 1, 1), "float32", "data[0][1][1]: expected a number, got an array"),
        (replaced({}, 0, 1), "float32", "data[0][1]: expected an array of 2 values, got an object"),
        (replaced(9, 1), "float32", "data[1]: expected an array of 2 arrays, got a number"),
        (replaced([1], 1, 1), "float32", "data[1][1]: expected 2 values, got 1"),
        (replaced([[1, 2]] * 3, 1), "float32", "data[1]: expected 2 arrays, got 3"),
        (replaced(["a"], 1, 1), "float32", "data[1][1][0]: expected a number, got a string"),
        (
            replaced(2.5, 0, 0, 1),
            "int8",
            f"data[0][0][1]: {INT8}, got 2.5",
        ),
        (
            replaced(128, 0, 0, 1),
            "int8",
            f"data[0][0][1]: {INT8}, got 128",
        ),
        (
            replaced(1e39, 0, 0, 1),
            "float32",
            "data[0][0][1]: expected numbers of at most 3.4028235e+38 in size (FP32), got 1e+39",
        ),
        (GOOD, "bool", "data[0][0][0]: expected true or false, got a number"),
    ],
)
def test_the_place_and_the_value_are_named(data: Any, dtype: str, message: str) -> None:
    assert fault(data, (2, 2, 2), dtype) == message


def test_flat_values_have_one_index() -> None:
    assert fault([1, 2, 3, "4"], (2, 2)) == "data[3]: expected a number, got a string"
    # the general error has the shape too
    assert fault([1, 2, 3], (2, 2)) is None
    assert fault([1, [2]], (2,)) == "data[1]: expected a number, got an array"


def test_a_member_follows_the_first_index() -> None:
    assert fault([[1], ["a"]], (2, 1), member=".x") == "data[1].x[0]: expected a number, got a string"


def test_a_number_that_is_rounded_to_the_largest_has_no_fault() -> None:
    """FP16 has no 65519, which becomes 65504."""
    assert fault([65519, 65520], (2,), "float16") == (
        "data[1]: expected numbers of at most 65504 in size (FP16), got 65520"
    )


def test_a_long_search_ends_without_a_place() -> None:
    """The general error is sent then. Arrays that are good as a whole count as one step."""
    row = [0] * (MAX_STEPS - 4)
    assert fault([row, row, [*row[1:], "a"]], (3, len(row))) == (
        f"data[2][{len(row) - 1}]: expected a number, got a string"
    )
    row = [0] * MAX_STEPS
    assert fault([row, [*row[1:], "a"]], (2, len(row))) is None
    rows = [[0]] * MAX_STEPS
    assert fault([*rows, ["a"]], (len(rows) + 1, 1)) is None


def test_a_number_of_values_that_the_parser_cannot_count_is_no_fault() -> None:
    """The parser counts to 2**24 - 1."""
    count = 2**24 + 10
    value = parse(b'{"data": [[' + b"0," * (count - 1) + b"0]]}")["data"]
    assert first_fault(value, (1, count), np.dtype("float32"), "data") is None
