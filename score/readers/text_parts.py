"""Cuts files of lines into parts at ends of lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from turnpike.score.errors import RowsError
from turnpike.score.readers.parts import PART_BYTES, Part

# a cell or line that is longer is taken for a quote that is never closed
MAX_RECORD_BYTES = 64 << 20


def split_lines(
    path: Path, start: int, first_line: int, *, quotes: bool, part_bytes: int = PART_BYTES
) -> Iterator[Part]:
    """Yield parts of about `part_bytes` from byte `start` on, which begins line `first_line`.

    With `quotes`, a line break between quotation marks does not end a line.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(start)
        while start < size:
            text = file.read(part_bytes)
            if start + len(text) < size:
                text += _rest_of_line(file, path, text, quotes=quotes)
            yield Part(str(path), start, start + len(text), first_line)
            start += len(text)
            first_line += text.count(b"\n")


def _rest_of_line(file: BinaryIO, path: Path, text: bytes, *, quotes: bool) -> bytes:
    """The bytes after `text` up to the end of the line, and on while a quotation mark is open."""
    rest = file.readline()
    while quotes and (text.count(b'"') + rest.count(b'"')) % 2 and (line := file.readline()):
        rest += line
        if len(rest) > MAX_RECORD_BYTES:
            raise RowsError(f"{path}: expected quotation marks in pairs, got one that is not closed")
    return rest
