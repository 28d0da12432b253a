"""Writes the parts of a finished job into one file or stream of Parquet, CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import orjson
import pyarrow
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from turnpike.score.errors import RowsError

ENDINGS = (".parquet", ".csv", ".jsonl")
# rows that are in memory together
BATCH_ROWS = 65_536


def write_parts(parts: Sequence[Path], file: BinaryIO, ending: str) -> None:
    """Write the rows of all parts in order; columns that a part lacks are empty there.

    Raises:
        RowsError: A column has numbers in one part and texts in another.
    """
    try:
        _write_parts(parts, file, ending)
    except pyarrow.ArrowException as error:
        raise RowsError(
            f"--output: expected files whose columns are alike, since they are put into one, got others "
            f"({error}); --keep chooses columns, and a folder may have files that are not alike"
        ) from error


def _write_parts(parts: Sequence[Path], file: BinaryIO, ending: str) -> None:
    schemas = [parquet.read_schema(part).remove_metadata() for part in parts]
    schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
    if ending == ".parquet":
        metadata = parquet.read_schema(parts[0]).metadata
        schema = schema.with_metadata({key: metadata[key] for key in (b"turnpike.model", b"turnpike.digest")})
        with parquet.ParquetWriter(file, schema) as writer:
            for table in _tables(parts, schema):
                writer.write_table(table)
    elif ending == ".csv":
        flat = pyarrow.schema([pyarrow.field(field.name, _csv_type(field.type)) for field in schema])
        with arrow_csv.CSVWriter(file, flat) as writer:
            for table in _tables(parts, schema):
                writer.write_table(pyarrow.table([_csv_cells(table[name]) for name in flat.names], flat))
    else:
        for table in _tables(parts, schema):
            lines = (orjson.dumps(row, _json_value, orjson.OPT_APPEND_NEWLINE) for row in table.to_pylist())
            file.write(b"".join(lines))


def _tables(parts: Sequence[Path], schema: pyarrow.Schema) -> Iterator[pyarrow.Table]:
    empty = schema.empty_table()
    for part in parts:
        with parquet.ParquetFile(part) as file:
            for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                table = pyarrow.concat_tables(
                    [empty, pyarrow.Table.from_batches([batch])], promote_options="permissive"
                )
                yield table.cast(schema)


def _csv_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    return pyarrow.string() if pyarrow.types.is_dictionary(kind) or pyarrow.types.is_nested(kind) else kind


def _csv_cells(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Cells of CSV; lists are JSON there."""
    if pyarrow.types.is_nested(column.type):
        lists = column.to_pylist()
        cells = [None if cell is None else orjson.dumps(cell, _json_value).decode() for cell in lists]
        return pyarrow.array(cells, pyarrow.string())
    return column.cast(_csv_type(column.type))


def _json_value(value: object) -> str:
    """A value that JSON has no type for, such as a decimal or bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
