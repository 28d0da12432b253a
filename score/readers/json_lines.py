"""Reads files with a JSON value per line: an object with features or inputs by name, or a list of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow

from turnpike.score.readers.bad_rows import good_rows
from turnpike.score.readers.cells import cell_feeds
from turnpike.score.readers.columns import ColumnMap
from turnpike.score.readers.kept import choose_kept, folder_columns
from turnpike.score.readers.parts import Part, RowBatch
from turnpike.score.readers.text_parts import pieces_of, split_text
from turnpike.service.artifact.signature import Signature
from turnpike.service.codec.feature_names import expect_columns
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array


class JsonLinesReader:
    """Reads lines as `turnpike predict` does; blank lines are left out."""

    def split(self, path: str) -> Iterator[Part]:
        yield from split_text(path, 0, 1, quotes=False)

    def read(
        self, part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
    ) -> Iterator[RowBatch]:
        rows = _JsonRows(signature, part, keep)
        for piece in pieces_of(part, quotes=False):
            for number, line in enumerate(piece.text.split(b"\n"), piece.first_line):
                if line.strip():
                    rows.add(line, number)
                if len(rows.lines) == batch_rows:
                    yield rows.to_batch()
        if rows.lines:
            yield rows.to_batch()


class _JsonRows:
    """Collects the values of some lines, and converts them together."""

    def __init__(self, signature: Signature, part: Part, keep: Sequence[str] | None) -> None:
        self._signature, self._part, self._keep = signature, part, keep
        self._path, self._folder_columns = part.path, folder_columns(part)
        self.lines: list[int] = []
        self._rows: list[dict[str, Any]] = []
        self._bad: dict[int, str] = {}
        # names of rows that were checked
        self._known: set[frozenset[str]] = set()

    def add(self, line: bytes, number: int) -> None:
        row = {}
        try:
            row = self._named(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            self._bad[len(self.lines)] = f"{self._path}, line {number}: expected JSON ({error})"
        except RequestError as error:
            self._bad[len(self.lines)] = f"{self._path}, line {number}: {error}"
        self._rows.append(row)
        self.lines.append(number)

    def to_batch(self) -> RowBatch:
        rows, lines, bad = self._rows, self.lines, self._bad
        self._rows, self.lines, self._bad = [], [], {}
        if self._signature.columns:
            return self._cells_batch(rows, lines, bad)
        names = max(
            Counter(tuple(row) for row in rows if row).items(), key=lambda item: item[1], default=((), 0)
        )[0]
        if not names:
            return RowBatch({}, {}, len(rows), bad)
        for index, row in enumerate(rows):
            if row.keys() != set(names):
                bad.setdefault(
                    index,
                    f"{self._path}, line {lines[index]}: expected the keys of the other lines, got others",
                )
                rows[index] = {}
        columns = ColumnMap(names, self._signature, self._part, self._keep)
        arrays = [_to_arrow([row.get(name) for row in rows]) for name in names]
        table = pyarrow.RecordBatch.from_arrays(arrays, names=list(names))
        return columns.to_rows(table, lambda index: f"line {lines[index]}", bad)

    def _named(self, row: Any) -> dict[str, Any]:
        """A row by the names of its cells or inputs."""
        signature = self._signature
        if signature.columns:
            return self._with_blanks(row)
        if isinstance(row, dict):
            return row
        if signature.features and isinstance(row, list):
            if len(row) != len(signature.features):
                raise RequestError(f"expected {len(signature.features)} numbers, or an object by features")
            return dict(zip(signature.features, row, strict=True))
        if len(signature.inputs) != 1:
            raise RequestError(f"expected an object with {', '.join(signature.inputs)}")
        return {next(iter(signature.inputs)): row}

    def _with_blanks(self, row: Any) -> dict[str, Any]:
        """A row of cells, with None for those that it may leave out."""
        signature = self._signature
        if isinstance(row, dict):
            row = self._folder_columns | row
            if (names := frozenset(row)) not in self._known:
                try:
                    expect_columns(list(row), signature, "an object")
                except RequestError as error:
                    raise RequestError(str(error).removeprefix("an object: ")) from error
                self._known.add(names)
            return {column.name: None for column in signature.columns if column.blanks} | row
        if not isinstance(row, list) or len(row) != len(signature.columns):
            raise RequestError(f"expected {len(signature.columns)} cells, or an object by features")
        return dict(zip(signature.features, row, strict=True))

    def _cells_batch(self, rows: list[dict[str, Any]], lines: list[int], bad: dict[int, str]) -> RowBatch:
        """Cells of several kinds may be in one column, so they are converted without Arrow."""
        features = self._signature.features

        def convert(indices: Array) -> dict[str, Array]:
            some = [rows[index] for index in indices.tolist()]
            cells = {name: [row[name] for row in some] for name in features}
            return cell_feeds(
                cells,
                self._signature,
                lambda position, name: f"{self._path}, line {lines[indices[position]]}, column {name!r}",
            )

        feeds, bad = good_rows(len(rows), convert, bad)
        names = list(dict.fromkeys(name for row in rows for name in row))
        kept = {
            name: _to_arrow([row.get(name) for row in rows])
            for name in choose_kept(names, features, self._keep, self._path)
        }
        return RowBatch(feeds, kept, len(rows), bad)


def _to_arrow(values: Sequence[Any]) -> pyarrow.Array:
    """A column of values; if they are of several kinds, as lists of numbers or as texts."""
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        pass
    if sum(isinstance(value, list) for value in values) > len(values) // 2:
        return pyarrow.array([_as_numbers(value) for value in values])
    return pyarrow.array(
        [value if isinstance(value, str | None) else orjson.dumps(value).decode() for value in values],
        pyarrow.string(),
    )


def _as_numbers(value: Any) -> list[float] | None:
    try:
        return np.asarray(value, np.float64).reshape(-1).tolist() if isinstance(value, list) else None
    except (ValueError, TypeError):
        return None
