"""Scores one part of a job into one file, which appears only when it is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import pyarrow
from pyarrow import parquet

from turnpike.common.durable_files import WriteError, replacing
from turnpike.score.errors import ScoreError
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import read_part
from turnpike.score.readers.parts import Part

# rows that are held until they are written together
ROW_GROUP_ROWS = 65_536


def score_part(model: ScoringModel, part: Part, target: Path, on_rows: Callable[[int], None]) -> int:
    """Write the rows of a part with their predictions; returns how many.

    Args:
        model: Scores the rows.
        part: Which rows.
        target: The file to write.
        on_rows: Called with the number of rows of each batch. It may raise, to stop.
    """
    rows = 0
    try:
        with replacing(target, folder_is_locked=True) as draft, _Writer(draft, model, part) as writer:
            for batch in read_part(part, model.signature, model.batch_rows):
                writer.write(pyarrow.table(_columns(batch.kept, model.score(batch))))
                rows += batch.rows
                on_rows(batch.rows)
    except WriteError as error:
        raise ScoreError(str(error)) from error
    return rows


class _Writer:
    """Writes tables to a Parquet file, many of them in each row group."""

    def __init__(self, path: Path, model: ScoringModel, part: Part) -> None:
        self._path = path
        self._empty = model.schema.empty_table()
        self._metadata = {
            "turnpike.model": f"{model.name}/{model.version}",
            "turnpike.digest": model.digest,
            "turnpike.input": part.path,
        }
        self._pending: list[pyarrow.Table] = []
        self._file: parquet.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write_pending()
        if self._file is not None:
            self._file.close()

    def write(self, table: pyarrow.Table) -> None:
        self._pending.append(table)
        if sum(table.num_rows for table in self._pending) >= ROW_GROUP_ROWS:
            self._write_pending()

    def _write_pending(self) -> None:
        table = pyarrow.concat_tables(self._pending) if self._pending else self._empty
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


def _columns(kept: dict[str, pyarrow.Array], added: dict[str, pyarrow.Array]) -> dict[str, pyarrow.Array]:
    """Columns of the input, and those of the model; `predicted` is put before names that both have."""
    return kept | {(f"predicted {name}" if name in kept else name): values for name, values in added.items()}
