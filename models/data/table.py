"""Tables with named columns, as .csv, .tsv or .parquet: one column has the class, the others are numbers."""

from __future__ import annotations

import csv
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.errors import DataError

CSV_ENDINGS = (".csv", ".tsv")
PARQUET_ENDINGS = (".parquet", ".pq")
DELIMITERS = ",;\t"
MAX_FLOAT32 = torch.finfo(torch.float32).max
MAX_CELL_CHARACTERS = 40  # longer cells are cut in messages


@dataclass(frozen=True)
class _Table:
    """The cells of a file by column. `places` names each row in messages."""

    names: list[str]
    columns: list[Sequence[Any]]
    places: Sequence[str]


def is_table(path: Path) -> bool:
    """Whether the ending of a file says that it is a table."""
    return path.suffix.lower() in (*CSV_ENDINGS, *PARQUET_ENDINGS)


def column_names(path: Path) -> tuple[str, ...]:
    """The names of all columns of a table, in order."""
    return tuple(_read_file(path).names)


def read_table(path: Path, target: str | None = None) -> RawDataset:
    """Read a table whose rows are examples.

    Args:
        path: A file whose first line has the names of the columns, or a Parquet file.
        target: Name of the column with the classes, as text or whole numbers; None for the last column.
    """
    table = _read_file(path)
    if not table.places:
        raise DataError(f"{path}: expected rows under the names of the columns, got none")
    target = table.names[-1] if target is None else target
    if target not in table.names:
        raise DataError(f"{path}: --target: expected one of {', '.join(table.names)}, got {target!r}")
    features = tuple(name for name in table.names if name != target)
    values = [
        [_to_number(path, place, name, cell) for place, cell in zip(table.places, column, strict=True)]
        for name, column in zip(table.names, table.columns, strict=True)
        if name != target
    ]
    labels, classes = _to_classes(path, target, table)
    x = torch.tensor(values, dtype=torch.float32).T.contiguous()
    rows = Split(x, torch.tensor(classes))
    return RawDataset(path.stem, rows, None, labels, "numbers", features=features, target=target)


def _read_file(path: Path) -> _Table:
    table = _read_parquet(path) if path.suffix.lower() in PARQUET_ENDINGS else _read_csv(path)
    _expect_names(path, table.names)
    return table


def _read_csv(path: Path) -> _Table:
    rows, places = [], []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first_line = file.readline()
            file.seek(0)
            delimiter = max(DELIMITERS, key=first_line.count)
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            for cells in reader:
                if cells:  # an empty line has no cells
                    rows.append([cell.strip() for cell in cells])
                    places.append(f"line {reader.line_num}")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8, got other bytes") from error
    except csv.Error as error:
        raise DataError(
            f"{path}: line {reader.line_num}: expected comma-separated values ({error})"
        ) from error
    if not rows:
        raise DataError(f"{path}: expected a first line with the names of the columns, got an empty file")
    names = rows[0]
    for cells, place in zip(rows, places, strict=True):
        if len(cells) != len(names):
            raise DataError(
                f"{path}: {place}: expected {len(names)} values, as in the first line, got {len(cells)}"
            )
    columns: list[Sequence[Any]] = list(zip(*rows[1:], strict=True)) or [()] * len(names)
    return _Table(names, columns, places[1:])


def _read_parquet(path: Path) -> _Table:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"{path}: a Parquet file needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.ParquetFile(path).read()
    except Exception as error:  # pyarrow has many errors for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: expected a Parquet file, cannot read it ({reason})") from error
    columns = [column.to_pylist() for column in table.columns]
    return _Table(list(table.column_names), columns, [f"row {row}" for row in range(table.num_rows)])


def _expect_names(path: Path, names: list[str]) -> None:
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{path}: expected a name for each column, column {number} has none")
        if name in names[: number - 1]:
            raise DataError(f"{path}: expected distinct names of columns, got {name!r} twice")
    if len(names) < 2:
        raise DataError(f"{path}: expected 2 columns or more, one of them with the classes, got {len(names)}")
    if all(_parse_number(name) is not None for name in names[:-1]):
        raise DataError(f"{path}: expected the names of the columns in the first line, got numbers")


def _parse_number(cell: Any) -> float | None:
    if isinstance(cell, str) and "_" in cell:
        return None  # Python reads 1_000 as a number
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _to_number(path: Path, place: str, name: str, cell: Any) -> float:
    number = _parse_number(cell)
    if number is None or not abs(number) <= MAX_FLOAT32:
        raise DataError(f"{path}: {place}, column {name!r}: expected a number, got {_in_words(cell)}")
    return number


def _to_classes(path: Path, target: str, table: _Table) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the classes, and the class of each row.

    Whole numbers are sorted as numbers; anything else as text.
    """
    cells = table.columns[table.names.index(target)]
    for place, cell in zip(table.places, cells, strict=True):
        if cell is None or cell == "":
            raise DataError(f"{path}: {place}, column {target!r}: expected a class, got {_in_words(cell)}")
    numbers = [_parse_number(cell) for cell in cells]
    names: list[str] = []
    if any(number is None for number in numbers):
        names = [str(cell) for cell in cells]
        labels = sorted(set(names))
    else:
        for place, cell, number in zip(table.places, cells, numbers, strict=True):
            if number is None or not math.isfinite(number) or number != int(number):
                raise DataError(
                    f"{path}: {place}, column {target!r}: expected a class as text or a whole number, "
                    f"got {_in_words(cell)}; --target names the column with the classes"
                )
            names.append(str(int(number)))
        labels = sorted(set(names), key=int)
    if len(labels) < 2:
        raise DataError(f"{path}: column {target!r}: expected 2 classes or more, got {len(labels)}")
    index = {label: number for number, label in enumerate(labels)}
    return tuple(labels), [index[name] for name in names]


def _in_words(cell: Any) -> str:
    if cell is None or cell == "":
        return "a missing value"
    text = repr(cell)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 3] + "..."
