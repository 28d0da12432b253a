"""Asks other tools about the museum of real bugs, and writes the table of docs/explanation/silent-bugs.md.

    python3.12 -m venv .bench/museum
    .bench/museum/bin/pip install torch onnxruntime onnxscript polygraphy optimum-onnx downshift-server
    python -m benchmarks.museum --python .bench/museum/bin/python

The museum is in tests/export/museum; its tests hold what the table says of turnpike. Without `--python`, the
table is written from the results of the last run.

Bias: we chose the bugs. Each is one that somebody met and reported, and none was left out because of what a
tool said of it. The other tools run with their own default data. All of them take the user's data, too, and
notice more with data that reaches the bug.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.folders import ROOT
from benchmarks.museum.page import MUSEUM_RESULTS, write_museum_page
from benchmarks.results.results_file import ResultLine, ResultsWriter
from tests.export.museum.collection import EXHIBITS
from tests.export.museum.graphs import load_exhibit, spoiled
from turnpike.export.prepared_graph import prepare

# seconds that the tools may take for all files
TIME_LIMIT = 1800


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.museum",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", type=Path, help="the Python of an environment with the other tools")
    options = parser.parse_args(arguments)
    try:
        if options.python is not None:
            with ResultsWriter(MUSEUM_RESULTS) as writer:
                for line in ask_tools(options.python):
                    writer.write(line)
        write_museum_page()
    except BenchmarkError as error:
        raise SystemExit(f"benchmarks: {error}") from error


def ask_tools(python: Path) -> list[ResultLine]:
    """What the tools of an environment say of all files."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        command = [str(python), "-m", "benchmarks.museum.rivals", folder]
        try:
            process = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                timeout=TIME_LIMIT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchmarkError(f"{python}: expected the tools to run, got {error}") from error
    if process.returncode:
        last_line = process.stderr.strip().splitlines()[-1:] or ["no message"]
        raise BenchmarkError(f"{python}: expected an environment with the tools, got: {last_line[0]}")
    # polygraphy prints lines of its own
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"kind"')]


def write_files(folder: Path) -> None:
    """The right and the wrong file of each exhibit."""
    for exhibit in EXHIBITS:
        right = prepare(load_exhibit(exhibit))
        (folder / f"{exhibit.name}.right.onnx").write_bytes(right.data)
        (folder / f"{exhibit.name}.wrong.onnx").write_bytes(spoiled(exhibit, right).data)


if __name__ == "__main__":
    main(sys.argv[1:])
