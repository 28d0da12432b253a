"""Rows of a real table as a service takes them: cells in JSON, or the numbers that a network gets for them.

Words, dates, booleans and blanks come from lists, dicts and DataFrames. pandas is never imported: a caller
who passes its values has done so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from turnpike.client.errors import InputError
from turnpike.client.inputs import Array, is_table
from turnpike.common.columns import ISO, KINDS, CellError, ColumnForm, date_text
from turnpike.common.similar_names import misspelled_text, similar_name

# columns that an error lists
MAX_LISTED = 5

Cell = str | float | bool | None


class Column(NamedTuple):
    """A column of the model's table: its name, what its cells mean, and whether they may be blank."""

    name: str
    form: ColumnForm
    blanks: bool


def model_columns(features: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns of a model, by the features of its certificate."""
    columns = []
    for feature in features:
        kind = feature.get("kind", "number")
        form = ColumnForm(
            # a newer service may know more kinds, and reads their cells as they are
            kind if kind in KINDS else "category",
            tuple(feature.get("categories", ())),
            feature.get("date_format", ISO),
            feature.get("decimal_comma", False),
            feature.get("affix", ""),
        )
        columns.append(Column(feature["name"], form, feature.get("blanks", False)))
    return columns


def are_plain(columns: Sequence[Column]) -> bool:
    """Whether all cells are numbers as JSON has them, and never blank."""
    return all(column.form == ColumnForm() and not column.blanks for column in columns)


def has_names(rows: object) -> bool:
    """Whether these are rows with a name for each cell."""
    return isinstance(rows, list | tuple) and bool(rows) and isinstance(rows[0], Mapping)


def has_cells(rows: object) -> bool:
    """Whether these are rows of which some cell has a name, or is no number."""
    if isinstance(rows, np.ndarray):
        return rows.ndim == 2 and rows.dtype.kind in "OUM"
    if has_names(rows):
        return True
    if not isinstance(rows, list | tuple):
        return False
    types: set[type] = set()
    for row in rows:
        if isinstance(row, list | tuple):
            types.update(map(type, row))
    return any(issubclass(type_, _cell_types()) for type_ in types)


def cell_rows(rows: Any, columns: Sequence[Column], model: str) -> list[list[Cell]]:
    """The cells of all rows, in the order of the columns and as JSON has them; None stands for a blank.

    Cells by other names are ignored. Those that may be blank may be left out, unless another name is almost
    that of their column.
    """
    subject = f"rows for model {model!r}"
    if is_table(rows):
        values = _table_columns(rows, columns, subject)
    else:
        values = _row_columns(rows.tolist() if isinstance(rows, np.ndarray) else rows, columns, subject)
    cells = [
        [_to_json(cell, column, f"{subject}, column {column.name!r}") for cell in column_values]
        for column, column_values in zip(columns, values, strict=True)
    ]
    return [list(row) for row in zip(*cells, strict=True)]


def column_rows(columns: Mapping[str, Any], model: str) -> list[dict[str, Any]]:
    """Rows with names, of a dict of columns."""
    lists = {name: list(values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"rows for model {model!r}", f"expected columns of one length, got {lengths}")
    return [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]


def text_rows(rows: Sequence[Mapping[str, Any]], model: str) -> list[Any]:
    """The texts of rows with names, which have them by the name `text`."""
    for index, row in enumerate(rows):
        if "text" not in row:
            reason = f"expected 'text' in row {index}, got {list(row)}"
            raise InputError(f"rows for model {model!r}", reason)
    return [row["text"] for row in rows]


def to_numbers(rows: Sequence[Sequence[Cell]], columns: Sequence[Column], model: str) -> Array:
    """The numbers for rows of cells, as the network gets them; NaN stands for a blank."""
    numbers = np.empty((len(rows), len(columns)))
    for index, row in enumerate(rows):
        for place, (cell, column) in enumerate(zip(row, columns, strict=True)):
            subject = f"row {index} for model {model!r}, column {column.name!r}"
            form = column.form
            if cell is not None and form.kind == "category" and not form.categories:
                raise InputError(subject, "expected a tensor, since the model does not publish its words")
            try:
                number = form.number_of(cell)
            except CellError as error:
                raise InputError(subject, str(error)) from None
            if math.isnan(number) and not column.blanks:
                raise InputError(subject, f"expected {form.expected}, since this column has no blanks")
            numbers[index, place] = number
    return numbers


def table_rows(table: Any, names: Sequence[str], model: str) -> list[list[Any]]:
    """The rows of a table of plain numbers or texts, with the columns of these names if there are any."""
    frame = table.to_frame().T if table.ndim == 1 else table
    if names:
        places = _places(frame, names, names, f"rows for model {model!r}")
        frame = frame.iloc[:, [places[name] for name in names]]
    # as lists: pandas turns mixed number and boolean columns into objects
    rows: list[list[Any]] = frame.to_numpy().tolist()
    return rows


def _table_columns(table: Any, columns: Sequence[Column], subject: str) -> list[list[Any]]:
    """The cells of each column of a DataFrame, or of a Series, which is one row."""
    frame = table.to_frame().T if table.ndim == 1 else table
    needed = [column.name for column in columns if not column.blanks]
    places = _places(frame, [column.name for column in columns], needed, subject)
    return [
        frame.iloc[:, places[column.name]].tolist() if column.name in places else [None] * len(frame)
        for column in columns
    ]


def _places(frame: Any, names: Sequence[str], needed: Sequence[str], subject: str) -> dict[str, int]:
    """The places of the columns of these names in a DataFrame, which may have others too.

    Only those that are needed have to be there, and at least one.
    """
    given = list(map(str, frame.columns))
    if missing := [name for name in _needed(names, needed, given) if name not in given]:
        fault = _missing_text(missing, given, names)
        raise InputError(subject, f"expected the columns {list(names)}, {fault}")
    if twice := [name for name in names if given.count(name) > 1]:
        raise InputError(subject, f"expected each column once, got {twice[0]!r} more than once")
    _expect_spelled(names, given, subject)
    return {name: given.index(name) for name in names if name in given}


def _needed(names: Sequence[str], needed: Sequence[str], given: Iterable[str]) -> Sequence[str]:
    """The columns that a table needs: all if it has none, since it is probably another table."""
    return names if set(names).isdisjoint(given) else needed


def _expect_spelled(names: Sequence[str], given: Iterable[str], subject: str) -> None:
    """Raise InputError if a column is missing, and another one has almost its name."""
    missing = [name for name in names if name not in given]
    if missing and (text := misspelled_text(missing, [name for name in given if name not in names])):
        raise InputError(subject, text)


def _missing_text(missing: Sequence[str], given: Sequence[str], names: Sequence[str]) -> str:
    """Which columns are missing, and what a column that is spelled like one of them may be meant for."""
    others = [name for name in given if name not in names]
    shown = ", ".join(map(repr, missing[:MAX_LISTED]))
    more = f" and {len(missing) - MAX_LISTED} more" if len(missing) > MAX_LISTED else ""
    text = f"and {shown}{more} {'is' if len(missing) == 1 else 'are'} missing"
    for name in missing[:MAX_LISTED]:
        if similar := similar_name(name, others):
            return f"{text}; is {similar!r} meant for {name!r}?"
    return f"{text}; there are also {others[:MAX_LISTED]}" if others else text


def _row_columns(rows: Sequence[Any], columns: Sequence[Column], subject: str) -> list[list[Any]]:
    """The cells of each column of rows that are lists, or dicts by the names of the columns."""
    values: list[list[Any]] = [[] for _ in columns]
    names = [column.name for column in columns]
    needed = [column.name for column in columns if not column.blanks]
    # the keys of rows that were checked
    known: set[frozenset[Any]] = set()
    for index, row in enumerate(rows):
        if isinstance(row, Mapping):
            if (keys := frozenset(row)) not in known:
                if missing := [name for name in _needed(names, needed, keys) if name not in keys]:
                    raise InputError(subject, f"expected {missing[0]!r} in row {index}, got {list(row)}")
                _expect_spelled(names, list(map(str, row)), f"{subject}, row {index}")
                known.add(keys)
            cells = [row.get(column.name) for column in columns]
        elif isinstance(row, list | tuple) and len(row) == len(columns):
            cells = list(row)
        else:
            got = f"{len(row)} cells" if isinstance(row, list | tuple) else repr(row)
            raise InputError(subject, f"expected {len(columns)} cells or a dict as row {index}, got {got}")
        for column_values, cell in zip(values, cells, strict=True):
            column_values.append(cell)
    return values


def _to_json(cell: Any, column: Column, subject: str) -> Cell:
    """A cell as JSON has it."""
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    elif isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or _is_missing(cell):
        return None
    if isinstance(cell, str | bool | int):
        return cell
    if isinstance(cell, date):
        return date_text(cell, column.form)
    if not isinstance(cell, Real) and not hasattr(cell, "__float__"):
        raise InputError(subject, f"expected {column.form.expected}, got {type(cell).__name__}")
    number = float(cell)
    if math.isinf(number):
        raise InputError(subject, f"expected a finite number, got {number}")
    return None if math.isnan(number) else number


def _is_missing(cell: object) -> bool:
    """Whether a cell is a missing value of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (cell is pandas.NA or cell is pandas.NaT)


def _cell_types() -> tuple[type, ...]:
    """The types of cells that are no numbers."""
    pandas = sys.modules.get("pandas")
    return (str, date, type(None), np.datetime64, *(() if pandas is None else (type(pandas.NA),)))
