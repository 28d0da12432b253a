"""Measures `turnpike score`: rows per second and memory, compared with onnxruntime alone on the same rows.

    python -m benchmarks.cost.scoring_cost [--rows N] [--rounds N] [--flat]

The rows are pictures for the bundled digits model, in one Parquet file: a list for each, or with --flat a
column for each pixel. "onnxruntime alone" runs the model in
as many processes, each on rows that are in memory already, and keeps no result. The two take turns, and the
ratio is that of each round. On a machine that does other work, too, the ratio of CPU time says more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
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
        "| round | turnpike score, rows/s | onnxruntime alone, rows/s | ratio | ratio of CPU time |\n"
        "| --- | ---: | ---: | ---: | ---: |"
    )
    ratios, cpu_ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.parquet"
        write_rows(rows, arguments.rows, flat=arguments.flat)
        for number in range(1, arguments.rounds + 1):
            seconds, cpu_seconds = score_seconds(rows, Path(folder) / "scored")
            alone, cpu_alone = rates_alone(processes)
            scored = arguments.rows / seconds
            ratios.append(scored / alone)
            cpu_ratios.append(arguments.rows / cpu_seconds / cpu_alone)
            print(
                f"| {number} | {scored:,.0f} | {alone:,.0f} | {ratios[-1]:.2f} | {cpu_ratios[-1]:.2f} |",
                flush=True,
            )
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"\nmedian ratio {statistics.median(ratios):.2f}, of CPU time {statistics.median(cpu_ratios):.2f}, "
        f"{processes} processes"
    )
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


def score_seconds(rows: Path, output: Path) -> tuple[float, float]:
    """Time of the whole command, and CPU time of all its processes."""
    words = ["score", "--model", str(BUNDLED_MODEL), "--input", str(rows), "--output", str(output), "--quiet"]
    start, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-m", "turnpike", *words], cwd=ROOT, check=True)
    seconds, after = time.perf_counter() - start, os.times()
    shutil.rmtree(output)
    cpu_seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu_seconds


def rates_alone(processes: int) -> tuple[float, float]:
    """Rows per second of all processes, and rows per second of CPU time."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        rates = pool.map(_run_alone, range(processes), 1)
    return sum(rate for rate, _ in rates), statistics.mean(cpu_rate for _, cpu_rate in rates)


def _run_alone(seed: int) -> tuple[float, float]:
    runtime = open_model(BUNDLED_MODEL)
    rows = np.random.default_rng(seed).integers(0, 17, (RUN_ROWS, 1, 8, 8)).astype(np.float32)
    runtime.run({"x": rows})
    start, cpu_start = time.perf_counter(), time.process_time()
    for _ in range(ALONE_RUNS):
        runtime.run({"x": rows})
    count = ALONE_RUNS * RUN_ROWS
    return count / (time.perf_counter() - start), count / (time.process_time() - cpu_start)


if __name__ == "__main__":
    main()
