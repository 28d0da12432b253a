"""Converts the cells of a real table (words, dates, booleans, blanks) to the numbers of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.errors import RowsError
from turnpike.service.artifact.signature import Column, Signature
from turnpike.service.cli.parquet_file import python_cells
from turnpike.service.codec.cells import MAX_FLOAT32, cell_numbers
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array


def cell_feeds(
    cells: Mapping[str, Any], signature: Signature, place: Callable[[int, str], str]
) -> dict[str, Array]:
    """The model's input for columns of cells by name, each of them an array of Arrow or a sequence.

    Columns that may be blank may be missing. `place` names a row and a column in error messages.

    Raises:
        RowsError: The message says which cell is wrong.
    """
    (tensor,) = signature.inputs.values()
    rows = max(map(len, cells.values()))
    values = np.full((rows, len(signature.columns)), np.nan, WIRE_DTYPES[tensor.dtype])
    for index, column in enumerate(signature.columns):
        if column.name not in cells:
            continue
        try:
            values[:, index] = _numbers(cells[column.name], column, place)
        except RequestError as error:
            raise RowsError(str(error)) from error
    return {tensor.name: values}


def _numbers(cells: Any, column: Column, place: Callable[[int, str], str]) -> Array:
    is_array = isinstance(cells, pyarrow.Array)
    if column.form.kind == "number" and is_array and _is_number(cells.type):
        numbers = cells.to_numpy(zero_copy_only=False).astype(np.float64)
        is_wrong = np.abs(numbers) > MAX_FLOAT32
        if not column.blanks:
            is_wrong |= np.isnan(numbers)
        if not is_wrong.any():
            return numbers
    values = python_cells(cells) if is_array else cells
    rows = [(cell,) for cell in values]
    return cell_numbers(rows, (column,), lambda index, _: place(index, column.name))[:, 0]


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
