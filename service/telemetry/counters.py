"""What a worker counts while it answers: plain numbers of one thread, added up over workers when read.

A snapshot is made of dicts, lists and numbers, so it goes through JSON as it is.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.batching.batch_run import CompletedBatch
    from service.inference_types import InferenceResult

Snapshot = dict[str, Any]

NS_PER_MS = 1_000_000
# upper bounds of histograms: nanoseconds, and rows
TIME_BOUNDS_NS = tuple(
    int(ms * NS_PER_MS)
    for ms in (
        0.05,
        0.1,
        0.25,
        0.5,
        1,
        2.5,
        5,
        10,
        25,
        50,
        100,
        250,
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        30_000,
    )
)
ROW_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)

# what is under way now rather than counted: it ends with its worker
PRESENT = ("workers", "in_flight", "waiting")
# points in time, of which there is no sum
EXTREMES = {"last": max, "started": min}


class Histogram:
    """How many values fell at or below each bound and above the one before it, and the sum of all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def snapshot(self) -> Snapshot:
        return {"counts": self.counts.copy(), "total": self.total}


class ModelCounters:
    """The counts of one version of one model. They go on when the version is loaded again."""

    def __init__(self) -> None:
        self._seconds = Histogram(TIME_BOUNDS_NS)
        self._queue = Histogram(TIME_BOUNDS_NS)
        self._run = Histogram(TIME_BOUNDS_NS)
        self._batch = Histogram(ROW_BOUNDS)
        self._rows = 0
        self._decode_ns = 0
        self._infer_ns = 0
        self._encode_ns = 0
        # milliseconds since 1970
        self._last = 0
        # reason: requests, nanoseconds
        self._failed: dict[str, list[int]] = {}
        # rows of a run: runs and their nanoseconds; requests in them, nanoseconds of decoding and of encoding
        self._sizes: dict[int, list[int]] = {}

    def count_batch(self, batch: CompletedBatch) -> None:
        """Count a run that is over."""
        self._run.add(batch.run_ns)
        self._batch.add(batch.rows)
        size = self._size(batch.rows)
        size[0] += 1
        size[1] += batch.run_ns

    def count_request(
        self, answer: InferenceResult, total_ns: int, decode_ns: int, encode_ns: int, rows: int
    ) -> None:
        """Count a request that was answered."""
        self._seconds.add(total_ns)
        self._queue.add(answer.queue_ns)
        self._rows += rows
        self._decode_ns += decode_ns
        self._infer_ns += answer.run_ns
        self._encode_ns += encode_ns
        self._last = time.time_ns() // NS_PER_MS
        if answer.batch_rows:
            size = self._size(answer.batch_rows)
            size[2] += 1
            size[3] += decode_ns
            size[4] += encode_ns

    def count_failure(self, reason: str, ns: int) -> None:
        """Count a request that got no answer from this model, and why."""
        failed = self._failed.setdefault(reason, [0, 0])
        failed[0] += 1
        failed[1] += ns

    def snapshot(self, waiting: int = 0) -> Snapshot:
        return {
            "seconds": self._seconds.snapshot(),
            "queue": self._queue.snapshot(),
            "run": self._run.snapshot(),
            "batch": self._batch.snapshot(),
            "rows": self._rows,
            "decode_ns": self._decode_ns,
            "infer_ns": self._infer_ns,
            "encode_ns": self._encode_ns,
            "last": self._last,
            "failed": _copied(self._failed),
            "sizes": {str(rows): size.copy() for rows, size in self._sizes.items()},
            "waiting": waiting,
        }

    def _size(self, rows: int) -> list[int]:
        size = self._sizes.get(rows)
        if size is None:
            size = self._sizes[rows] = [0] * 5
        return size


class RequestCounters:
    """The counts of one worker. Routes, methods and reasons are of ours, never words of a caller."""

    def __init__(self) -> None:
        self.in_flight = 0
        # seconds since 1970
        self._started = time.time()
        self._models: dict[tuple[str, int], ModelCounters] = {}
        self._answered: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._refused: dict[str, int] = {}

    def for_model(self, name: str, version: int) -> ModelCounters:
        """The one meter of a version; a name of the index, never of a caller."""
        return self._models.setdefault((name, version), ModelCounters())

    def count_response(self, route: str, method: str, status: int, ns: int) -> None:
        """Count a request of HTTP that is over."""
        key = (route, method, status)
        self._answered[key] = self._answered.get(key, 0) + 1
        seconds = self._seconds.get(route)
        if seconds is None:
            seconds = self._seconds[route] = Histogram(TIME_BOUNDS_NS)
        seconds.add(ns)

    def count_error(self, reason: str) -> None:
        """Count a request of HTTP that was answered with an error of ours."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def snapshot(self, waiting: Mapping[tuple[str, int], int] | None = None) -> Snapshot:
        """All counts, and how many requests are `waiting` by model and version."""
        waiting = waiting or {}
        answered: Snapshot = {}
        for (route, method, status), count in self._answered.items():
            answered.setdefault(route, {}).setdefault(method, {})[str(status)] = count
        models: Snapshot = {}
        for (name, version), meter in list(self._models.items()):
            models.setdefault(name, {})[str(version)] = meter.snapshot(waiting.get((name, version), 0))
        return {
            "workers": 1,
            "started": self._started,
            "in_flight": self.in_flight,
            "answered": answered,
            "seconds": {route: histogram.snapshot() for route, histogram in self._seconds.items()},
            "refused": self._refused.copy(),
            "models": models,
        }


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """One snapshot of several workers, of the same form."""
    merged: Snapshot = {}
    for snapshot in snapshots:
        _add(merged, snapshot)
    return merged or ended(RequestCounters().snapshot())


def ended(snapshot: Snapshot) -> Snapshot:
    """What a worker that has ended leaves behind: all that it counted, and nothing under way."""
    return {
        key: ended(value) if isinstance(value, dict) else 0 if key in PRESENT else value
        for key, value in snapshot.items()
    }


def _add(into: Snapshot, other: Snapshot) -> None:
    for key, value in other.items():
        if key not in into:
            into[key] = _copied(value)
        elif isinstance(value, dict):
            _add(into[key], value)
        elif isinstance(value, list):
            into[key] = [mine + its for mine, its in zip(into[key], value, strict=True)]
        elif key in EXTREMES:
            into[key] = EXTREMES[key](into[key], value)
        else:
            into[key] += value


def _copied(value: Any) -> Any:
    """The same dicts and lists anew; the library's own way knows more kinds and takes ten times as long."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return value.copy() if isinstance(value, list) else value
