"""Times runs of several graphs in turn, so that what another process does to one is done to all.

The time is the CPU time of the calling thread: onnxruntime runs a graph with one thread in it, and the time
in which another process has the CPU does not count. What such a process does to caches and to the clock of
the CPU remains: a low quantile leaves out the runs that it slows most, and the noise says how much is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# A round runs each function once. The time of the rounds and their number are limited at first, and both
# limits double while the noise is too large, until the time is MAX_SECONDS for each function.
MIN_ROUNDS, FIRST_MAX_ROUNDS = 9, 2000
FIRST_SECONDS, MAX_SECONDS = 0.15, 2.4
# the shortest time of a run, so that ratios are finite if a clock stands still
MIN_RUN_SECONDS = 1e-9
# the noise of a ratio above which more rounds are timed
SMALL_NOISE = 0.04
QUANTILE = 0.25
# parts of the rounds, one after the other, whose ratios are compared
PARTS = 3


@dataclass(frozen=True)
class RunTimes:
    """CPU seconds of a run of each, and the noise: by which share a ratio to the first is uncertain."""

    seconds: tuple[float, ...]
    noise: float


def time_in_turn(
    runs: Sequence[Callable[[], object]],
    *,
    seconds: float = FIRST_SECONDS,
    max_seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.thread_time,
) -> RunTimes:
    """Time some functions, one run of each in turn, until the noise is small.

    Args:
        runs: The functions.
        seconds: CPU seconds of runs of each at first.
        max_seconds: CPU seconds of runs of each at most, if the noise is not small before.
        clock: The CPU time of this thread.
    """
    for run in runs:
        run()
    rounds: list[list[float]] = []
    spent, max_rounds = 0.0, FIRST_MAX_ROUNDS
    while True:
        while len(rounds) < MIN_ROUNDS or (len(rounds) < max_rounds and spent < seconds * len(runs)):
            times = []
            for run in runs:
                start = clock()
                run()
                times.append(clock() - start)
            rounds.append(times)
            spent += sum(times)
        result = _result(np.array(rounds))
        if result.noise <= SMALL_NOISE or seconds >= max_seconds:
            return result
        seconds, max_rounds = min(2 * seconds, max_seconds), 2 * max_rounds


def _result(rounds: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> RunTimes:
    """The times, from those of each round."""
    rounds = np.maximum(rounds, MIN_RUN_SECONDS)
    parts = [np.quantile(part, QUANTILE, axis=0) for part in np.array_split(rounds, PARTS)]
    ratios = np.array([part / part[0] for part in parts])
    spread = np.ptp(ratios, axis=0) / np.median(ratios, axis=0) / 2
    return RunTimes(tuple(np.quantile(rounds, QUANTILE, axis=0).tolist()), float(spread.max()))
