"""Shapes of requests against the dimensions of a model's inputs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from service.artifact.runtime import Tensor
from service.errors import RequestError
from service.protocol.json_document import parse
from service.protocol.tensors import infer_shape, read_shape

IMAGE = Tensor("x", "float32", ("batch", 1, 8, "width"))


def read(shape: Any, tensor: Tensor = IMAGE, sizes: dict[str, int] | None = None) -> tuple[int, ...]:
    return read_shape(
        parse(orjson.dumps({"shape": shape}))["shape"], tensor, {} if sizes is None else sizes, "shape"
    )


def test_a_shape_that_fits_is_taken() -> None:
    """Named dimensions may be anything, and what they are is kept."""
    sizes: dict[str, int] = {}
    assert read([3, 1, 8, 5], sizes=sizes) == (3, 1, 8, 5)
    assert sizes == {"batch": 3, "width": 5}
    assert read([0, 1, 8, 0]) == (0, 1, 8, 0)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ([3, 1, 8], r"shape: expected 4 dimensions \[batch, 1, 8, width\], got 3"),
        ([], "expected 4 dimensions"),
        ([3, 1, 9, 5], r"shape: expected \[batch, 1, 8, width\], got \[3, 1, 9, 5\]"),
        ([3, 1, 8, -1], "shape: expected a whole number from 0, got -1"),
        ([3, 1.0, 8, 5], "shape: expected a whole number from 0, got 1.0"),
        ([3, True, 8, 5], "shape: expected a whole number from 0, got a boolean"),
        ([3, "1", 8, 5], "shape: expected a whole number from 0, got a string"),
        ([3, None, 8, 5], "got null"),
        ([3, [1], 8, 5], "got an array"),
        (3, "shape: expected an array, got a number"),
        (None, "shape: expected an array, got null"),
        ([0, 1, 8, 2**63], "shape: expected dimensions that fit into memory"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(shape: Any, says: str) -> None:
    """What was expected is said in the model's own names."""
    with pytest.raises(RequestError, match=says):
        read(shape)


def test_one_name_is_one_size() -> None:
    """A dimension that an earlier input has named must be the same in this one; an unnamed one is free."""
    with pytest.raises(RequestError, match=r"with width = 4 as before, got \[3, 1, 8, 5\]"):
        read([3, 1, 8, 5], sizes={"width": 4})
    assert read([3, 5], Tensor("y", "float32", ("?", "?")), {"?": 4}) == (3, 5)


def test_a_shape_is_found_from_a_number_of_values() -> None:
    """One dimension may vary; more, or a number that does not come out even, is refused."""
    assert infer_shape(("batch", 2, 3), 12, "body") == (2, 2, 3)
    assert infer_shape((2, 3), 6, "body") == (2, 3)
    assert infer_shape(("batch",), 0, "body") == (0,)
    for dims, count, says in (
        (("batch", 2, 3), 13, "body: expected a multiple of 6 values, got 13"),
        ((2, 3), 12, "body: expected 6 values, got 12"),
        (("batch", "time"), 6, "more than one of .batch, time. varies"),
        (("batch", 0), 6, "expected a multiple of 0 values"),
    ):
        with pytest.raises(RequestError, match=says):
            infer_shape(dims, count, "body")
