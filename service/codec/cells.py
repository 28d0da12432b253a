"""Converts the cells of rows, as users have them, to the numbers of a network that reads a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from math import isnan
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
from simdjson import Array as JsonArray

from turnpike.common.columns import CellError, ColumnForm, is_blank
from turnpike.service.artifact.signature import Column, Signature
from turnpike.service.codec.feature_names import expect_features
from turnpike.service.codec.json_document import kind, quoted, to_python
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array

MAX_FLOAT32 = float(np.finfo(np.float32).max)
# rows from which on it is faster to convert column by column
MIN_COLUMN_ROWS = 8
# equal values of one of these types are one word, one number or one date
HASHED_TYPES = (str, int, float, bool)
CELL_TYPES = frozenset({*HASHED_TYPES, NoneType})

# names a cell in error messages, by the index of its row and its column
PlaceOf: TypeAlias = Callable[[int, Column], str]


def cell_numbers(rows: Sequence[Sequence[object]], columns: Sequence[Column], place: PlaceOf) -> Array:
    """The numbers for rows that have a cell for each column; NaN stands for a blank.

    Raises:
        RequestError: A cell is no value of its column, or a blank where none is allowed. The message names
            the first such cell, row by row.
    """
    by_column = len(rows) >= MIN_COLUMN_ROWS
    numbers = _numbers_by_column(rows, columns) if by_column else _numbers_by_row(rows, columns)
    if numbers is not None:
        return numbers
    # a cell is wrong, or of a type that needs a closer look
    return np.array(
        [
            [_cell_number(*cell, partial(place, index, cell[1])) for cell in zip(row, columns, strict=True)]
            for index, row in enumerate(rows)
        ],
        np.float64,
    ).reshape(len(rows), len(columns))


def _numbers_by_row(rows: Sequence[Sequence[object]], columns: Sequence[Column]) -> Array | None:
    """The numbers for a few rows of cells, None if a cell may be wrong."""
    numbers = []
    try:
        for row in rows:
            for cell, column in zip(row, columns, strict=True):
                form = column.form
                # any value has a text, which would be a word
                if form.kind == "category" and not (form.categories and type(cell) in CELL_TYPES):
                    return None
                number = form.number_of(cell)
                if not (-MAX_FLOAT32 <= number <= MAX_FLOAT32 or (isnan(number) and column.blanks)):
                    return None
                numbers.append(number)
    except (CellError, OverflowError):
        return None
    return np.array(numbers, np.float64).reshape(len(rows), len(columns))


def _numbers_by_column(rows: Sequence[Sequence[object]], columns: Sequence[Column]) -> Array | None:
    """The numbers for rows of cells, None if a cell is wrong."""
    numbers = np.empty((len(rows), len(columns)))
    try:
        for index, (cells, column) in enumerate(zip(zip(*rows, strict=True), columns, strict=True)):
            numbers[:, index] = _column_numbers(cells, column.form)
    except (CellError, OverflowError):
        return None
    is_wrong = np.isnan(numbers) & np.array([not column.blanks for column in columns])
    is_wrong |= np.abs(numbers) > MAX_FLOAT32
    return None if is_wrong.any() else numbers


def _column_numbers(cells: Sequence[object], form: ColumnForm) -> Array | list[float]:
    """The numbers for the cells of a column, converted together where all of them are of one type.

    Raises:
        CellError, OverflowError: A cell is no value of this column.
    """
    types = {*map(type, cells)} - {NoneType}
    if not all(issubclass(type_, str | int | float | date) for type_ in types) or (
        form.kind == "category" and not form.categories
    ):
        raise CellError
    if (form.kind == "number" and types <= {int, float}) or (form.kind == "boolean" and types <= {bool}):
        # NumPy converts None to NaN
        return np.array(cells, np.float64)
    if form == ColumnForm() and types == {str} and (numbers := _plain_numbers(cells)) is not None:
        return numbers
    if len(types) == 1 and types.issubset(HASHED_TYPES):
        known = {cell: form.number_of(cell) for cell in set(cells)}
        return [known[cell] for cell in cells]
    return [form.number_of(cell) for cell in cells]


def _plain_numbers(texts: Sequence[Any]) -> Array | None:
    """The numbers in texts that are plain numbers or empty, None if others are among them."""
    try:
        numbers = np.array([float(text or "nan") for text in texts])
    except (ValueError, TypeError):
        return None
    # float() also reads infinities, other spellings of NaN, and 1_000
    missing = np.count_nonzero(~np.isfinite(numbers))
    return numbers if missing == texts.count("") and "_" not in "".join(texts) else None


def _cell_number(cell: object, column: Column, place: Callable[[], str]) -> float:
    """The number for a cell, NaN for a blank. Raises RequestError if there is none."""
    form = column.form
    if not isinstance(cell, str | int | float | date | None):
        raise RequestError(f"{place()}: expected {form.expected}, got {kind(cell)}")
    if is_blank(cell, form.kind):
        if column.blanks:
            return float("nan")
        got = "null" if cell is None else quoted(str(cell))
        raise RequestError(f"{place()}: expected {form.expected}, since this column has no blanks, got {got}")
    if form.kind == "category" and not form.categories:
        raise RequestError(
            f"{place()}: expected a tensor with the index of the category, since the model does not publish "
            f"the words of this column, got {quoted(str(cell))}"
        )
    try:
        number = form.number_of(cell)
    except CellError as error:
        raise RequestError(f"{place()}: {error}") from None
    except OverflowError:
        number = float("inf")
    if abs(number) > MAX_FLOAT32:
        raise RequestError(
            f"{place()}: expected numbers of at most {MAX_FLOAT32:.8g} in size (FP32), "
            f"got {quoted(str(cell))}"
        )
    return number


def read_json_cells(instances: JsonArray, signature: Signature) -> tuple[Array, Sequence[Sequence[object]]]:
    """The numbers and cells of rows in JSON: arrays in the order of the columns, or objects by their names.

    A row may also be `{"input": cells}`. An object may leave out columns that may be blank.
    """
    rows: list[Sequence[object]] = []
    try:
        for index, (node, row) in enumerate(zip(instances, to_python(instances), strict=True)):
            rows.append(_cells(node, row, signature, f"instances[{index}]"))
    except RequestError:
        # a wrong cell of an earlier row comes first
        cell_numbers(rows, signature.columns, _json_place)
        raise
    return cell_numbers(rows, signature.columns, _json_place), rows


def _json_place(index: int, column: Column) -> str:
    return f"instances[{index}], feature {quoted(column.name)}"


def _cells(node: Any, row: object, signature: Signature, where: str) -> Sequence[object]:
    """The cells of a row in the order of the columns."""
    if isinstance(row, dict):
        (name,) = signature.inputs
        if list(row) != [name] or not isinstance(row[name], list):
            return _named_cells(node, row, signature, where)
        row = row[name]
    if not isinstance(row, list):
        raise RequestError(f"{where}: expected an array of cells, or an object by features, got {kind(row)}")
    if len(row) != len(signature.columns):
        raise RequestError(f"{where}: expected {len(signature.columns)} cells, got {len(row)}")
    return row


def _named_cells(node: Any, row: Mapping[str, object], signature: Signature, where: str) -> Sequence[object]:
    names = signature.features
    # a dict has the last of several values of one key
    if len(row) != len(names) or len(node) != len(row) or any(name not in row for name in names):
        left_out = [column.name for column in signature.columns if column.blanks and column.name not in row]
        if not row.keys() <= set(names):
            # with all that are missing, since the unknown one may be one of them, spelled in another way
            expect_features(list(node), names, where)
        expect_features([*node, *left_out], names, where)
    return [row.get(name) for name in names]
