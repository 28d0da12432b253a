"""Results files: lines of JSON, of which the first describes the machine and the others hold measurements."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from benchmarks.errors import BenchmarkError
from turnpike.common.cpus import affinity_cpus, cpu_model
from turnpike.common.distribution import VERSION

ResultLine = dict[str, Any]
# fields that are printed while a benchmark runs
SUMMARY_FIELDS = (
    "server",
    "way",
    "net",
    "precision",
    "what",
    "size",
    "request",
    "rows",
    "connections",
    "streams",
    "rate",
    "failed",
)


class ResultsWriter:
    """Writes lines to the file at once, so that an interrupted benchmark keeps them, and prints them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")
        self.write({"kind": "machine", **describe_machine()})
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def write(self, line: ResultLine) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        fields = summary_fields(line)
        print(
            "  ".join(f"{value:,.0f} req/s" if name == "rate" else str(value) for name, value in fields),
            flush=True,
        )


def summary_fields(line: ResultLine) -> Iterable[tuple[str, Any]]:
    return ((name, line[name]) for name in SUMMARY_FIELDS if name in line)


def read_results(path: Path) -> list[ResultLine]:
    """All lines of a results file; BenchmarkError if it is missing or is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchmarkError(f"{path}: expected a results file, got {error.strerror}") from error
    try:
        lines: list[ResultLine] = [json.loads(line) for line in text.splitlines() if line]
    except ValueError as error:
        raise BenchmarkError(f"{path}: expected JSON in each line, got {error}") from error
    if not lines or lines[0].get("kind") != "machine":
        raise BenchmarkError(f"{path}: expected a first line of kind machine, got {str(lines[:1])[:80]}")
    return lines


def describe_machine() -> dict[str, Any]:
    """The date, the CPU, the system, and the versions that results depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu_model(),
        "cpus": affinity_cpus(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
        "turnpike": VERSION,
    }
