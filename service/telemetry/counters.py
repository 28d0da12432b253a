"""Counters and histograms of one worker, and their sums over all workers.

The counters are plain numbers that only the event loop's thread touches, so counting takes no lock. A
snapshot consists of dicts, lists and numbers, so it can be sent to other processes as JSON.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnpike.service.telemetry.log_writer import log_writer

if TYPE_CHECKING:
    from turnpike.service.batching.batch_run import CompletedBatch
    from turnpike.service.inference_types import InferenceResult

Snapshot = dict[str, Any]

NS_PER_MS = 1_000_000
# upper bounds of the histograms of times, in nanoseconds: 0.05 ms to 30 s
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
# upper bounds of the histogram of batch sizes, in rows
ROW_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)

# Figures are collected up to this number and then counted together, which takes 0.6 instead of 1.0 µs for
# each request.
MAX_PENDING = 256

# gauges: they describe the present and end with their worker, while counts stay
GAUGES = ("workers", "answering", "in_flight", "waiting")
# points in time, which are not summed up over workers but merged by these functions
TIME_MERGERS = {"last": max, "started": min}


class Histogram:
    """Number of values per bucket, and the sum of all values.

    A value belongs to the first bucket whose bound it does not exceed; the last bucket has no bound.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_all(self, values: Sequence[int]) -> None:
        ordered = sorted(values)
        start = 0
        for bucket, bound in enumerate(self.bounds):
            stop = bisect_right(ordered, bound, start)
            self.counts[bucket] += stop - start
            start = stop
        self.counts[-1] += len(ordered) - start
        self.total += sum(ordered)

    def snapshot(self) -> Snapshot:
        return {"counts": self.counts.copy(), "total": self.total}


class ModelCounters:
    """Counts of one version of one model. They continue if the version is loaded again."""

    def __init__(self) -> None:
        self._seconds = Histogram(TIME_BOUNDS_NS)
        self._queue = Histogram(TIME_BOUNDS_NS)
        self._run = Histogram(TIME_BOUNDS_NS)
        self._batch = Histogram(ROW_BOUNDS)
        self._rows = 0
        self._decode_ns = 0
        self._infer_ns = 0
        self._encode_ns = 0
        # time of the last run, in nanoseconds since 1970
        self._last_ns = 0
        # Figures of successful requests that are not counted yet: ns in total, in the queue and in the run,
        # rows of the batch, ns of decoding and of encoding, rows of the request.
        self._pending: list[tuple[int, int, int, int, int, int, int]] = []
        # reason -> [requests, nanoseconds]
        self._failed: dict[str, list[int]] = {}
        # kind of warning -> cells
        self._warnings: dict[str, int] = {}
        # rows in a batch -> [runs, nanoseconds of them, requests, nanoseconds of decoding, of encoding]
        self._sizes: dict[int, list[int]] = {}

    def count_batch(self, batch: CompletedBatch) -> None:
        """Count a run of the model."""
        self._last_ns = time.time_ns()
        self._run.add(batch.run_ns)
        self._batch.add(batch.rows)
        counts = self._size_counts(batch.rows)
        counts[0] += 1
        counts[1] += batch.run_ns

    def count_request(
        self, result: InferenceResult, total_ns: int, decode_ns: int, encode_ns: int, rows: int
    ) -> None:
        """Count a successful request.

        Args:
            result: Of its first run; has the times in the queue and in the run.
            total_ns: Nanoseconds from the request's headers to the bytes of its response.
            decode_ns: Nanoseconds for decoding the body.
            encode_ns: Nanoseconds for encoding the response.
            rows: Rows in the request.
        """
        pending = self._pending
        pending.append(
            (total_ns, result.queue_ns, result.run_ns, result.batch_rows, decode_ns, encode_ns, rows)
        )
        if len(pending) >= MAX_PENDING:
            self._count_pending()

    def count_failure(self, reason: str, ns: int) -> None:
        """Count a request that failed on this model."""
        failed = self._failed.setdefault(reason, [0, 0])
        failed[0] += 1
        failed[1] += ns

    def count_warnings(self, counts: Mapping[str, int]) -> None:
        """Count cells that the model's training did not have, by kind."""
        for kind, count in counts.items():
            self._warnings[kind] = self._warnings.get(kind, 0) + count

    def snapshot(self, waiting: int = 0) -> Snapshot:
        self._count_pending()
        return {
            "seconds": self._seconds.snapshot(),
            "queue": self._queue.snapshot(),
            "run": self._run.snapshot(),
            "batch": self._batch.snapshot(),
            "rows": self._rows,
            "decode_ns": self._decode_ns,
            "infer_ns": self._infer_ns,
            "encode_ns": self._encode_ns,
            "last": self._last_ns // NS_PER_MS,
            "failed": _copy(self._failed),
            "warnings": self._warnings.copy(),
            "sizes": {str(rows): size.copy() for rows, size in self._sizes.items()},
            "waiting": waiting,
        }

    def _count_pending(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        total_ns, queue_ns, run_ns, _, decode_ns, encode_ns, rows = zip(*pending, strict=True)
        self._seconds.add_all(total_ns)
        self._queue.add_all(queue_ns)
        self._rows += sum(rows)
        self._infer_ns += sum(run_ns)
        self._decode_ns += sum(decode_ns)
        self._encode_ns += sum(encode_ns)
        for _, _, _, batch_rows, decode, encode, _ in pending:
            if batch_rows:
                counts = self._size_counts(batch_rows)
                counts[2] += 1
                counts[3] += decode
                counts[4] += encode

    def _size_counts(self, rows: int) -> list[int]:
        counts = self._sizes.get(rows)
        if counts is None:
            counts = self._sizes[rows] = [0] * 5
        return counts


class RequestCounters:
    """Counts of one worker.

    Labels are routes, methods and reasons that the service defines, never text from a client: their number,
    and so the size of the metrics, stays bounded.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        # seconds since 1970
        self._started = time.time()
        self._models: dict[tuple[str, int], ModelCounters] = {}
        # number of responses by route, method and status; nanoseconds by route
        self._answered: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        # durations in nanoseconds that are not in the histograms yet
        self._pending: dict[tuple[str, str, int], list[int]] = {}
        self._refused: dict[str, int] = {}
        # streams and connections of gRPC that ended, by reason
        self._stream_ends: defaultdict[str, int] = defaultdict(int)
        self._connection_ends: defaultdict[str, int] = defaultdict(int)
        # payload events by what became of them, which their sender counts
        self.payload_events: dict[str, int] = {}

    def for_model(self, name: str, version: int) -> ModelCounters:
        """The counters of a loaded version; the same object each time."""
        return self._models.setdefault((name, version), ModelCounters())

    def count_response(self, route: str, method: str, status: int, ns: int) -> None:
        """Count a finished HTTP request."""
        self.count_responses({(route, method, status): [ns]})

    def count_responses(self, times: Mapping[tuple[str, str, int], Sequence[int]]) -> None:
        """Count finished HTTP requests: their nanoseconds by route, method and status."""
        for key, durations in times.items():
            pending = self._pending.setdefault(key, [])
            pending += durations
            if len(pending) >= MAX_PENDING:
                self._count_pending()

    def count_error(self, reason: str) -> None:
        """Count an HTTP request that the service answered with an error."""
        self._refused[reason] = self._refused.get(reason, 0) + 1

    def count_stream_end(self, reason: str) -> None:
        """Count a stream of gRPC that ended."""
        self._stream_ends[reason] += 1

    def count_connection_end(self, reason: str) -> None:
        """Count a connection of gRPC that ended."""
        self._connection_ends[reason] += 1

    def snapshot(self, waiting: Mapping[tuple[str, int], int] | None = None) -> Snapshot:
        """All counts. `waiting` is the number of requests in the queue, by model and version."""
        self._count_pending()
        waiting = waiting or {}
        answered: Snapshot = {}
        for (route, method, status), count in self._answered.items():
            answered.setdefault(route, {}).setdefault(method, {})[str(status)] = count
        models: Snapshot = {}
        for (name, version), counters in list(self._models.items()):
            models.setdefault(name, {})[str(version)] = counters.snapshot(waiting.get((name, version), 0))
        return {
            "workers": 1,
            "answering": 1,
            "started": self._started,
            "in_flight": self.in_flight,
            "answered": answered,
            "seconds": {route: histogram.snapshot() for route, histogram in self._seconds.items()},
            "refused": self._refused.copy(),
            "stream_ends": dict(self._stream_ends),
            "connection_ends": dict(self._connection_ends),
            "payload_events": self.payload_events.copy(),
            "log_lines_dropped": log_writer.dropped,
            "models": models,
        }

    def _count_pending(self) -> None:
        for key, times in self._pending.items():
            if not times:
                continue
            self._answered[key] = self._answered.get(key, 0) + len(times)
            if key[0] not in self._seconds:
                self._seconds[key[0]] = Histogram(TIME_BOUNDS_NS)
            self._seconds[key[0]].add_all(times)
            times.clear()


def merge_snapshots(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Add up the snapshots of several workers; the sum is a snapshot, too."""
    merged: Snapshot = {}
    for snapshot in snapshots:
        _add(merged, snapshot)
    return merged or without_gauges(RequestCounters().snapshot())


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """The snapshot of a worker that has ended: its counts, with all gauges at 0."""
    return {
        key: without_gauges(value) if isinstance(value, dict) else 0 if key in GAUGES else value
        for key, value in snapshot.items()
    }


def _add(into: Snapshot, other: Snapshot) -> None:
    for key, value in other.items():
        if key not in into:
            into[key] = _copy(value)
        elif isinstance(value, dict):
            _add(into[key], value)
        elif isinstance(value, list):
            into[key] = [ours + theirs for ours, theirs in zip(into[key], value, strict=True)]
        elif key in TIME_MERGERS:
            into[key] = TIME_MERGERS[key](into[key], value)
        else:
            into[key] += value


def _copy(value: Any) -> Any:
    """A deep copy of dicts and lists of numbers; copy.deepcopy takes ten times as long."""
    if isinstance(value, dict):
        return {key: _copy(entry) for key, entry in value.items()}
    return value.copy() if isinstance(value, list) else value
