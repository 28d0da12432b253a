"""Times graphs on this machine, in turn, as a service with one thread runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnpike.export.errors import CompressionError
from turnpike.export.measure.run_times import time_in_turn
from turnpike.export.network import Array, Rows
from turnpike.service.artifact.runtime import Runtime

BATCH_SIZES = (1, 8, 64)
# The noise above which nothing is decided. A graph against itself has 0.01 to 0.02 beside six busy processes.
MAX_NOISE = 0.15


@dataclass(frozen=True)
class Timing:
    """Seconds of a run of one graph, by the number of rows, and their noise."""

    seconds: dict[int, float]
    noise: float = 0.0

    def times_faster_than(self, other: Timing) -> dict[int, float]:
        """How many times faster this graph is than another, by the number of rows."""
        return {size: other.seconds[size] / seconds for size, seconds in self.seconds.items()}


def measure_speed(
    runtimes: Sequence[Runtime], outputs: Sequence[str], rows: Rows, sizes: Sequence[int] = BATCH_SIZES
) -> list[Timing]:
    """Time the same rows on each graph."""
    fixed = runtimes[0].inputs[0].dims[0]
    chosen = [fixed] if isinstance(fixed, int) else sizes
    timings: list[dict[int, float]] = [{} for _ in runtimes]
    noise = 0.0
    for size in chosen:
        feeds = {name: _repeated(array, size) for name, array in rows.inputs.items()}
        times = time_in_turn([partial(runtime.run, feeds, outputs) for runtime in runtimes])
        noise = max(noise, times.noise)
        for timing, seconds in zip(timings, times.seconds, strict=True):
            timing[size] = seconds
    return [Timing(timing, noise) for timing in timings]


def expect_quiet_machine(timing: Timing) -> None:
    """Raise a CompressionError if times say nothing, and would decide what is written."""
    if timing.noise > MAX_NOISE:
        raise CompressionError(
            f"not written: the speed cannot be measured now. How many times faster a graph is varied by "
            f"{timing.noise:.0%} (expected {MAX_NOISE:.0%} or less), probably because other programs use "
            "this machine: try again when it is idle"
        )


def _repeated(array: Array, count: int) -> Array:
    """The first `count` rows; if there are fewer, they are repeated."""
    return array[np.arange(count) % len(array)]
