"""Conversion of arrays and lists to the datatypes of a model: exact, rounded where it may be, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnpike.client.errors import ClientError, InputError
from turnpike.client.inputs import TEXT, to_bytes, to_datatype, to_tensors
from turnpike.common.datatypes import DTYPE_BY_DATATYPE

DIGITS = {"name": "digits", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]}
TWO = {
    "name": "two",
    "inputs": [
        {"name": "a", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "b", "datatype": "INT64", "shape": [-1, 4]},
    ],
}
TEXTS = {
    "name": "words",
    "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, -1, 3], "parameters": {"text": True}}],
}


@pytest.mark.parametrize(
    ("values", "datatype", "expected"),
    [
        ([0.1, 1e-60, -np.inf, np.nan], "FP32", np.array([0.1, 0, -np.inf, np.nan], "<f4")),
        ([1, 2], "FP32", np.array([1, 2], "<f4")),
        ([[1.0], [2.0]], "INT8", np.array([[1], [2]], "<i1")),
        ([True, False], "FP32", np.array([1, 0], "<f4")),
        ([1.0, 0.0], "BOOL", np.array([True, False])),
        (np.array([1.5, 2.5], ">f8"), "FP64", np.array([1.5, 2.5], "<f8")),
        (np.array([2**64 - 1], "u8"), "UINT64", np.array([2**64 - 1], "<u8")),
        (np.float32(3), "INT32", np.array(3, "<i4")),
        ([], "INT64", np.array([], "<i8")),
        (range(3), "UINT8", np.array([0, 1, 2], "<u1")),
    ],
)
def test_numbers_are_converted(values: Any, datatype: str, expected: np.ndarray[Any, Any]) -> None:
    converted = to_datatype(values, datatype, "x")
    assert converted.dtype == expected.dtype
    np.testing.assert_array_equal(converted, expected)


@pytest.mark.parametrize(
    ("values", "datatype", "got"),
    [
        ([1.0, 2.5], "INT64", r"2\.5 at \[1\]"),
        ([[1, 2], [3, 300]], "UINT8", r"300 at \[1, 1\]"),
        ([-1], "UINT64", r"-1 at \[0\]"),
        ([2**63], "INT64", r"9223372036854775808 at \[0\]"),
        ([2**24 + 1], "FP32", r"16777217 at \[0\]"),
        ([1e39], "FP32", r"1e\+39 at \[0\]"),
        ([70000.0], "FP16", r"70000\.0 at \[0\]"),
        ([np.nan], "INT32", r"nan at \[0\]"),
        ([np.inf], "BOOL", r"inf at \[0\]"),
        ([2], "BOOL", r"2 at \[0\]"),
        (1e300, "INT64", r"1e\+300 at \[\]"),
    ],
)
def test_a_lost_number_is_an_error(values: Any, datatype: str, got: str) -> None:
    """The message says which datatype, which number and where."""
    with pytest.raises(InputError, match=f"^x: expected numbers that {datatype} holds, got {got}$"):
        to_datatype(values, datatype, "x")


@pytest.mark.parametrize(
    ("values", "datatype", "message"),
    [
        (["a"], "FP32", "expected numbers, got the text 'a' at [0]"),
        ([[1e-9, "2.5"], [3, "b"]], "FP32", "expected numbers, got the text 'b' at [1, 1]"),
        (np.array(["1", "2"]), "FP32", "expected numbers, got the text '1' at [0]"),
        ([None], "FP32", "expected numbers, to be sent as FP32, got object"),
        ([1j], "FP32", "expected numbers, to be sent as FP32, got complex128"),
        ([1], "BYTES", "expected numbers, to be sent as BYTES, got int64"),
        ([[1, 2], [3]], "FP32", "expected an array, got lists of different lengths"),
    ],
)
def test_what_is_no_array_of_numbers_is_an_error(values: Any, datatype: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        to_datatype(values, datatype, "x")
    assert str(caught.value) == f"x: {message}"
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ClientError)


def test_an_array_of_the_datatype_is_not_copied() -> None:
    array = np.zeros(3, np.float32)
    assert to_datatype(array, "FP32", "x") is array


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def holds(dtype: np.dtype[Any], value: int) -> bool:
    """Whether a number of this dtype can be exactly this integer."""
    if dtype.kind == "b":
        return value in (0, 1)
    if dtype.kind in "iu":
        return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
    with np.errstate(over="ignore"):
        number = float(dtype.type(value))
    return number.is_integer() and int(number) == value


@given(st.sampled_from(INTEGERS), st.sampled_from(sorted(DTYPE_BY_DATATYPE)), st.data())
def test_integers_never_change(source: str, datatype: str, data: st.DataObject) -> None:
    """They come out as the same number, or as an error if the datatype cannot hold them."""
    info = np.iinfo(source)
    value = data.draw(st.integers(int(info.min), int(info.max)))
    array = np.array([value], source)
    if holds(DTYPE_BY_DATATYPE[datatype], value):
        assert to_datatype(array, datatype, "x").tolist() == [value]
    else:
        with pytest.raises(InputError):
            to_datatype(array, datatype, "x")


def test_flat_rows_get_the_shape_of_the_input() -> None:
    flat = np.arange(128.0).reshape(2, 64)
    tensors = to_tensors(flat, DIGITS)
    np.testing.assert_array_equal(tensors["x"], flat.reshape(2, 1, 8, 8).astype("f4"))
    with pytest.raises(InputError, match=r"\[-1, 1, 8, 8\], or rows of 64 numbers, got \[2, 63\]"):
        to_tensors(flat[:, :63], DIGITS)


def test_several_inputs_are_a_dict() -> None:
    tensors = to_tensors({"b": [[1, 2, 3, 4]], "a": [[1, 2]]}, TWO)
    # in the order of the model
    assert list(tensors) == ["a", "b"]
    assert [array.dtype.name for array in tensors.values()] == ["float32", "int64"]


@pytest.mark.parametrize(("inputs", "got"), [([[1, 2]], r"\[''\]"), ({"a": 1, "c": 2}, r"\['a', 'c'\]")])
def test_other_inputs_are_an_error(inputs: Any, got: str) -> None:
    with pytest.raises(InputError, match=rf"model 'two': expected a dict with \['a', 'b'\], got {got}"):
        to_tensors(inputs, TWO)


def test_one_row_belongs_in_a_list() -> None:
    """A dict has the inputs of a model, whose values are arrays."""
    with pytest.raises(
        InputError, match=r"expected a dict with \['x'\], got \['age', 'sex'\]; put a row in a "
    ):
        to_tensors({"age": 50, "sex": "M"}, DIGITS)
    with pytest.raises(InputError, match=r"expected a dict with \['x'\], got \['y'\]$"):
        to_tensors({"y": [[1], [1, 2]]}, DIGITS)


@pytest.mark.parametrize("file", ["rows.csv", Path("rows.csv")])
def test_a_file_is_no_rows(file: Any) -> None:
    message = "expected rows, got 'rows.csv': pass a list, an array or a DataFrame, as pandas.read_csv"
    with pytest.raises(InputError, match=f"input 'x' of model 'digits': {message}"):
        to_tensors(file, DIGITS)


def test_the_error_names_input_and_model() -> None:
    with pytest.raises(InputError, match="^input 'x' of model 'digits': expected numbers that FP32"):
        to_tensors(np.full((1, 64), 1e300), DIGITS)


@pytest.mark.parametrize(
    "texts",
    [
        ["A\0", "é"],
        [["A\0"], ["é"]],
        ("A\0", "é"),
        np.array(["A\0", "é"], object),
        np.array([["A\0"], ["é"]], object),
    ],
)
def test_texts_become_bytes(texts: Any) -> None:
    """NUL at the end of a text is kept."""
    array = to_tensors(texts, TEXTS)["ids"]
    assert array.tolist() == [b"A\0", "é".encode()]
    assert to_bytes(array) == b"\2\0\0\0A\0\2\0\0\0\xc3\xa9"


def test_no_texts_are_texts() -> None:
    array = to_tensors([], TEXTS)["ids"]
    assert (array.dtype, array.shape) == (TEXT, (0,))


def test_a_model_of_texts_takes_ids() -> None:
    array = to_tensors([[[1, 2, 3]]], TEXTS)["ids"]
    assert (array.dtype, array.shape) == (np.dtype("i8"), (1, 1, 3))
    assert to_bytes(array) == array.tobytes()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", 5], r"expected texts of Unicode, got 5 at \[1\]"),
        (["a", "\ud800"], r"expected texts of Unicode, got '\\ud800' at \[1\]"),
        ("a", r"expected a list of texts, got one text: put a text in a list, as in \['a'\]"),
        ([["a", "b"]], r"expected texts of the shape \[texts\] or \[texts, 1\], got \[1, 2\]"),
        ([5, "a"], r"expected texts of Unicode, got 5 at \[0\]"),
        ([float("nan"), "a"], r"expected texts of Unicode, got nan at \[0\]"),
    ],
)
def test_other_texts_are_an_error(texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^input 'ids' of model 'words': {message}"):
        to_tensors(texts, TEXTS)
