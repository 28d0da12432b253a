"""Parts of the input files: the units in which a job is scored, resumed and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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
        first_line: For text, the line at which the part begins, from 1.
        files: For images, the files, relative to the folder.
    """

    path: str
    start: int
    stop: int
    first_line: int = 1
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowBatch:
    """Some rows: the arrays of the model's inputs, and the columns to keep beside the predictions."""

    feeds: dict[str, Array]
    kept: dict[str, pyarrow.Array]
    rows: int


class Reader(Protocol):
    """Reads one format of files."""

    def split(self, path: Path) -> Iterator[Part]:
        """The parts of a file, in order."""

    def read(self, part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
        """The rows of a part, at most `batch_rows` at a time. A RowsError says which row does not fit."""


def spans(count: int, length: int) -> Iterator[tuple[int, int]]:
    """Cut `count` things into spans of at most this length."""
    for start in range(0, count, length):
        yield start, min(start + length, count)


def to_arrow(values: Any) -> pyarrow.Array:
    """An array of rows as a column: a number for each, or a list if rows have several."""
    width = values.size // max(len(values), 1)
    flat = pyarrow.array(values.reshape(-1))
    return flat if width == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, width)
