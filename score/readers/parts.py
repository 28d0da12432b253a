"""Parts of the input files: the units in which a job is scored, resumed and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow

from turnpike.service.artifact.signature import Signature
from turnpike.service.inference_types import Array

# rows of a part: enough to keep a process busy for a while, and few enough to lose when a job is killed
PART_ROWS = 50_000
# bytes of a part of text, where rows are not counted in advance
PART_BYTES = 16 << 20


@dataclass(frozen=True)
class Part:
    """Rows of one input file, or several images.

    Attributes:
        path: The file, or the folder of the images.
        start: First row group, byte or row of the part, by the format of the file.
        stop: The one after the last.
        name: The file as messages and columns name it, relative to --input.
        first_row: The number of the first row in its file, from 1.
        first_line: For text, the line at which the part begins, from 1.
        files: For images, the files, relative to the folder.
    """

    path: str
    start: int
    stop: int
    name: str = ""
    first_row: int = 1
    first_line: int = 1
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowBatch:
    """Some rows: the arrays of the model's inputs, and the columns to keep beside the predictions.

    Attributes:
        feeds: The inputs of the rows that can be scored.
        kept: The columns to keep, of all rows.
        rows: All rows.
        bad: For each row that cannot be scored, by its index, a message with the place and the reason.
    """

    feeds: dict[str, Array]
    kept: dict[str, pyarrow.Array]
    rows: int
    bad: Mapping[int, str] = field(default_factory=dict)


class Reader(Protocol):
    """Reads one format of files."""

    def split(self, path: str) -> Iterator[Part]:
        """The parts of a file, in order."""

    def read(
        self, part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
    ) -> Iterator[RowBatch]:
        """All rows of a part in order, at most `batch_rows` at a time, with the columns to keep.

        Raises:
            RowsError: The file cannot be read, or a column is missing.
        """


def spans(count: int, length: int) -> Iterator[tuple[int, int]]:
    """Cut `count` things into spans of at most this length."""
    for start in range(0, count, length):
        yield start, min(start + length, count)


def to_arrow(values: Any) -> pyarrow.Array:
    """An array of rows as a column: a number for each, or a list if rows have several."""
    width = values.size // max(len(values), 1)
    flat = pyarrow.array(values.reshape(-1))
    return flat if width == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, width)
