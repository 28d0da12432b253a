"""How large the weights of a model file are, told from the headers in it without reading its data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import BinaryIO

# numbers of fields: ModelProto.graph, GraphProto.initializer
GRAPH, INITIALIZER = 7, 5
# how a field is written: as a number of any length, of 8 bytes, with its length before it, of 4 bytes
VARINT, EIGHT, LENGTH, FOUR = 0, 1, 2, 5
# biases and scales are smaller, and take next to no time
LEAST = 1 << 16
# the longest way to write a number of 64 bits
LONGEST = 10


def typical(path: Path) -> int:
    """Bytes of the weight in the middle of all that are not small; 0 where there is none, or no model."""
    try:
        with path.open("rb") as file:
            weights = [
                length
                for graph, size in _members(file, GRAPH, os.fstat(file.fileno()).st_size)
                for _, length in _members(file, INITIALIZER, graph + size)
                if length >= LEAST
            ]
    except (OSError, ValueError):
        # whoever loads the file says what is wrong with it
        return 0
    return int(median(weights)) if weights else 0


def _members(file: BinaryIO, wanted: int, end: int) -> Iterator[tuple[int, int]]:
    """Where each field of that number begins, from here on to `end`, and its length."""
    while (at := file.tell()) < end:
        number, kind = divmod(_number(file), 8)
        if number == 0:
            raise ValueError(f"expected a field, got 0 at {at}")
        if kind == VARINT:
            _number(file)
            continue
        length = {EIGHT: 8, FOUR: 4}.get(kind) or (_number(file) if kind == LENGTH else -1)
        start = file.tell()
        if not 0 <= length <= end - start:
            raise ValueError(f"expected a field that ends by {end}, got one at {at} of {length} bytes")
        if number == wanted:
            yield start, length
        file.seek(start + length)


def _number(file: BinaryIO) -> int:
    value = 0
    for n in range(LONGEST):
        (byte,) = file.read(1) or (-1,)
        if byte < 0:
            break
        value |= (byte & 127) << 7 * n
        if byte < 128:
            return value
    raise ValueError("expected a number, got its beginning alone")
