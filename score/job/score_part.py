"""Scores one part of a job into one file, which appears only when it is whole."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow

from turnpike.common.durable_files import WriteError, replacing
from turnpike.score.errors import RowsError, ScoreError
from turnpike.score.job.options import OnError
from turnpike.score.job.part_writer import PartWriter
from turnpike.score.job.partitions import PartitionedWriter
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import read_part
from turnpike.score.readers.parts import Part, RowBatch

# rows that cannot be scored: a file for each part, in this folder beside the parts
BAD_ROWS_FOLDER = "_bad_rows"


def score_part(model: ScoringModel, part: Part, target: Path, on_rows: Callable[[int], None]) -> int:
    """Write the rows of a part with their predictions; returns how many.

    Args:
        model: Scores the rows.
        part: Which rows.
        target: The file to write.
        on_rows: Called with the number of rows of each batch. It may raise, to stop.

    Raises:
        RowsError: The file cannot be read, or a row cannot be scored and the job is to fail then.
        ScoreError: The model or the disk fails, and would for other parts.
    """
    rows, bad = 0, []

    def new_writer(path: Path) -> PartWriter:
        return PartWriter(path, model.schema, metadata, part.path)

    metadata = {
        "turnpike.model": f"{model.name}/{model.version}",
        "turnpike.digest": model.digest,
        "turnpike.input": part.path,
    }
    try:
        with replacing(target, folder_is_locked=True) as draft:
            with _writer(draft, target, new_writer, model.options.partition_by) as writer:
                for batch in read_part(part, model.signature, model.batch_rows, model.options.keep):
                    if batch.bad and model.options.on_error == OnError.FAIL:
                        raise RowsError(batch.bad[min(batch.bad)])
                    bad += [_bad_row(part, rows, index, batch.bad[index]) for index in sorted(batch.bad)]
                    writer.write(_table(model, part, batch, rows))
                    rows += batch.rows
                    on_rows(batch.rows)
            # before the part, which says by its presence that both are there
            _write_bad_rows(bad_rows_file(target), bad)
    except WriteError as error:
        raise ScoreError(str(error)) from error
    return rows


@contextmanager
def _writer(
    draft: Path, target: Path, new_writer: Callable[[Path], PartWriter], partition_by: str | None
) -> Iterator[PartWriter | PartitionedWriter]:
    """Yield what writes the rows: into the draft, or into folders, so that the draft is an empty mark."""
    with new_writer(draft) as writer:
        if partition_by is None:
            yield writer
        else:
            with PartitionedWriter(target, partition_by, new_writer) as partitioned:
                yield partitioned


def bad_rows_file(target: Path) -> Path:
    """The file of a part's rows that could not be scored; there is none if all could be."""
    return target.parent / BAD_ROWS_FOLDER / f"{target.stem}.csv"


def _table(model: ScoringModel, part: Part, batch: RowBatch, rows_before: int) -> pyarrow.Table:
    """The columns of the input, the source and the model: of all rows, or of those that can be scored."""
    kept, predicted = dict(batch.kept), model.score(batch)
    source = _source(part, batch, rows_before) if model.options.source else {}
    if part.files and source:
        kept.pop("file", None)
    if batch.bad:
        is_good = np.ones(batch.rows, bool)
        is_good[list(batch.bad)] = False
        if model.options.on_error == OnError.REJECT:
            kept, source = (
                {name: column.filter(is_good) for name, column in some.items()} for some in (kept, source)
            )
        else:
            places = pyarrow.array(np.cumsum(is_good) - 1, mask=~is_good)
            predicted = {name: column.take(places) for name, column in predicted.items()}
    return pyarrow.table(_renamed(_renamed(kept, source, "source"), predicted, "predicted"))


def _source(part: Part, batch: RowBatch, rows_before: int) -> dict[str, pyarrow.Array]:
    """The file and the number of each row. Each image is the only row of its file."""
    if part.files:
        names = part.files[rows_before : rows_before + batch.rows]
        return {"file": pyarrow.array(names), "row": pyarrow.array(np.ones(batch.rows, np.int64))}
    first = part.first_row + rows_before
    return {
        "file": pyarrow.repeat(part.name, batch.rows),
        "row": pyarrow.array(np.arange(first, first + batch.rows)),
    }


def _renamed(
    columns: Mapping[str, pyarrow.Array], added: Mapping[str, pyarrow.Array], prefix: str
) -> dict[str, pyarrow.Array]:
    """All columns; the prefix is put before names of the added ones until no other column has them."""
    renamed = dict(columns)
    for name, column in added.items():
        while name in renamed:
            name = f"{prefix} {name}"  # noqa: PLW2901
        renamed[name] = column
    return renamed


def _bad_row(part: Part, rows_before: int, index: int, reason: str) -> tuple[str, int, str]:
    """The file, the number of the row in it, and the reason without the path."""
    if part.files:
        name = part.files[rows_before + index]
        return name, 1, reason.removeprefix(f"{Path(part.path) / name}: ")
    return part.name, part.first_row + rows_before + index, reason.removeprefix(f"{part.path}, ")


def _write_bad_rows(path: Path, rows: list[tuple[str, int, str]]) -> None:
    if not rows:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(exist_ok=True)
    with (
        replacing(path, folder_is_locked=True) as draft,
        draft.open("w", encoding="utf-8", newline="") as file,
    ):
        csv.writer(file).writerows(rows)
