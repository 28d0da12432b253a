"""Cuts files of lines into parts at ends of lines. A compressed file is one part, read piece by piece."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from turnpike.score.errors import RowsError
from turnpike.score.readers.parts import PART_BYTES, Part

# a cell or line that is longer is taken for a quote that is never closed
MAX_RECORD_BYTES = 64 << 20


@dataclass(frozen=True)
class Piece:
    """Whole rows of a file of text, with the numbers of the first row and the first line."""

    text: bytes
    first_row: int
    first_line: int


def split_text(
    path: str, start: int, first_line: int, *, quotes: bool, part_bytes: int = PART_BYTES
) -> Iterator[Part]:
    """Yield parts of about `part_bytes` from byte `start` on, which begins line `first_line`.

    With `quotes`, a line break between quotation marks does not end a line.
    """
    with opened(path) as file:
        file.read(start)
        if is_compressed(path):
            if file.read(1):
                yield Part(path, start, 0, first_line=first_line)
            return
        for piece in _pieces(file, path, 1, first_line, quotes=quotes, piece_bytes=part_bytes):
            stop = start + len(piece.text)
            yield Part(path, start, stop, first_row=piece.first_row, first_line=piece.first_line)
            start = stop


def pieces_of(part: Part, *, quotes: bool) -> Iterator[Piece]:
    """The text of a part."""
    with opened(part.path) as file:
        if is_compressed(part.path):
            file.read(part.start)
            yield from _pieces(file, part.path, part.first_row, part.first_line, quotes=quotes)
        else:
            file.seek(part.start)
            yield Piece(file.read(part.stop - part.start), part.first_row, part.first_line)


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file of text, which may be compressed."""
    try:
        with cast("BinaryIO", gzip.open(path)) if is_compressed(path) else Path(path).open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RowsError(f"{path}: expected a whole file of gzip, got something else ({error})") from error
    except OSError as error:
        raise RowsError(f"{path}: expected a file that can be read ({error.strerror})") from error


def is_compressed(path: str) -> bool:
    return path.lower().endswith(".gz")


def _pieces(
    file: BinaryIO,
    path: str,
    first_row: int,
    first_line: int,
    *,
    quotes: bool,
    piece_bytes: int = PART_BYTES,
) -> Iterator[Piece]:
    """The rest of a file in pieces of about `piece_bytes`."""
    while text := file.read(piece_bytes):
        text += _rest_of_line(file, path, text, quotes=quotes)
        yield Piece(text, first_row, first_line)
        first_row += count_rows(text, quotes=quotes)
        first_line += text.count(b"\n")


def _rest_of_line(file: BinaryIO, path: str, text: bytes, *, quotes: bool) -> bytes:
    """The bytes after `text` up to the end of the line, and on while a quotation mark is open."""
    rest = b"" if text.endswith(b"\n") and not (quotes and text.count(b'"') % 2) else file.readline()
    while quotes and (text.count(b'"') + rest.count(b'"')) % 2 and (line := file.readline()):
        rest += line
        if len(rest) > MAX_RECORD_BYTES:
            raise RowsError(f"{path}: expected quotation marks in pairs, got one that is not closed")
    return rest


def count_rows(text: bytes, *, quotes: bool) -> int:
    """The lines that are not blank; with `quotes`, a line break between quotation marks does not end one."""
    if not quotes:
        return sum(1 for line in text.split(b"\n") if line.strip())
    if b'"' in text:
        text = b'"'.join(text.split(b'"')[::2])
    if not text.endswith(b"\n"):
        text += b"\n"
    blank = len(re.findall(rb"^\r?\n", text, re.MULTILINE)) if re.search(rb"\n\r?\n|^\r?\n", text) else 0
    return text.count(b"\n") - blank
