"""Results as lines of JSON in a file: the first says on what machine, the others what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from benchmarks.errors import BenchmarkError
from benchmarks.machine import machine

Line = dict[str, Any]


class Writer:
    """Writes lines as they come, so that what was measured before an end is kept; and shows each in short."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")
        self.write({"kind": "machine", **machine()})
        return self

    def __exit__(self, *of: object) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        print(
            "  ".join(f"{value:,.0f} req/s" if name == "rate" else str(value) for name, value in shown(line)),
            flush=True,
        )


def shown(line: Line) -> Iterable[tuple[str, Any]]:
    """What a person wants to see go by."""
    wanted = ("server", "net", "what", "size", "request", "rows", "connections", "rate", "failed")
    return ((name, line[name]) for name in wanted if name in line)


def read(path: Path) -> list[Line]:
    """All lines of a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchmarkError(f"{path}: expected results that were measured, got {error.strerror}") from error
    try:
        lines: list[Line] = [json.loads(line) for line in text.splitlines() if line]
    except ValueError as error:
        raise BenchmarkError(f"{path}: expected JSON in each line, got {error}") from error
    if not lines or lines[0].get("kind") != "machine":
        raise BenchmarkError(f"{path}: expected a first line of kind machine, got {str(lines[:1])[:80]}")
    return lines
