"""Tensors in JSON: every value exactly, in the place its shape gives it, or a sentence that says why not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from service.artifact.datatypes import WIRE_DTYPES
from service.errors import RequestError
from service.inference_types import Array
from service.protocol.json_document import parse
from service.protocol.tensors import expect_even, read_json


def read(data: Any, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """What is read from a value, or from the text of one, by both checks."""
    text = data if isinstance(data, str) else json.dumps(data)
    value = parse(b'{"data": ' + text.encode() + b"}")["data"]
    array = read_json(value, shape, WIRE_DTYPES[dtype], "data")
    expect_even(value, shape, "data")  # type: ignore[arg-type]
    return array


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_flat_and_nested_say_the_same(dtype: str) -> None:
    """Of every dtype, a flat list and a nested one give the same array."""
    array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
    for data in (array.tolist(), array.ravel().tolist()):
        got = read(data, (2, 3, 4), dtype)
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("dtype", [name for name in WIRE_DTYPES if WIRE_DTYPES[name].kind in "iu"])
def test_whole_numbers_are_exact_to_their_ends(dtype: str) -> None:
    """The least and the greatest number come through, one beyond them does not, 2**53 or not."""
    info = np.iinfo(dtype)
    ends = [int(info.min), int(info.max), int(info.max) - 1]
    assert read(ends, (3,), dtype).tolist() == ends
    for beyond in (int(info.min) - 1, int(info.max) + 1):
        with pytest.raises(RequestError, match="expected whole numbers from|fit into 64 bits"):
            read([0, beyond], (2,), dtype)


@pytest.mark.parametrize("value", ["1.0", "1e0", "true", "null", '"1"', "{}"])
def test_only_whole_numbers_are_whole(value: str) -> None:
    """A whole number in another guise is refused for an integer."""
    with pytest.raises(RequestError, match=r"data: expected whole numbers from -128 to 127 \(INT8\)"):
        read(f"[0, {value}]", (2,), "int8")


def test_floats_are_exact() -> None:
    """Each float32 comes back bit for bit from its shortest form, and each float64."""
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    wide = np.random.default_rng(0).integers(0, 2**63, 5_000, dtype=np.uint64).view(np.float64)
    for array in (bits[np.isfinite(bits)], wide[np.isfinite(wide)]):
        text = (
            "[" + ",".join(repr(value.item()) if value.itemsize == 8 else str(value) for value in array) + "]"
        )
        got = read(text, array.shape, array.dtype.name)
        assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize(("dtype", "value"), [("float32", 3.5e38), ("float32", -1e300), ("float16", 65520)])
def test_numbers_too_great_for_the_dtype_are_refused(dtype: str, value: float) -> None:
    """They would become Inf, which nobody wrote."""
    with pytest.raises(RequestError, match="data: expected numbers of at most .* got one outside of that"):
        read([0, value], (2,), dtype)


@pytest.mark.parametrize("value", ["true", "null", '"1"', "{}", '["a"]'])
def test_only_numbers_are_numbers(value: str) -> None:
    """Nothing is taken for a number that is none."""
    with pytest.raises(RequestError, match="data: expected numbers of at most"):
        read(f"[0, {value}]", (2,))


@pytest.mark.parametrize("value", ["1", "null", '"true"', "[true]", "[]", "{}"])
def test_only_true_and_false_are_booleans(value: str) -> None:
    """Not even 1."""
    with pytest.raises(RequestError, match="data: expected true or false|in one flat array"):
        read(f"[false, {value}]", (2,), "bool")


@pytest.mark.parametrize("data", [3, "null", '"abc"', "{}", "true"])
def test_data_is_an_array(data: Any) -> None:
    """A single value is no tensor."""
    with pytest.raises(RequestError, match="data: expected an array, got"):
        read(data, (1,))


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([[1, 2], [3, 4, 5]], (2, 2)),
        ([1, 2, 3], (2, 2)),
        ([], (1,)),
        ([[], []], (1, 2)),
    ],
)
def test_the_number_of_values_must_be_that_of_the_shape(data: Any, shape: tuple[int, ...]) -> None:
    """Neither more nor fewer."""
    with pytest.raises(RequestError, match="data: expected . values for shape"):
        read(data, shape)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint64"])
@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([[1, 2, 3], [4]], (2, 2)),
        ([[1], [2, 3, 4]], (2, 2)),
        ([[1, 2, 3, 4]], (2, 2)),
        ([[1], [2], [3], [4]], (2, 2)),
        ([[1, 2], 3, 4], (2, 2)),
        ([[1, 2], [3, [4]]], (2, 2)),
        ([[1, []], [2, [3, 4]]], (2, 2)),
        ([[[1, 2], [3, 4]]], (2, 2)),
        ([[1, 2], [3, 4]], (4,)),
        ([1, [2], 3], (3,)),
        ([1, [], 2, [3]], (3,)),
        ([[1]], (1,)),
        ([[[1], [2]], [[3], [4]]], (1, 2, 2)),
        ([[1, 2], [3, 4]], (1, 2, 2)),
        ([[5]], ()),
    ],
)
def test_ragged_and_otherwise_nested_values_are_refused(
    data: Any, shape: tuple[int, ...], dtype: str
) -> None:
    """Though there are as many values as the shape says, they do not lie where it says."""
    with pytest.raises(RequestError, match="data: expected values in one flat array, or nested like shape"):
        read(data, shape, dtype)


@pytest.mark.parametrize(("data", "shape"), [([], (0, 3)), ([], (2, 0)), ([[], []], (2, 0)), ([], (0,))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_no_values_are_fine(data: Any, shape: tuple[int, ...], dtype: str) -> None:
    """A shape with a zero in it holds nothing, and keeps its other dimensions."""
    assert read(data, shape, dtype).shape == shape


def test_a_shape_of_more_values_than_fit_in_64_bits_is_only_a_wrong_count() -> None:
    """The product is never cut to a number that the data could match."""
    with pytest.raises(RequestError, match="expected 73786976294838206464 values"):
        read([], (2**33, 2**33))
