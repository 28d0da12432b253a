"""Reads names of classes or columns: distinct, in order, from a list or a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from turnpike.export.errors import SourceError, SourceOptionError, one_line

# enough for the largest vocabularies; a larger file is something else
MAX_FILE_BYTES = 16 << 20


def read_labels(labels: Path | Sequence[str]) -> tuple[str, ...]:
    """Names of classes, of which there are two or more."""
    return read_distinct_names(labels, least=2)


def read_distinct_names(source: Path | Sequence[str], least: int = 1) -> tuple[str, ...]:
    """The names in a sequence, or in a file: one per line, or a JSON list."""
    if isinstance(source, str | Path):
        where, names = f"{source}: ", _read_names(Path(source))
    else:
        where, names = "", list(source)
    if invalid := [name for name in names if not isinstance(name, str) or not name.strip()]:
        raise SourceError(f"{where}expected names, got {invalid[0]!r}")
    if len(names) < least:
        raise SourceError(f"{where}expected {least} names or more, got {len(names)}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SourceError(f"{where}expected distinct names, got {name!r} more than once")
        seen.add(name)
    return tuple(names)


def expect_labels(labels: Sequence[str], columns: int | str, output: str) -> None:
    """Raise a SourceOptionError unless there is one label for each column of the output."""
    if labels and isinstance(columns, int) and len(labels) != columns:
        raise SourceOptionError(
            f"--labels or --data: expected {columns} labels, one per column of {output}, got {len(labels)}"
        )


def _read_names(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SourceError(
                f"{path}: expected a file of at most {MAX_FILE_BYTES >> 20} MiB, got a larger one"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: expected UTF-8, got other bytes at {error.start}") from error
    if not text.lstrip().startswith("["):
        return [line.strip() for line in text.rstrip().splitlines()]
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{path}: expected a JSON list of names, cannot read it ({one_line(error)})"
        ) from error
    if not isinstance(names, list):
        raise SourceError(f"{path}: expected a JSON list of names, got {type(names).__name__}")
    return names
