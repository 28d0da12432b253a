"""The cells of a table's file, as .csv, .tsv or .parquet, in columns."""

from __future__ import annotations

import csv
import gzip
import importlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from turnpike.common.columns import parse_number
from turnpike.models.errors import DataError

TEXT_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
DELIMITERS = ",;\t|"
# lines at the beginning by which the delimiter is found
SNIFFED_CHARACTERS = 1 << 16


@dataclass(frozen=True)
class Cells:
    """The cells of a file by column: texts, or the values of a Parquet file.

    Attributes:
        names: The names of the columns.
        columns: The cells of each column.
        places: Names each row in messages.
        delimiter: What stands between the cells of a text file; "" for a Parquet file.
    """

    names: list[str]
    columns: list[Sequence[Any]]
    places: Sequence[str]
    delimiter: str = ""


def without_rows(cells: Cells, left_out: Collection[int]) -> Cells:
    """The cells without some rows, which are given by their positions."""
    kept = [row for row in range(len(cells.places)) if row not in left_out]
    columns: list[Sequence[Any]] = [[values[row] for row in kept] for values in cells.columns]
    return replace(cells, columns=columns, places=[cells.places[row] for row in kept])


def is_table(path: Path) -> bool:
    """Whether the ending of a file says that it is a table."""
    return path.name.lower().endswith((*TEXT_ENDINGS, *PARQUET_ENDINGS))


def stem(path: Path) -> str:
    """The name of a table's file without its endings."""
    name = path.name.removesuffix(".gz")
    return name.rpartition(".")[0] or name


def read_cells(path: Path) -> Cells:
    """Read a file whose first line has the names of the columns, or a Parquet file.

    Raises:
        DataError: It is no such file, or a column has no name of its own.
    """
    cells = _read_parquet(path) if path.name.lower().endswith(PARQUET_ENDINGS) else _read_text(path)
    _expect_names(path, cells.names)
    return cells


def _read_text(path: Path) -> Cells:
    rows, places = [], []
    try:
        with _open(path) as file:
            delimiter = _delimiter_of(file.read(SNIFFED_CHARACTERS))
            file.seek(0)
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
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a file that gzip has compressed ({error})") from error
    if not rows:
        raise DataError(f"{path}: expected a first line with the names of the columns, got an empty file")
    names = rows[0]
    for cells, place in zip(rows, places, strict=True):
        if len(cells) != len(names):
            raise DataError(
                f"{path}: {place}: expected {len(names)} values, as in the first line, got {len(cells)}"
            )
    columns: list[Sequence[Any]] = list(zip(*rows[1:], strict=True)) or [()] * len(names)
    return Cells(names, columns, places[1:], delimiter)


def _open(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _delimiter_of(beginning: str) -> str:
    """The delimiter that the first line has most of, outside quotes."""
    line, in_quotes = [], False
    for character in beginning:
        if character == '"':
            in_quotes = not in_quotes
        elif character in "\r\n" and not in_quotes:
            break
        elif not in_quotes:
            line.append(character)
    return max(DELIMITERS, key=line.count)


def _read_parquet(path: Path) -> Cells:
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
    return Cells(list(table.column_names), columns, [f"row {row}" for row in range(table.num_rows)])


def _expect_names(path: Path, names: list[str]) -> None:
    for number, name in enumerate(names, 1):
        # pandas writes its index without a name, before the columns
        if not name and number > 1:
            raise DataError(f"{path}: expected a name for each column, column {number} has none")
        if name in names[: number - 1]:
            raise DataError(f"{path}: expected distinct names of columns, got {name!r} twice")
    if len(names) < 2:
        raise DataError(f"{path}: expected 2 columns or more, one of them to predict, got {len(names)}")
    if all(parse_number(name) is not None for name in names[:-1]):
        raise DataError(f"{path}: expected the names of the columns in the first line, got numbers")
