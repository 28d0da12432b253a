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
    """Writes the tables of a part. All have the same columns; types become wider if later rows need it."""

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
            if kind is None and (self._pending or self._file is None):
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
                table = table.select(self._file.schema.names)
                schema = pyarrow.unify_schemas(
                    [self._file.schema, table.schema], promote_options="permissive"
                )
                self._widen(schema)
                table = table.cast(schema)
        except (pyarrow.ArrowException, KeyError) as error:
            raise RowsError(f"{self._where}: expected the same columns in all rows ({error})") from error
        self._pending.clear()
        if self._file is None:
            self._file = self._open(self._path, table.schema.with_metadata(self._metadata))
        if table.num_rows:
            self._file.write_table(table, ROW_GROUP_ROWS)

    def _widen(self, schema: pyarrow.Schema) -> None:
        """Write what is in the file once more, if the types of its columns are others."""
        if self._file is None or schema.equals(self._file.schema):
            return
        self._file.close()
        wider = self._path.with_name(f"{self._path.name}.wider")
        self._file = self._open(wider, schema)
        with parquet.ParquetFile(self._path) as file:
            for group in range(file.num_row_groups):
                self._file.write_table(file.read_row_group(group).cast(schema), ROW_GROUP_ROWS)
        # the open file has its new name, too
        wider.replace(self._path)

    @staticmethod
    def _open(path: Path, schema: pyarrow.Schema) -> parquet.ParquetWriter:
        # numbers seldom repeat, so a dictionary of them only takes time
        words = [name for name, kind in zip(schema.names, schema.types, strict=True) if not _is_number(kind)]
        return parquet.ParquetWriter(path, schema, use_dictionary=words)


def _is_number(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
