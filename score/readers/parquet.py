"""Reads Parquet files. A part is one or more row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow
from pyarrow import parquet

from turnpike.score.errors import RowsError
from turnpike.score.readers.columns import ColumnMap
from turnpike.score.readers.parts import PART_ROWS, Part, RowBatch
from turnpike.service.artifact.signature import Signature


class ParquetReader:
    """Reads the columns of a table; lists in cells are the values of a row."""

    def split(self, path: str) -> Iterator[Part]:
        with _opened(path) as file:
            start = rows = 0
            first_row = 1
            for group in range(file.num_row_groups):
                rows += file.metadata.row_group(group).num_rows
                if rows >= PART_ROWS or group == file.num_row_groups - 1:
                    if rows:
                        yield Part(path, start, group + 1, first_row=first_row)
                    first_row += rows
                    start, rows = group + 1, 0

    def read(
        self, part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
    ) -> Iterator[RowBatch]:
        with _opened(part.path) as file:
            columns = ColumnMap(file.schema_arrow.names, signature, part, keep)
            first_row = part.first_row
            groups = range(part.start, part.stop)
            for table in file.iter_batches(batch_rows, groups, columns.stored, use_threads=False):
                yield columns.to_rows(table, partial(_row_text, first_row))
                first_row += table.num_rows


def _row_text(first_row: int, index: int) -> str:
    return f"row {first_row + index}"


@contextmanager
def _opened(path: str) -> Iterator[parquet.ParquetFile]:
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())
        raise RowsError(f"{path}: expected a Parquet file, cannot read it ({reason})") from error
    except OSError as error:
        raise RowsError(f"{path}: expected a file that can be read ({error})") from error
