"""Reads CSV files, by the names in their first line or by the order of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow
from pyarrow import csv as arrow_csv

from turnpike.score.errors import RowsError
from turnpike.score.readers.cells import cell_feeds
from turnpike.score.readers.columns import ColumnMap
from turnpike.score.readers.parts import Part, RowBatch
from turnpike.score.readers.text_parts import split_lines
from turnpike.service.artifact.signature import Signature
from turnpike.service.codec.predict_csv import TEXT_COLUMN

DELIMITERS = ",;\t"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_SHOWN_CHARACTERS = 40
MAX_FLOAT32 = 3.4028234663852886e38


class CsvReader:
    """Reads comma-separated text; semicolons and tabs separate, too, if the first line has more of them."""

    def split(self, path: Path) -> Iterator[Part]:
        header = _Header(path)
        yield from split_lines(path, header.length, header.lines + 1, quotes=True)

    def read(self, part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
        header = _Header(Path(part.path))
        with Path(part.path).open("rb") as file:
            file.seek(part.start)
            text = file.read(part.stop - part.start)
        names = header.names or _numbered(header.width, signature)
        columns = ColumnMap(names, signature, part.path)
        table = _parse(text, names, columns, header.delimiter, part, signature)
        for batch in table.to_batches(max_chunksize=batch_rows):
            try:
                yield columns.to_rows(batch, lambda _: f"from line {part.first_line} on")
            except RowsError as error:
                fault = _first_fault(text, names, columns, header.delimiter, part, signature)
                raise (fault or error) from error


class _Header:
    """The first line of a file: its names, unless one of its cells is a number."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                line = file.readline()
                while line.count(b'"') % 2 and (more := file.readline()):
                    line += more
        except OSError as error:
            raise RowsError(f"{path}: expected a file that can be read ({error.strerror})") from error
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RowsError(f"{path}: expected text in UTF-8, got other bytes in the first line") from error
        self.delimiter = max(DELIMITERS, key=text.count)
        cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), [])
        if not cells:
            raise RowsError(f"{path}: expected rows, got an empty first line")
        self.width = len(cells)
        self.names: list[str] = []
        self.length, self.lines = len(BYTE_ORDER_MARK) * line.startswith(BYTE_ORDER_MARK), 0
        if not any(map(_is_number, cells)):
            self.names = [cell.strip() for cell in cells]
            self.length, self.lines = len(line), line.count(b"\n")
            if repeated := [name for index, name in enumerate(self.names) if name in self.names[:index]]:
                raise RowsError(f"{path}: expected distinct names of columns, got {repeated[0]!r} twice")


def _numbered(width: int, signature: Signature) -> list[str]:
    """Names for columns without names: those of the model's features, or their numbers."""
    return list(signature.features) or [str(number) for number in range(1, width + 1)]


def _parse(
    text: bytes, names: list[str], columns: ColumnMap, delimiter: str, part: Part, signature: Signature
) -> pyarrow.Table:
    """The cells: numbers in columns that are plain numbers, text as it is in all others."""
    read = pyarrow.string() if signature.columns or columns.has_texts else pyarrow.float64()
    types = dict.fromkeys(columns.read, read) | dict.fromkeys(columns.kept, pyarrow.string())
    try:
        return arrow_csv.read_csv(
            io.BytesIO(text),
            arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=max(len(text), 1)),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
        )
    except pyarrow.ArrowInvalid as error:
        if not text.strip():
            return pyarrow.table({name: pyarrow.array([], types[name]) for name in names})
        fault = _first_fault(text, names, columns, delimiter, part, signature)
        raise fault or RowsError(
            f"{part.path}: expected CSV from line {part.first_line} on, got something else ({error})"
        ) from error


def _first_fault(
    text: bytes, names: Sequence[str], columns: ColumnMap, delimiter: str, part: Part, signature: Signature
) -> RowsError | None:
    """Read the text again, slowly, to find the line and the column that cannot be read."""
    reader = csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline=""), delimiter=delimiter)
    for cells in reader:
        where = f"{part.path}, line {part.first_line + reader.line_num - 1}"
        if cells and len(cells) != len(names):
            return RowsError(f"{where}: expected {len(names)} columns, got {len(cells)}")
        if signature.columns and cells:
            try:
                named = {name: [cell] for name, cell in zip(names, cells, strict=True)}
                cell_feeds(named, signature, partial(_cell_place, where))
            except RowsError as error:
                return error
            continue
        if columns.has_texts:
            continue
        for name, cell in zip(names, cells, strict=False):
            if name in columns.read and not (_is_number(cell) and abs(float(cell)) <= MAX_FLOAT32):
                shown = repr(cell[:MAX_SHOWN_CHARACTERS]) if cell.strip() else "a missing value"
                hint = "" if signature.text is None else f"; texts are read from a column {TEXT_COLUMN!r}"
                return RowsError(f"{where}, column {name!r}: expected a finite number, got {shown}{hint}")
    return None


def _cell_place(where: str, _: int, name: str) -> str:
    return f"{where}, column {name!r}"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
