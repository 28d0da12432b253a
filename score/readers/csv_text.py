"""Reads CSV files, by the names in their first line or by the order of their columns."""

from __future__ import annotations

import csv
import io
from collections import Counter
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
# what Python decodes bytes to that are not UTF-8
REPLACEMENT = "\ufffd"


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
        try:
            cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), [])
        except csv.Error as error:
            raise RowsError(f"{path}, line 1: expected CSV, got something else ({error})") from error
        if not cells:
            raise RowsError(f"{path}: expected rows, got an empty first line")
        self.width = len(cells)
        self.names: list[str] = []
        self.length, self.lines = len(BYTE_ORDER_MARK) * line.startswith(BYTE_ORDER_MARK), 0
        if not any(map(_is_number, cells)):
            self.names = [cell.strip() for cell in cells]
            self.length, self.lines = len(line), line.count(b"\n")
            if repeated := [name for name, count in Counter(self.names).items() if count > 1]:
                raise RowsError(f"{path}: expected distinct names of columns, got {repeated[0]!r} twice")


class _CsvTable:
    """Reads the rows of pieces of text, by Arrow if it can."""

    def __init__(
        self, names: list[str], columns: ColumnMap, signature: Signature, delimiter: str, path: str
    ) -> None:
        self._names, self._columns, self._delimiter, self._path = names, columns, delimiter, path
        # numbers in columns that are plain numbers, text as it is in all others
        read = pyarrow.string() if signature.columns or columns.has_texts else pyarrow.float64()
        self._types = dict.fromkeys(columns.kept, pyarrow.string()) | dict.fromkeys(columns.read, read)

    def read(self, piece: Piece, batch_rows: int) -> Iterator[RowBatch]:
        try:
            table = self._parse(piece.text)
        except pyarrow.ArrowInvalid:
            yield from self._read_slowly(piece, batch_rows)
            return
        lines = _Lines(piece, self._delimiter, self._path)
        for batch in table.to_batches(max_chunksize=batch_rows):
            yield self._columns.to_rows(batch, lines.place)
            lines.skip(batch.num_rows)

    def _parse(self, text: bytes) -> pyarrow.Table:
        return arrow_csv.read_csv(
            io.BytesIO(text),
            arrow_csv.ReadOptions(use_threads=False, column_names=self._names, block_size=max(len(text), 1)),
            arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=self._types, null_values=[""], strings_can_be_null=False),
        )

    def _read_slowly(self, piece: Piece, batch_rows: int) -> Iterator[RowBatch]:
        """Rows of which one has a wrong number of cells, or a text in place of a number."""
        rows, lines = _rows(piece, self._delimiter, self._path)
        width = len(self._names)
        has_other_bytes = REPLACEMENT.encode() not in piece.text
        for start, stop in spans(len(rows), batch_rows):
            bad = {}
            for index, cells in enumerate(rows[start:stop]):
                where = f"{self._path}, line {lines[start + index]}"
                if len(cells) != width:
                    bad[index] = f"{where}: expected {width} columns, got {len(cells)}"
                elif has_other_bytes and REPLACEMENT in "".join(cells):
                    bad[index] = f"{where}: expected text in UTF-8, got other bytes"
            whole = (cells if len(cells) == width else [None] * width for cells in rows[start:stop])
            columns = [pyarrow.array(column, pyarrow.string()) for column in zip(*whole, strict=True)]
            table = pyarrow.RecordBatch.from_arrays(columns, self._names)
            yield self._columns.to_rows(table, partial(_line_text, lines[start:stop]), bad)


class _Lines:
    """The lines of rows, which are only looked for if one of them is bad."""

    def __init__(self, piece: Piece, delimiter: str, path: str) -> None:
        self._find = partial(_rows, piece, delimiter, path)
        self._lines: list[int] = []
        self._skipped = 0

    def skip(self, rows: int) -> None:
        self._skipped += rows

    def place(self, index: int) -> str:
        self._lines = self._lines or self._find()[1]
        return f"line {self._lines[self._skipped + index]}"


def _rows(piece: Piece, delimiter: str, path: str) -> tuple[list[list[str]], list[int]]:
    """The cells of each row, and the line at which it ends."""
    text = io.StringIO(piece.text.decode("utf-8", "replace"), newline="")
    reader = csv.reader(text, delimiter=delimiter)
    rows, lines = [], []
    try:
        for cells in reader:
            if cells:
                rows.append(cells)
                lines.append(piece.first_line + reader.line_num - 1)
    except csv.Error as error:
        line = piece.first_line + reader.line_num - 1
        raise RowsError(f"{path}, line {line}: expected CSV, got something else ({error})") from error
    return rows, lines


def _line_text(lines: Sequence[int], index: int) -> str:
    return f"line {lines[index]}"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
