"""Times graphs on this machine, in turn, as a service with one thread runs them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnpike.export.network import Array, Rows
from turnpike.service.artifact.runtime import Runtime

BATCH_SIZES = (1, 8, 64)
# at least this many runs of each graph at each size, and at least this many seconds of them
MIN_RUNS, SECONDS = 7, 0.15


@dataclass(frozen=True)
class Timing:
    """Median seconds of a run of one graph, by the number of rows."""

    seconds: dict[int, float]

    def times_faster_than(self, other: Timing) -> dict[int, float]:
        """How many times faster this graph is than another, by the number of rows."""
        return {size: other.seconds[size] / seconds for size, seconds in self.seconds.items()}


def measure_speed(
    runtimes: Sequence[Runtime], outputs: Sequence[str], rows: Rows, sizes: Sequence[int] = BATCH_SIZES
) -> list[Timing]:
    """Time the same rows on each graph, one run of each in turn, since the machine's speed changes."""
    fixed = runtimes[0].inputs[0].dims[0]
    chosen = [fixed] if isinstance(fixed, int) else sizes
    timings: list[dict[int, float]] = [{} for _ in runtimes]
    for size in chosen:
        feeds = {name: _repeated(array, size) for name, array in rows.inputs.items()}
        runs: list[list[float]] = [[] for _ in runtimes]
        for runtime in runtimes:
            runtime.run(feeds, outputs)
        ends = time.perf_counter() + SECONDS * len(runtimes)
        while len(runs[0]) < MIN_RUNS or time.perf_counter() < ends:
            for runtime, seconds in zip(runtimes, runs, strict=True):
                start = time.perf_counter()
                runtime.run(feeds, outputs)
                seconds.append(time.perf_counter() - start)
        for timing, seconds in zip(timings, runs, strict=True):
            timing[size] = statistics.median(seconds)
    return [Timing(timing) for timing in timings]


def _repeated(array: Array, count: int) -> Array:
    """The first `count` rows; if there are fewer, they are repeated."""
    return array[np.arange(count) % len(array)]
