"""Reads Parquet files. A part is one or more row groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow
from pyarrow import parquet

from turnpike.score.errors import RowsError
from turnpike.score.readers.columns import ColumnMap
from turnpike.score.readers.parts import PART_ROWS, Part, RowBatch
from turnpike.service.artifact.signature import Signature


class ParquetReader:
    """Reads the columns of a table; lists in cells are the values of a row."""

    def split(self, path: Path) -> Iterator[Part]:
        with _opened(path) as file:
            start = rows = 0
            for group in range(file.num_row_groups):
                rows += file.metadata.row_group(group).num_rows
                if rows >= PART_ROWS or group == file.num_row_groups - 1:
                    if rows:
                        yield Part(str(path), start, group + 1)
                    start, rows = group + 1, 0

    def read(self, part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
        with _opened(Path(part.path)) as file:
            columns = ColumnMap(file.schema_arrow.names, signature, part.path)
            first = sum(file.metadata.row_group(group).num_rows for group in range(part.start))
            for table in file.iter_batches(batch_rows, range(part.start, part.stop), use_threads=False):
                yield columns.to_rows(table, partial(_row_text, first))
                first += table.num_rows


def _row_text(first: int, index: int) -> str:
    return f"row {first + index + 1}"


@contextmanager
def _opened(path: Path) -> Iterator[parquet.ParquetFile]:
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())
        raise RowsError(f"{path}: expected a Parquet file, cannot read it ({reason})") from error
    except OSError as error:
        raise RowsError(f"{path}: expected a file that can be read ({error})") from error
