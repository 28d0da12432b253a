"""Numbers in columns of Arrow, whatever their type: integers, decimals, texts, lists."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute, types

from turnpike.service.artifact.tensor import Tensor
from turnpike.service.inference_types import Array

MAX_SHOWN_CHARACTERS = 40


def numbers_of(column: pyarrow.Array) -> Array | None:
    """The numbers of a column, NaN for a missing value or a text that is no number; None for other types."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if is_text(kind):
        column = compute.utf8_trim_whitespace(column.cast(pyarrow.string()))
        try:
            column = compute.cast(compute.if_else(compute.equal(column, ""), None, column), pyarrow.float64())
        except pyarrow.ArrowInvalid:
            return np.array([number_in(text) for text in column.to_pylist()], np.float64)
    elif types.is_decimal(kind):
        column = compute.cast(column, pyarrow.float64())
    elif not (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)
    ):
        return None
    if column.null_count:
        column = compute.cast(column, pyarrow.float64(), safe=False)
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers


def number_in(text: str | None) -> float:
    """The number in a text, NaN if there is none."""
    try:
        # float() also reads 1_000
        return math.nan if text is None or "_" in text else float(text)
    except ValueError:
        return math.nan


def misfits(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """The indices of the numbers that the dtype cannot hold: in ascending order, mostly none."""
    if dtype.kind == "f":
        if numbers.dtype.kind in "biu" and dtype.itemsize > 2:
            return np.empty(0, np.intp)
        limit = np.finfo(dtype).max
        # False for NaN
        if not numbers.size or (-limit <= numbers.min() and numbers.max() <= limit):
            return np.empty(0, np.intp)
        fits = np.abs(numbers) <= limit
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        fits = (numbers >= info.min) & (numbers <= info.max)
        if numbers.dtype.kind == "f":
            fits &= numbers == np.rint(numbers)
    else:
        fits = (numbers == 0) | (numbers == 1)
    return np.flatnonzero(~fits)


def expected_number(dtype: np.dtype[Any]) -> str:
    """What a number of this dtype has to be, in words."""
    if dtype.kind == "f":
        return "a finite number"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return f"a whole number from {info.min} to {info.max}"
    return "0 or 1"


def shown(cell: pyarrow.Scalar) -> str:
    """A cell in a message."""
    value = cell.as_py()
    if isinstance(value, str):
        return repr(value[:MAX_SHOWN_CHARACTERS]) if value.strip() else "a missing value"
    return "a missing value" if value is None else str(value)


def leaf_counts(column: pyarrow.Array) -> tuple[Array, pyarrow.Array]:
    """The number of values in the list of each row, and all values; lists may be nested."""
    if not is_list(column.type):
        return np.ones(len(column), np.int64), column
    lengths = compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    inner = column.flatten()
    if not is_list(inner.type):
        return lengths, inner
    counts, leaves = leaf_counts(inner)
    edges = np.concatenate([[0], np.cumsum(counts)])
    ends = np.cumsum(lengths)
    return edges[ends] - edges[ends - lengths], leaves


def width_of(tensor: Tensor) -> int | None:
    """The number of values of a row; None if it varies."""
    dims = tensor.dims[1:]
    return math.prod(int(dim) for dim in dims) if all(isinstance(dim, int) for dim in dims) else None


def is_text(kind: pyarrow.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: pyarrow.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_large_list(kind))
