"""Converts the cells of rows, as users have them, to the numbers of a network that reads a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from simdjson import Array as JsonArray

from turnpike.common.columns import CellError, is_blank
from turnpike.service.artifact.signature import Column, Signature
from turnpike.service.codec.feature_names import expect_features
from turnpike.service.codec.json_document import kind, quoted, to_python
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array

MAX_FLOAT32 = float(np.finfo(np.float32).max)


def cell_number(cell: object, column: Column, where: str) -> float:
    """The number for a cell, NaN for a blank. `where` names the cell in error messages.

    Raises:
        RequestError: The cell is no value of its column, or a blank where none is allowed.
    """
    form = column.form
    if not isinstance(cell, str | int | float | date | None):
        raise RequestError(f"{where}: expected {form.expected}, got {kind(cell)}")
    if is_blank(cell, form.kind):
        if column.blanks:
            return float("nan")
        got = "null" if cell is None else quoted(str(cell))
        raise RequestError(f"{where}: expected {form.expected}, since this column has no blanks, got {got}")
    if form.kind == "category" and not form.categories:
        raise RequestError(
            f"{where}: expected a tensor with the index of the category, since the model does not publish "
            f"the words of this column, got {quoted(str(cell))}"
        )
    try:
        number = form.number_of(cell)
    except CellError as error:
        raise RequestError(f"{where}: {error}") from None
    except OverflowError:
        number = float("inf")
    if abs(number) > MAX_FLOAT32:
        raise RequestError(
            f"{where}: expected numbers of at most {MAX_FLOAT32:.8g} in size (FP32), got {quoted(str(cell))}"
        )
    return number


def read_json_cells(instances: JsonArray, signature: Signature) -> Array:
    """The numbers of rows in JSON: arrays of cells in the order of the columns, or objects by their names.

    A row may also be `{"input": cells}`. An object may leave out columns that may be blank.
    """
    columns = signature.columns
    rows = to_python(instances)
    numbers = np.empty((len(rows), len(columns)))
    for index, (node, row) in enumerate(zip(instances, rows, strict=True)):
        cells = _cells(node, row, signature, f"instances[{index}]")
        for place, (cell, column) in enumerate(zip(cells, columns, strict=True)):
            where = f"instances[{index}], feature {quoted(column.name)}"
            numbers[index, place] = cell_number(cell, column, where)
    return numbers


def _cells(node: Any, row: object, signature: Signature, where: str) -> Sequence[object]:
    """The cells of a row in the order of the columns."""
    (name,) = signature.inputs
    if isinstance(row, dict) and list(row) == [name] and isinstance(row[name], list):
        row = row[name]
    if isinstance(row, dict):
        return _named_cells(node, row, signature.columns, where)
    if not isinstance(row, list):
        raise RequestError(f"{where}: expected an array of cells, or an object by features, got {kind(row)}")
    if len(row) != len(signature.columns):
        raise RequestError(f"{where}: expected {len(signature.columns)} cells, got {len(row)}")
    return row


def _named_cells(
    node: Any, row: Mapping[str, object], columns: Sequence[Column], where: str
) -> Sequence[object]:
    # a dict has the last of several values of one key
    names = [column.name for column in columns]
    left_out = [column.name for column in columns if column.blanks and column.name not in row]
    if len(node) != len(row) or {*row, *left_out} != set(names):
        expect_features([*node, *left_out], names, where)
    return [row.get(name) for name in names]
