"""Finds the input files, and the reader of each."""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Iterator, Sequence
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
    ".csv.gz": CsvReader(),
    ".tsv": CsvReader(),
    ".tsv.gz": CsvReader(),
    ".jsonl": JsonLinesReader(),
    ".jsonl.gz": JsonLinesReader(),
    ".npy": NumpyReader(),
    ".npz": NumpyReader(),
}
FORMATS = ".parquet, .csv, .tsv, .jsonl (or each with .gz), .npy, .npz, .png or .jpg"


def find_files(pattern: str) -> tuple[Path, list[Path]]:
    """The files of a path or a pattern such as `rows/*.parquet`, sorted; of a folder, all of known formats.

    In a folder, names that begin with `_` or `.` are left out, as by other programs that read such folders.
    Returns the folder that all of them are below, too.

    Raises:
        UsageError: There are none, or one has another format.
    """
    path = Path(pattern)
    if path.is_dir():
        root = path
        found = [
            file
            for file in sorted(path.rglob("*"))
            if _is_known(file)
            and not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
            and not file.is_dir()
        ]
    else:
        names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207, the pattern may be absolute
        found = [Path(name) for name in names if Path(name).is_file()]
        if not found and path.is_file():  # a name with characters of patterns
            found = [path]
        if unknown := [file for file in found if not _is_known(file)]:
            raise UsageError(f"--input: expected {FORMATS} files, got {str(unknown[0])!r}")
        root = next(folder for folder in path.parents if path in found or not glob.has_magic(str(folder)))
    if not found:
        raise UsageError(f"--input: expected {FORMATS} files, found none by {pattern!r}")
    return root, found


def split_file(path: Path, root: Path) -> tuple[Part, ...]:
    """The parts of a file, in order."""
    name = str(path.relative_to(root))
    return tuple(dataclasses.replace(part, name=name) for part in READERS[_ending(path)].split(str(path)))


def read_part(
    part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
) -> Iterator[RowBatch]:
    """The rows of a part, some at a time."""
    if part.files:
        return images.read_images(part, signature, batch_rows, keep)
    return READERS[_ending(Path(part.path))].read(part, signature, batch_rows, keep)


def is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _ending(path: Path) -> str:
    """The last ending of a name, with the one before it if the file is compressed."""
    endings = path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]
    return "".join(endings).lower()


def _is_known(path: Path) -> bool:
    return _ending(path) in READERS or is_image(path)
