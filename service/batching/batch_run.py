"""Requests run as one: their rows stacked, run, and dealt out again, each to the request it came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from service.batching.queue import QueuedRequest, Shapes
from service.errors import InternalError
from service.inference_types import Array, InferenceResult, OutputReader

Run = Callable[[Mapping[str, Array], tuple[str, ...]], list[Array]]


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """A run that is over: its rows, the requests that it completed and how long they all together had waited,
    and whether it ran in the event loop rather than in a thread."""

    rows: int
    requests: int
    run_ns: int
    queue_ns: int
    inline: bool


class BatchRunner:
    """Runs jobs together. It knows nothing of queues or the event loop, and works in any thread.

    `inputs` are what every request brings; `splittable` are the outputs that fall into equal parts along
    axis 0, one a row. A request that asks for another output, or brings more than the inputs, runs by itself,
    as all do unless `batched`. A run holds up to `max_rows` rows of equal shape and dtype. With `lone_rows`
    a row by itself is run beside a copy of itself.
    """

    def __init__(
        self,
        run: Run,
        *,
        inputs: Collection[str],
        splittable: Collection[str],
        batched: bool,
        lone_rows: bool,
        max_rows: int,
    ) -> None:
        self._run = run
        self._inputs = tuple(inputs)
        self._splittable = frozenset(splittable)
        self.batched = batched
        self._lone_rows = lone_rows
        self.max_rows = max_rows

    def shapes(self, feeds: Mapping[str, Array], rows: int, names: tuple[str, ...]) -> Shapes | None:
        """What the request's rows are like; None where it has to run by itself, because of what it asks for
        or because it brings more than the inputs."""
        if not self.batched or len(feeds) != len(self._inputs) or not self._splittable.issuperset(names):
            return None
        shapes = []
        for name in self._inputs:
            array = feeds[name]
            if array.shape[0] != rows:
                raise InternalError(f"inputs: expected {rows} rows of {name!r}, got {array.shape[0]}")
            shapes.append((array.shape[1:], array.dtype))
        return tuple(shapes)

    def run(self, jobs: list[QueuedRequest], inline: bool) -> list[CompletedBatch]:
        """Give every job its outcome; the batches are the runs that this took.

        When a run of several requests fails, each half is run again, and so on, so that only the request
        that is at fault gets the error.
        """
        try:
            if jobs[0].rows > self.max_rows and self._cuttable(jobs[0]):
                return self._run_cut(jobs[0], inline)
            return [self._run_whole(jobs, inline)]
        except Exception as error:  # whatever a model raises is for those who asked it
            if len(jobs) == 1:
                jobs[0].outcome = error
                return []
        half = len(jobs) // 2
        return self.run(jobs[:half], inline) + self.run(jobs[half:], inline)

    def _run_whole(self, jobs: list[QueuedRequest], inline: bool) -> CompletedBatch:
        """One run for all jobs."""
        start = perf_counter_ns()
        first = jobs[0]
        if len(jobs) == 1 and first.reader is None:
            arrays = self._rows(first.feeds, first.rows, first.names)
            run_ns, waited = perf_counter_ns() - start, start - first.since
            first.outcome = InferenceResult(tuple(arrays), waited, run_ns, first.rows)
            return CompletedBatch(first.rows, 1, run_ns, waited, inline)
        if len(jobs) == 1:
            feeds, rows, names = first.feeds, first.rows, tuple(dict.fromkeys(first.needs))
        else:
            feeds = {name: np.concatenate([job.feeds[name] for job in jobs]) for name in self._inputs}
            rows = sum([job.rows for job in jobs])
            needs = dict.fromkeys([job.needs for job in jobs])
            names = tuple(dict.fromkeys([name for need in needs for name in need]))
        arrays = self._rows(feeds, rows, names)
        run_ns = perf_counter_ns() - start
        named = dict(zip(names, arrays, strict=True))
        readings = _readings(jobs, named, rows)
        if len(jobs) == 1:
            own = tuple([named[name] for name in first.names])
            first.outcome = InferenceResult(own, start - first.since, run_ns, rows, readings[0])
            return CompletedBatch(rows, 1, run_ns, start - first.since, inline)
        waited = row = 0
        for job, reading in zip(jobs, readings, strict=True):
            until = row + job.rows
            own = tuple([_part(named[name], row, until, rows) for name in job.names])
            job.outcome = InferenceResult(own, start - job.since, run_ns, rows, reading)
            waited += start - job.since
            row = until
        return CompletedBatch(rows, len(jobs), run_ns, waited, inline)

    def _run_cut(self, job: QueuedRequest, inline: bool) -> list[CompletedBatch]:
        """As many runs as a request of too many rows needs; no more of them once its caller has gone."""
        start = perf_counter_ns()
        batches: list[CompletedBatch] = []
        parts: list[list[Array]] = []
        names = tuple(dict.fromkeys(job.needs))
        for row in range(0, job.rows, self.max_rows):
            if job.future.done():
                return batches
            begun = perf_counter_ns()
            rows = min(self.max_rows, job.rows - row)
            feeds = {
                name: array[row : row + rows] if name in self._inputs else array
                for name, array in job.feeds.items()
            }
            parts.append(self._rows(feeds, rows, names))
            last = row + rows == job.rows
            waited = start - job.since if last else 0
            batches.append(CompletedBatch(rows, int(last), perf_counter_ns() - begun, waited, inline))
        arrays = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        run_ns = perf_counter_ns() - start
        named = dict(zip(names, arrays, strict=True))
        (reading,) = _readings([job], named, job.rows)
        own = tuple([named[name] for name in job.names])
        job.outcome = InferenceResult(own, start - job.since, run_ns, self.max_rows, reading)
        return batches

    def _rows(self, feeds: Mapping[str, Array], rows: int, names: tuple[str, ...]) -> list[Array]:
        """One run of rows that are few enough, with as many rows coming out as went in."""
        if rows == 1 and self._lone_rows and self.batched and self._splittable.issuperset(names):
            # the model computes a row alone in another way than in company, so it is given company
            pair = {
                name: np.concatenate((array, array)) if name in self._inputs else array
                for name, array in feeds.items()
            }
            return [_part(array, 0, 1, 2) for array in self._checked(pair, 2, names)]
        return self._checked(feeds, rows, names)

    def _checked(self, feeds: Mapping[str, Array], rows: int, names: tuple[str, ...]) -> list[Array]:
        arrays = self._run(feeds, names)
        if len(arrays) != len(names):
            raise InternalError(f"outputs: expected {len(names)} of the model, got {len(arrays)}")
        for name, array in zip(names, arrays, strict=True):
            if name in self._splittable and not _falls_into(array, rows, feeds):
                raise InternalError(
                    f"outputs: expected {rows} rows of {name!r}, got shape {list(array.shape)}"
                )
        return arrays

    def _cuttable(self, job: QueuedRequest) -> bool:
        return self.batched and self._splittable.issuperset(job.needs)


def _readings(jobs: Sequence[QueuedRequest], arrays: Mapping[str, Array], rows: int) -> list[Any]:
    """What the readers make of a run's rows, job by job; requests of equal length are read together."""
    if all(job.reader is None for job in jobs):
        return [None] * len(jobs)
    alike: dict[tuple[OutputReader, int], list[int]] = {}
    starts, row = [], 0
    for n, job in enumerate(jobs):
        starts.append(row)
        row += job.rows
        if job.reader is not None:
            alike.setdefault((job.reader, job.rows), []).append(n)
    readings: list[Any] = [None] * len(jobs)
    for (reader, each), members in alike.items():
        own = arrays
        if len(members) < len(jobs):
            parts = [(starts[n], starts[n] + each) for n in members]
            own = {
                name: np.concatenate([_part(arrays[name], start, stop, rows) for start, stop in parts])
                for name in reader.output_names
            }
        for n, reading in zip(members, reader.read(own, each, len(members)), strict=True):
            readings[n] = reading
    return readings


def _part(array: Array, start: int, stop: int, rows: int) -> Array:
    """What belongs to some of the rows; each may have several places, such as the words of a text."""
    each = len(array) // rows
    return array[start * each : stop * each]


def _falls_into(array: Array, rows: int, feeds: Mapping[str, Array]) -> bool:
    """Whether there is a part for each row; an empty one only where what went in had no places, either."""
    if not array.ndim or len(array) % rows:
        return False
    return len(array) > 0 or any(not feed.size for feed in feeds.values())
