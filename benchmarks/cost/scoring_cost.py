"""Measures `turnpike score`: rows per second and memory, compared with onnxruntime alone on the same rows.

    python -m benchmarks.cost.scoring_cost [--rows N] [--rounds N] [--flat]

The rows are pictures for the bundled digits model, in one Parquet file: a list for each, or with --flat a
column for each pixel. "onnxruntime alone" runs the model in
as many processes, each on rows that are in memory already, and keeps no result. The two take turns, and the
ratio is that of each round.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

from benchmarks.folders import ROOT
from turnpike import service
from turnpike.common.cpus import whole_cpus
from turnpike.service.artifact.runtime import open_model

BUNDLED_MODEL = Path(service.__file__).parent / "default/digits-10/1/model.onnx"
ROWS_PER_GROUP = 50_000
# rows of a run, as in score/job/scoring_model.py
RUN_ROWS = 512
ALONE_RUNS = 800


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost.scoring_cost", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--flat", action="store_true", help="a column for each pixel, beside an id")
    arguments = parser.parse_args()
    processes = whole_cpus()
    print(
        "| round | turnpike score, rows/s | onnxruntime alone, rows/s | ratio |\n| --- | ---: | ---: | ---: |"
    )
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.parquet"
        write_rows(rows, arguments.rows, flat=arguments.flat)
        for number in range(1, arguments.rounds + 1):
            scored = arguments.rows / score_seconds(rows, Path(folder) / "scored")
            alone = rows_per_second_alone(processes)
            ratios.append(scored / alone)
            print(f"| {number} | {scored:,.0f} | {alone:,.0f} | {scored / alone:.2f} |", flush=True)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\nmedian ratio {statistics.median(ratios):.2f}, {processes} processes")
    print(f"largest process: {memory:.0f} MiB, for {arguments.rows:,} rows")


def write_rows(path: Path, count: int, *, flat: bool) -> None:
    """Random pictures, each as a list of 64 pixels or as 64 columns beside an id."""
    generator = np.random.default_rng(0)
    writer = None
    for _ in range(0, count, ROWS_PER_GROUP):
        pixels = generator.integers(0, 17, (ROWS_PER_GROUP, 64), np.uint8)
        if flat:
            columns = {f"pixel_{index}": pixels[:, index] for index in range(64)}
            table = pyarrow.table({"id": np.arange(ROWS_PER_GROUP), **columns})
        else:
            lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(pixels.reshape(-1)), 64)
            table = pyarrow.table({"x": lists})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def score_seconds(rows: Path, output: Path) -> float:
    """Time of the whole command."""
    words = ["score", "--model", str(BUNDLED_MODEL), "--input", str(rows), "--output", str(output), "--quiet"]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "turnpike", *words], cwd=ROOT, check=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(output)
    return seconds


def rows_per_second_alone(processes: int) -> float:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return sum(pool.map(_run_alone, range(processes), 1))


def _run_alone(seed: int) -> float:
    runtime = open_model(BUNDLED_MODEL)
    rows = np.random.default_rng(seed).integers(0, 17, (RUN_ROWS, 1, 8, 8)).astype(np.float32)
    runtime.run({"x": rows})
    start = time.perf_counter()
    for _ in range(ALONE_RUNS):
        runtime.run({"x": rows})
    return ALONE_RUNS * RUN_ROWS / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
