"""Times the runs of a network in one process: latency of a run, and rows per second."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants.wire_formats import logits_match
from benchmarks.errors import BenchmarkError

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[Array], Array]

# runs before the measurement: the first ones choose kernels, allocate memory and capture graphs
WARM_UP_RUNS = 10
MIN_RUNS = 3


def print_times(
    make_run: Callable[[int], Run], folder: Path, batches: Sequence[int], seconds: float, *, exact: bool
) -> None:
    """For each batch: make a run, compare it with the network's logits, time it, and print a line of JSON.

    Arguments:
        make_run: returns what runs a number of rows
        folder: the network's files, among them its rows and logits
        batches: numbers of rows
        seconds: duration of each measurement
        exact: whether the run computes in fp32
    """
    reference = json.loads((folder / "reference.json").read_text(encoding="utf-8"))
    all_rows, all_logits = (np.array(reference[key], np.float32) for key in ("rows", "logits"))
    for batch in batches:
        run = make_run(batch)
        repeated = np.resize(np.arange(len(all_rows)), batch)
        rows = all_rows[repeated]
        for _ in range(WARM_UP_RUNS):
            run(rows)
        # other rows than in the warm-up: a captured graph must read its input again
        for order in (repeated[::-1], repeated):
            logits = run(np.ascontiguousarray(all_rows[order]))
            if not logits_match(logits.ravel().tolist(), all_logits[order].tolist(), exact=exact):
                raise BenchmarkError(
                    f"batch {batch}: expected the network's logits, got {logits.ravel()[:3]}"
                )
        print(json.dumps({"rows": batch, **time_run(run, rows, seconds)}), flush=True)


def time_run(run: Run, rows: Array, seconds: float) -> dict[str, float]:
    """Latency and rows per second of runs that follow each other."""
    times: list[float] = []
    start = now = time.perf_counter()
    while now - start < seconds or len(times) < MIN_RUNS:
        run(rows)
        times.append(-now + (now := time.perf_counter()))
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return {
        "p50_ms": round(float(p50), 4),
        "p99_ms": round(float(p99), 4),
        "rows_per_second": round(len(rows) * len(times) / (now - start), 1),
    }
