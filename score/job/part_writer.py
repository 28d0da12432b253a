"""Writes tables to a Parquet file, many of them in each row group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyarrow
from pyarrow import parquet

from turnpike.score.errors import RowsError

# rows that are held until they are written together
ROW_GROUP_ROWS = 65_536


class PartWriter:
    """Writes the tables of a part. All have the columns of the first row group."""

    def __init__(
        self, path: Path, empty_schema: pyarrow.Schema, metadata: Mapping[str, str], where: str
    ) -> None:
        self._path, self._metadata, self._where = path, metadata, where
        self._empty = empty_schema.empty_table()
        self._pending: list[pyarrow.Table] = []
        self._file: parquet.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write_pending()
        finally:
            if self._file is not None:
                self._file.close()

    def write(self, table: pyarrow.Table) -> None:
        self._pending.append(table)
        if sum(table.num_rows for table in self._pending) >= ROW_GROUP_ROWS:
            self._write_pending()

    def _write_pending(self) -> None:
        try:
            # a column may have no value in one of the tables
            table = pyarrow.concat_tables(self._pending or [self._empty], promote_options="permissive")
            if self._file is not None and table.schema != self._file.schema:
                table = table.select(self._file.schema.names).cast(self._file.schema)
        except (pyarrow.ArrowException, KeyError) as error:
            raise RowsError(f"{self._where}: expected the same columns in all rows ({error})") from error
        self._pending.clear()
        if self._file is None:
            # numbers seldom repeat, so a dictionary of them only takes time
            words = [field.name for field in table.schema if not _is_number(field.type)]
            self._file = parquet.ParquetWriter(
                self._path, table.schema.with_metadata(self._metadata), use_dictionary=words
            )
        if table.num_rows:
            self._file.write_table(table, ROW_GROUP_ROWS)


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
