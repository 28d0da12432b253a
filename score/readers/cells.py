"""Converts the cells of a real table (words, dates, booleans, blanks) to the numbers of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.readers.bad_rows import BadRowsError
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
        BadRowsError: Rows have wrong cells.
    """
    (tensor,) = signature.inputs.values()
    rows = max(map(len, cells.values()))
    values = np.full((rows, len(signature.columns)), np.nan, WIRE_DTYPES[tensor.dtype])
    reasons: dict[int, str] = {}
    for index, column in enumerate(signature.columns):
        if column.name not in cells:
            continue
        try:
            values[:, index] = _numbers(cells[column.name], column)
        except RequestError:
            reasons = _wrong_cells(cells[column.name], column, place) | reasons
    if reasons:
        raise BadRowsError(reasons)
    return {tensor.name: values}


def array_feeds(values: Array, signature: Signature, place: Callable[[int, str], str]) -> dict[str, Array]:
    """The model's input for rows of numbers, whose columns are in the order of the model."""
    cells = {name: values[:, index].tolist() for index, name in enumerate(signature.features)}
    return cell_feeds(cells, signature, place)


def _numbers(cells: Any, column: Column) -> Array:
    is_array = isinstance(cells, pyarrow.Array)
    if column.form.kind == "number" and is_array and _is_number(cells.type):
        numbers = cells.to_numpy(zero_copy_only=False).astype(np.float64)
        is_wrong = np.abs(numbers) > MAX_FLOAT32
        if not column.blanks:
            is_wrong |= np.isnan(numbers)
        if not is_wrong.any():
            return numbers
    rows = [(cell,) for cell in (python_cells(cells) if is_array else cells)]
    return cell_numbers(rows, (column,), lambda *_: "")[:, 0]


def _wrong_cells(cells: Any, column: Column, place: Callable[[int, str], str]) -> dict[int, str]:
    """The reason for each wrong cell of a column, by its row."""
    reasons = {}
    for row, cell in enumerate(python_cells(cells) if isinstance(cells, pyarrow.Array) else cells):
        try:
            cell_numbers([(cell,)], (column,), lambda *_, row=row: place(row, column.name))
        except RequestError as error:
            reasons[row] = str(error)
    return reasons


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
