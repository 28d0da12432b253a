"""Reads CSV files, by the names in their first line or by the order of their columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow
from pyarrow import csv as arrow_csv

from turnpike.score.errors import RowsError
from turnpike.score.readers.columns import ColumnMap
from turnpike.score.readers.parts import Part, RowBatch, spans
from turnpike.score.readers.text_parts import MAX_RECORD_BYTES, Piece, opened, pieces_of, split_text
from turnpike.service.artifact.signature import Signature

DELIMITERS = ",;\t"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CsvReader:
    """Reads comma-separated text; semicolons and tabs separate, too, if the first line has more of them."""

    def split(self, path: str) -> Iterator[Part]:
        header = _Header(path)
        yield from split_text(path, header.length, header.lines + 1, quotes=True)

    def read(
        self, part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
    ) -> Iterator[RowBatch]:
        header = _Header(part.path)
        # columns without names have those of the model's features, or their numbers
        names = header.names or list(signature.features) or [str(n + 1) for n in range(header.width)]
        columns = ColumnMap(names, signature, part, keep)
        table = _CsvTable(names, columns, signature, header.delimiter, part.path)
        for piece in pieces_of(part, quotes=True):
            yield from table.read(piece, batch_rows)


class _Header:
    """The first line of a file: its names, unless one of its cells is a number."""

    def __init__(self, path: str) -> None:
        with opened(path) as file:
            line = file.readline()
            while line.count(b'"') % 2 and len(line) < MAX_RECORD_BYTES and (more := file.readline()):
                line += more
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


class _CsvTable:
    """Reads the rows of pieces of text: fast, and again slowly from the first row on that may be bad."""

    def __init__(
        self, names: list[str], columns: ColumnMap, signature: Signature, delimiter: str, path: str
    ) -> None:
        self._names, self._columns, self._delimiter, self._path = names, columns, delimiter, path
        # numbers in columns that are plain numbers, text as it is in all others
        read = pyarrow.string() if signature.columns or columns.has_texts else pyarrow.float64()
        self._types = dict.fromkeys(columns.kept, pyarrow.string()) | dict.fromkeys(columns.read, read)

    def read(self, piece: Piece, batch_rows: int) -> Iterator[RowBatch]:
        done = 0
        try:
            for batch in self._parse(piece.text).to_batches(max_chunksize=batch_rows):
                rows = self._columns.to_rows(batch, lambda _: f"from line {piece.first_line} on")
                if rows.bad:
                    break
                yield rows
                done += batch.num_rows
            else:
                return
        except pyarrow.ArrowInvalid:
            if not piece.text.strip():
                return
        yield from self._read_slowly(piece, done, batch_rows)

    def _parse(self, text: bytes) -> pyarrow.Table:
        return arrow_csv.read_csv(
            io.BytesIO(text),
            arrow_csv.ReadOptions(use_threads=False, column_names=self._names, block_size=max(len(text), 1)),
            arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=self._types, null_values=[], strings_can_be_null=False),
        )

    def _read_slowly(self, piece: Piece, done: int, batch_rows: int) -> Iterator[RowBatch]:
        """The rows after the first `done`, with the line of each that is bad."""
        rows, lines = self._rows(piece)
        width = len(self._names)
        for start, stop in spans(len(rows) - done, batch_rows):
            some, places = rows[done + start : done + stop], lines[done + start : done + stop]
            bad = {
                index: f"{self._path}, line {line}: expected {width} columns, got {len(cells)}"
                for index, (cells, line) in enumerate(zip(some, places, strict=True))
                if len(cells) != width
            }
            bad |= {
                index: f"{self._path}, line {places[index]}: expected text in UTF-8, got other bytes"
                for index, cells in enumerate(some)
                if "\ufffd" in "".join(cells) and b"\xef\xbf\xbd" not in piece.text
            }
            cells = zip(*(cells if len(cells) == width else [None] * width for cells in some), strict=True)
            table = pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(column, pyarrow.string()) for column in cells], self._names
            )
            yield self._columns.to_rows(table, partial(_line_text, places), bad)

    def _rows(self, piece: Piece) -> tuple[list[list[str]], list[int]]:
        """The cells of each row, and the line at which it ends."""
        text = io.StringIO(piece.text.decode("utf-8", "replace"), newline="")
        reader = csv.reader(text, delimiter=self._delimiter)
        rows, lines = [], []
        try:
            for cells in reader:
                if cells:
                    rows.append(cells)
                    lines.append(piece.first_line + reader.line_num - 1)
        except csv.Error as error:
            line = piece.first_line + reader.line_num - 1
            raise RowsError(
                f"{self._path}, line {line}: expected CSV, got something else ({error})"
            ) from error
        return rows, lines


def _line_text(lines: Sequence[int], index: int) -> str:
    return f"line {lines[index]}"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
