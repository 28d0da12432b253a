"""Sample rows of a manifest, checked against the inputs of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.manifests import MANIFEST, stored_input
from turnpike.service.artifact.manifest import Sample, SampleInput
from turnpike.service.artifact.proof_records import InputRange
from turnpike.service.artifact.sample_rows import check_sample_rows, to_input_row
from turnpike.service.artifact.tensor import Tensor

X = Tensor("x", "float32", ("batch", 2, 2))
IDS = Tensor("ids", "int64", ("batch", "words"))
MASK = Tensor("mask", "bool", ("batch", "words"))


def check(inputs: list[Tensor], *rows: SampleInput, ranges: tuple[InputRange, ...] = ()) -> None:
    """Check a manifest with one sample of these rows against the inputs."""
    samples = (Sample(inputs=rows),) if rows else ()
    manifest = MANIFEST.model_copy(update={"samples": samples, "ranges": ranges})
    check_sample_rows(manifest, {tensor.name: tensor for tensor in inputs})


@pytest.mark.parametrize(
    ("tensor", "values", "dtype"),
    [
        (X, [[0, 1], [2, 255]], "uint8"),
        (X, [[0.5, -1], [2, 3]], "float32"),
        (Tensor("x", "float64", (1, 2)), [1e-300, 1], "float64"),
        (IDS, [1, 2**40], "int64"),
        (IDS, [-1, 7], "int32"),
        (MASK, [0, 1, 1], "uint8"),
    ],
)
def test_a_row_gets_the_dtype_of_the_input(tensor: Tensor, values: Any, dtype: str) -> None:
    """It also gets a batch axis, whatever dtype it is stored in."""
    sample_input = stored_input(tensor.name, values, dtype)
    check([tensor], sample_input)
    row = to_input_row(sample_input, tensor)
    assert row.dtype == tensor.dtype
    assert row.shape == (1, *np.shape(values))
    assert row[0].tolist() == np.array(values, tensor.dtype).tolist()


def test_named_dimensions_agree_over_inputs() -> None:
    """A dimension has one size in all inputs, whatever their order."""
    check([IDS, MASK], stored_input("mask", [1, 0, 1]), stored_input("ids", [4, 5, 6]))
    with pytest.raises(ValueError, match=r"samples\[0\]: expected a row of mask:bool\[batch,words\]"):
        check([IDS, MASK], stored_input("ids", [4, 5, 6]), stored_input("mask", [1, 0]))


@pytest.mark.parametrize(
    ("tensor", "sample_input", "message"),
    [
        (X, stored_input("x", [1, 2, 3, 4]), "a row of x:"),
        (X, stored_input("x", [[1, 2, 3, 4]]), "a row of x:"),
        (X, stored_input("x", [[[1, 2], [3, 4]]]), "a row of x:"),
        (Tensor("x", "float32", (8, 2)), stored_input("x", [1, 2]), "a row of x:"),
        (
            Tensor("x", "float16", ("batch", 2)),
            stored_input("x", [1, 2]),
            "an input that can be sent as JSON, got x:",
        ),
        (
            Tensor("x", "int64", ("batch", 2)),
            stored_input("x", [0.5, 1], "float32"),
            "finite numbers that fit x:",
        ),
        (Tensor("x", "bool", ("batch", 2)), stored_input("x", [1, 2]), "finite numbers that fit x:"),
        (
            Tensor("x", "float32", ("batch", 2)),
            stored_input("x", [1e300, 1], "float64"),
            "finite numbers that fit x:",
        ),
        (
            Tensor("x", "uint8", ("batch", 2)),
            stored_input("x", [-1, 256], "int32"),
            "finite numbers that fit x:",
        ),
        (
            Tensor("x", "float32", ("batch", 2)),
            stored_input("x", [np.nan, 1], "float32"),
            "finite numbers that fit x:",
        ),
        (
            Tensor("x", "float32", ("batch", 2)),
            stored_input("x", [np.inf, 1], "float32"),
            "finite numbers that fit x:",
        ),
        (Tensor("x", "int8", ("batch", 2)), stored_input("x", [251, 0]), "finite numbers that fit x:"),
    ],
)
def test_rows_that_do_not_match_the_input_are_refused(
    tensor: Tensor, sample_input: SampleInput, message: str
) -> None:
    """Another shape or batch size, FP16, and numbers that the dtype or JSON cannot represent."""
    with pytest.raises(ValueError, match=rf"samples\[0\]: expected {message}"):
        check([tensor], sample_input)


@pytest.mark.parametrize("names", [["y"], ["x", "y"], ["x", "x"]])
def test_unknown_and_repeated_inputs_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=rf"samples\[0\]: expected inputs x, got {', '.join(names)}"):
        check([X], *(stored_input(name, [[1, 2], [3, 4]]) for name in names))


def test_a_sample_without_inputs_is_refused() -> None:
    manifest = MANIFEST.model_copy(update={"samples": (Sample(inputs=()),)})
    with pytest.raises(ValueError, match="expected inputs x, got none"):
        check_sample_rows(manifest, {"x": X})


def test_ranges_must_name_an_input() -> None:
    check([X], ranges=(InputRange(input="x", low=0, high=16),))
    with pytest.raises(ValueError, match="ranges: expected an input, x, got 'y'"):
        check([X], ranges=(InputRange(input="y", low=0, high=16),))
