"""Finds the input files, and the reader of each."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

from turnpike.score.errors import UsageError
from turnpike.score.readers import images
from turnpike.score.readers.csv_text import CsvReader
from turnpike.score.readers.json_lines import JsonLinesReader
from turnpike.score.readers.numpy_array import NumpyReader
from turnpike.score.readers.parquet import ParquetReader
from turnpike.score.readers.parts import Part, Reader, RowBatch
from turnpike.service.artifact.signature import Signature
from turnpike.service.cli.picture_files import ENDINGS

READERS: dict[str, Reader] = {
    ".parquet": ParquetReader(),
    ".pq": ParquetReader(),
    ".csv": CsvReader(),
    ".tsv": CsvReader(),
    ".jsonl": JsonLinesReader(),
    ".npy": NumpyReader(),
}
FORMATS = ".parquet, .csv, .tsv, .jsonl, .npy, .png or .jpg"


def find_files(pattern: str) -> list[Path]:
    """The files of a path or a pattern such as `rows/*.parquet`, sorted; of a folder, all of known formats.

    Raises:
        UsageError: There are none, or one has another format.
    """
    path = Path(pattern)
    if path.is_dir():
        found = [file for file in sorted(path.rglob("*")) if file.is_file() and _is_known(file)]
    else:
        names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207, the pattern may be absolute
        found = [Path(name) for name in names if Path(name).is_file()]
        if not found and path.is_file():  # a name with characters of patterns
            found = [path]
        if unknown := [file for file in found if not _is_known(file)]:
            raise UsageError(f"--input: expected {FORMATS} files, got {str(unknown[0])!r}")
    if not found:
        raise UsageError(f"--input: expected {FORMATS} files, found none by {pattern!r}")
    return found


def split_files(pattern: str, files: list[Path]) -> Iterator[Part]:
    """The parts of all files, in order; images come last."""
    pictures = [file for file in files if _is_image(file)]
    for file in files:
        if not _is_image(file):
            yield from READERS[file.suffix.lower()].split(file)
    if pictures:
        folder = Path(pattern) if Path(pattern).is_dir() else pictures[0].parent
        # a pattern may name images of several folders
        while not all(file.is_relative_to(folder) for file in pictures):
            folder = folder.parent
        yield from images.image_parts(folder, pictures)


def read_part(part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
    """The rows of a part, some at a time."""
    if part.files:
        return images.read_images(part, signature, batch_rows)
    return READERS[Path(part.path).suffix.lower()].read(part, signature, batch_rows)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _is_known(path: Path) -> bool:
    return path.suffix.lower() in READERS or _is_image(path)
