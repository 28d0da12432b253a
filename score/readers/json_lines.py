"""Reads files with a JSON value per line: an object with features or inputs by name, or a list of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow

from turnpike.score.errors import RowsError
from turnpike.score.readers.cells import cell_feeds
from turnpike.score.readers.columns import ColumnMap
from turnpike.score.readers.parts import Part, RowBatch
from turnpike.score.readers.text_parts import split_lines
from turnpike.service.artifact.signature import Signature
from turnpike.service.codec.feature_names import expect_columns
from turnpike.service.errors import RequestError


class JsonLinesReader:
    """Reads lines as `turnpike predict` does; blank lines are left out."""

    def split(self, path: Path) -> Iterator[Part]:
        yield from split_lines(path, 0, 1, quotes=False)

    def read(self, part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
        rows: list[Any] = []
        lines: list[int] = []
        with Path(part.path).open("rb") as file:
            file.seek(part.start)
            for number, line in enumerate(file.read(part.stop - part.start).split(b"\n"), part.first_line):
                if not line.strip():
                    continue
                try:
                    rows.append(orjson.loads(line))
                except orjson.JSONDecodeError as error:
                    raise RowsError(f"{part.path}, line {number}: expected JSON ({error})") from error
                lines.append(number)
                if len(rows) == batch_rows:
                    yield _to_rows(rows, lines, signature, part.path)
                    rows, lines = [], []
        if rows:
            yield _to_rows(rows, lines, signature, part.path)


def _to_rows(rows: list[Any], lines: list[int], signature: Signature, path: str) -> RowBatch:
    if signature.columns:
        known: set[frozenset[str]] = set()
        rows = [
            _with_blanks(row, signature, f"{path}, line {line}", known)
            for row, line in zip(rows, lines, strict=True)
        ]
    if not isinstance(rows[0], dict):
        name = next(iter(signature.inputs)) if len(signature.inputs) == 1 else ""
        if signature.features:
            rows = [
                dict(zip(signature.features, row, strict=False)) if isinstance(row, list) else row
                for row in rows
            ]
        else:
            rows = [{name: row} for row in rows]
    for row, line in zip(rows, lines, strict=True):
        if not isinstance(row, dict) or row.keys() != rows[0].keys():
            raise RowsError(f"{path}, line {line}: expected the keys of the line before, got others")
    columns = ColumnMap(list(rows[0]), signature, path)
    # cells of several kinds may be in one column
    arrow_rows = [{name: row[name] for name in columns.kept} for row in rows] if signature.columns else rows
    try:
        table = pyarrow.RecordBatch.from_pylist(arrow_rows)
    except (pyarrow.ArrowException, OverflowError) as error:
        raise RowsError(
            f"{path}, lines {lines[0]} to {lines[-1]}: expected values of one kind for each key ({error})"
        ) from error
    if signature.columns:
        cells = {name: [row[name] for row in rows] for name in columns.read}
        feeds = cell_feeds(
            cells, signature, lambda index, name: f"{path}, line {lines[index]}, column {name!r}"
        )
        return RowBatch(feeds, {name: table.column(name) for name in columns.kept}, len(rows))
    return columns.to_rows(table, lambda index: f"line {lines[index]}")


def _with_blanks(row: Any, signature: Signature, where: str, known: set[frozenset[str]]) -> dict[str, Any]:
    """A row by the names of its cells, with None for those that it may leave out.

    `known` has the names of rows that were checked, and gets those of this one.
    """
    if isinstance(row, dict):
        if (names := frozenset(row)) not in known:
            try:
                expect_columns(list(row), signature, where)
            except RequestError as error:
                raise RowsError(str(error)) from error
            known.add(names)
        return {column.name: None for column in signature.columns if column.blanks} | row
    if not isinstance(row, list) or len(row) != len(signature.columns):
        raise RowsError(f"{where}: expected {len(signature.columns)} cells, or an object by features")
    return dict(zip(signature.features, row, strict=True))
