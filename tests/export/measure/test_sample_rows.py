"""Sample rows stored in the file: which ones, how many, and in which dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from turnpike.export.errors import UsageError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.measure.sample_rows import (
    DEFAULT_SAMPLES,
    choose_samples,
    encode_row,
    equal_rows,
    input_ranges,
    sample_count,
)
from turnpike.export.network import Network, Rows
from turnpike.service.artifact.manifest import MAX_SAMPLE_CHARACTERS
from turnpike.service.artifact.proof_records import InputRange
from turnpike.service.artifact.sample_rows import to_input_row
from turnpike.service.artifact.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def network(*inputs: str, rows: Rows | None = None, public: bool = False) -> Network:
    return Network("net", "module", parse_inputs(inputs or ["x:float32[batch,2]"]), rows=rows, public=public)


def numbered(count: int) -> Array:
    """Rows that can be told apart."""
    return np.repeat(np.arange(count, dtype=np.float32)[:, None], 2, axis=1)


def picked(rows: Rows, count: int) -> list[int]:
    """The indices of the chosen rows."""
    return [sample.inputs[0].raw[0] for sample in choose_samples(rows, count)]


def test_samples_take_one_row_of_each_class_in_turn() -> None:
    """The first row of each class, then the second of each; always the same rows."""
    rows = Rows({"x": numbered(7)}, np.array([2, 2, 0, 2, 0, 1, 2]))
    assert picked(rows, 3) == [2, 5, 0]
    assert picked(rows, 5) == [2, 5, 0, 4, 1]
    assert picked(rows, 99) == [2, 5, 0, 4, 1, 3, 6]
    assert picked(rows, 0) == []


def test_a_row_whose_answer_flips_leads_its_class() -> None:
    """The classes stay in turn, and no other row is left out for it."""
    rows = Rows({"x": numbered(7)}, np.array([2, 2, 0, 2, 0, 1, 2]))
    chosen = [choose_samples(rows, count, (), 3) for count in (3, 5, 99)]
    numbers = [[sample.inputs[0].raw[0] for sample in samples] for samples in chosen]
    assert numbers == [[2, 5, 3], [2, 5, 3, 4, 0], [2, 5, 3, 4, 0, 1, 6]]


def test_rows_with_the_values_of_a_sample_are_found() -> None:
    """Blanks are equal, and so are rows that are there twice."""
    x = np.array([[1, np.nan], [2, 1], [1, np.nan], [1, 1]], np.float32)
    (sample,) = choose_samples(Rows({"x": x}), 1)
    assert equal_rows(sample, Rows({"x": x})) == [0, 2]
    assert equal_rows(sample, Rows({"x": x[1:2]})) == []
    assert equal_rows(sample, Rows({"z": x})) == []
    assert equal_rows(sample, Rows({"x": x[:, :1]})) == []


@pytest.mark.parametrize("classes", [None, np.zeros((5, 2), np.int64)])
def test_without_classes_samples_are_the_first_rows(classes: Array | None) -> None:
    """Classes that are not one per row are ignored, and there is no label."""
    rows = Rows({"x": numbered(5)}, classes)
    assert picked(rows, 3) == [0, 1, 2]
    assert {sample.label for sample in choose_samples(rows, 3, ["a", "b"])} == {""}


def test_labels_of_samples_are_names_or_numbers() -> None:
    """The name of the class, or its number if it has no name."""
    rows = Rows({"x": numbered(3)}, np.array([0, 1, 2]))
    assert [sample.label for sample in choose_samples(rows, 3, ["cat", "dog"])] == ["cat", "dog", "2"]


def test_samples_have_the_texts_of_their_rows() -> None:
    """Long texts take room from other samples."""
    rows = Rows({"x": numbered(3)}, np.array([0, 0, 1]), ("one", "two", "three"))
    assert [sample.text for sample in choose_samples(rows, 3)] == ["one", "three", "two"]
    long = Rows({"x": numbered(3)}, None, ("x" * MAX_SAMPLE_CHARACTERS,) * 3)
    assert choose_samples(long, 3) == ()


def test_without_rows_there_are_no_samples() -> None:
    assert choose_samples(None, 0) == input_ranges(None) == ()


@pytest.mark.parametrize(
    ("values", "dtype", "stored_dtype"),
    [
        ([0, 255], "float32", "uint8"),
        ([0, 256], "float32", "int32"),
        ([-1, 1], "float32", "int32"),
        ([0.5, 1], "float32", "float32"),
        ([3e9, 1], "float32", "float32"),
        ([-0.0, 1], "float32", "float32"),
        ([0.1, 1], "float64", "float64"),
        ([0.5, 1], "float64", "float32"),
        ([7, 1], "int64", "uint8"),
        ([-(2**31), 1], "int64", "int32"),
        ([2**53 + 1, 1], "int64", "int64"),
        ([True, False], "bool", "uint8"),
        ([-5, 1], "int8", "int32"),
    ],
)
def test_a_row_is_stored_in_the_smallest_exact_dtype(
    values: list[Any], dtype: str, stored_dtype: str
) -> None:
    """Bit for bit, including the sign of a zero."""
    row = np.array(values, dtype)
    sample = encode_row("x", row)
    assert (sample.name, sample.dtype, sample.shape) == ("x", stored_dtype, (2,))
    assert to_input_row(sample, Tensor("x", dtype, ("batch", 2)))[0].tobytes() == row.tobytes()


def test_samples_of_large_rows_are_fewer() -> None:
    """All inputs together stay within the limit."""
    rows = Rows({"a": np.zeros((9, 30_000), np.uint8), "b": np.full((9, 10_000), 0.5, np.float32)})
    samples = choose_samples(rows, 9)
    size = sum(len(sample_input.data) for sample_input in samples[0].inputs)
    assert len(samples) == MAX_SAMPLE_CHARACTERS // size == 2
    assert choose_samples(Rows({"x": np.zeros((2, MAX_SAMPLE_CHARACTERS), np.uint8)}), 2) == ()


def test_ranges_cover_all_rows() -> None:
    ranges = input_ranges(Rows({"x": np.array([[-1.5, 2], [7, 0]], np.float32), "ids": np.array([[3], [5]])}))
    assert ranges == (InputRange(input="x", low=-1.5, high=7), InputRange(input="ids", low=3, high=5))


def test_private_rows_stay_out_unless_requested() -> None:
    """A user's rows may be private. Ten rows of public data are stored by default."""
    rows = Rows({"x": numbered(20)})
    assert sample_count(None, network(rows=rows)) == 0
    assert sample_count(4, network(rows=rows)) == 4
    assert sample_count(None, network(rows=rows, public=True)) == DEFAULT_SAMPLES == 10
    assert sample_count(0, network(rows=rows, public=True)) == 0
    assert sample_count(None, network()) == sample_count(0, network()) == 0


@pytest.mark.parametrize(
    ("inputs", "requirement"),
    [
        (["x:float16[batch,2]"], "inputs of a type that JSON requests can carry, got x:float16"),
        (["x:float32[8,2]"], "inputs that take a single row, got x:float32.8,2."),
        (["x:float32[batch,2]", "y:float32[3,2]"], "inputs that take a single row, got y:"),
    ],
)
def test_rows_that_one_json_request_cannot_hold_stay_out(inputs: list[str], requirement: str) -> None:
    """They are left out by default, and refused if requested."""
    rows = Rows({"x": numbered(20)})
    assert sample_count(None, network(*inputs, rows=rows, public=True)) == 0
    with pytest.raises(UsageError, match=f"--samples: expected {requirement}"):
        sample_count(1, network(*inputs, rows=rows, public=True))


def test_a_fixed_batch_of_one_row_has_samples() -> None:
    rows = Rows({"x": numbered(20)})
    assert sample_count(None, network("x:float32[1,2]", rows=rows, public=True)) == 10


def test_requesting_samples_without_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="--samples: expected rows to store, got none"):
        sample_count(3, network())
