"""Runs a batch: stacks the rows of several requests, runs the model once, and splits the outputs again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from turnpike.service.batching.queue import QueuedRequest
from turnpike.service.errors import InternalError
from turnpike.service.inference_types import Array, FeedLayout, InferenceResult, OutputProcessor, RunPlan

Run = Callable[[Mapping[str, Array], tuple[str, ...]], list[Array]]


@dataclass(slots=True)
class CompletedBatch:
    """Figures of a run that has ended, for the counters."""

    rows: int
    run_ns: int


class BatchRunner:
    """Runs requests together. It knows neither queues nor the event loop, and works in any thread.

    A subclass may do more for the rows of a run (`run_rows`), and treat failed runs in another way
    (`run_failed`).

    Args:
        run: Runs the model on feeds and returns the outputs of the given names.
        inputs: The names of the model's inputs, which every request feeds.
        splittable: The outputs that can be cut along axis 0 into equal parts, one for each row. A request for
            any other output runs by itself, as does one that feeds more than the inputs (levers).
        batched: False if the model couples its rows, so that every request must run by itself.
        pad_single_rows: True if the model computes a single row with other last bits than the same row in a
            batch. A single row then runs next to a copy of itself.
        max_rows: The most rows in one run.
        unobserved_run: Like `run`, for runs that are left out of statistics of the model; `run` if None.
    """

    # whether short runs may take place in the event loop
    inline = True

    def __init__(
        self,
        run: Run,
        *,
        inputs: Collection[str],
        splittable: Collection[str],
        batched: bool,
        pad_single_rows: bool,
        max_rows: int,
        unobserved_run: Run | None = None,
    ) -> None:
        self._run, self._unobserved_run = run, unobserved_run or run
        self._inputs = tuple(inputs)
        self._splittable = frozenset(splittable)
        self.batched = batched
        self._pad_single_rows = pad_single_rows
        self.max_rows = max_rows

    def plan(
        self,
        layout: FeedLayout,
        rows: int,
        output_names: tuple[str, ...],
        processor: OutputProcessor | None = None,
        *,
        unbatched: bool = False,
    ) -> RunPlan:
        """Plan the runs of requests that have this in common; see `RunPlan`.

        Args:
            layout: The layout of the feeds.
            rows: The length of the inputs' batch axis.
            output_names: The outputs to return, in this order.
            processor: Called once for all requests of a run with this plan; see `OutputProcessor`.
            unbatched: Do not share a run with other requests.
        """
        processed_names = () if processor is None else processor.output_names
        needed_names = tuple(dict.fromkeys(output_names + processed_names))
        row_shapes = None
        if (
            self.batched
            and not unbatched
            # it feeds nothing but the inputs
            and len(layout.row_shapes) == len(self._inputs)
            and self._splittable.issuperset(needed_names)
        ):
            if layout.rows != rows:
                raise InternalError(f"inputs: expected {rows} rows of each, got {layout.rows}")
            row_shapes = layout.row_shapes
        # each output that is needed beyond the first counts as further input: it costs about the same time
        size = layout.size * max(1, len(needed_names))
        return RunPlan(rows, size, row_shapes, output_names, needed_names, processor)

    def run(self, requests: list[QueuedRequest]) -> list[CompletedBatch]:
        """Set the outcome of every request; return the runs that this took."""
        try:
            if requests[0].plan.rows > self.max_rows and self._can_be_cut(requests[0]):
                return self._run_in_pieces(requests[0])
            return [self._run_together(requests)]
        except Exception as error:  # whatever a model raises belongs to the request that caused it
            failure = error
        # not within the handler of the error, so that errors of further runs are not chained to it
        try:
            return self.run_failed(requests, failure)
        finally:
            # its traceback holds this frame
            del failure

    def run_failed(self, requests: list[QueuedRequest], error: Exception) -> list[CompletedBatch]:
        """Set the outcome of every request of a run that failed; return the runs that this took.

        Each half of several requests is run again, and so on, so that only the request that causes the error
        gets it.
        """
        if len(requests) == 1:
            requests[0].outcome = error
            return []
        half = len(requests) // 2
        return self.run(requests[:half]) + self.run(requests[half:])

    def _run_together(self, requests: list[QueuedRequest]) -> CompletedBatch:
        """One run for all requests."""
        start = perf_counter_ns()
        plans = [request.plan for request in requests]
        plan = plans[0]
        have_one_plan = plans.count(plan) == len(plans)

        # stack the rows, and collect the outputs that any of the requests needs, each once
        feeds = requests[0].feeds
        if len(requests) > 1:
            feeds = {
                name: np.concatenate([request.feeds[name] for request in requests]) for name in self._inputs
            }
        if have_one_plan:
            rows, names = plan.rows * len(plans), plan.needed_names
        else:
            rows = sum([plan.rows for plan in plans])
            names = tuple(dict.fromkeys([name for plan in plans for name in plan.needed_names]))

        # run the model, then the processors
        unobserved = any([request.unobserved for request in requests])  # noqa: C419, it is faster
        run = self._unobserved_run if unobserved else self._run
        arrays = self.run_rows(run, feeds, rows, names)
        ended = perf_counter_ns()
        outputs = dict(zip(names, arrays, strict=True))
        if have_one_plan and plan.processor is not None:
            all_processed = plan.processor.process(outputs, plan.rows, len(plans))
        else:
            all_processed = _run_processors(plans, outputs, rows)
        run_ns, processing_ns = ended - start, (perf_counter_ns() - ended) // len(plans)

        # give each request its own rows of the outputs that it named
        row = 0
        # Entries for each row: most outputs have one. An output of a request on its own may have no axis.
        sized = {name: (outputs[name], len(outputs[name]) // rows) for name in names if len(plans) > 1}
        for request, plan, processed in zip(requests, plans, all_processed, strict=True):
            stop = row + plan.rows
            own: list[Array] = []
            for name in plan.output_names:
                if sized:
                    array, entries = sized[name]
                    own.append(array[row * entries : stop * entries])
                else:
                    own.append(outputs[name])
            queue_ns = start - request.queued_ns
            request.outcome = InferenceResult(tuple(own), queue_ns, run_ns, rows, processed, processing_ns)
            row = stop
        return CompletedBatch(rows, run_ns)

    def _run_in_pieces(self, request: QueuedRequest) -> list[CompletedBatch]:
        """Several runs for one request with more rows than a run may have; stops if its caller goes away."""
        start = perf_counter_ns()
        batches: list[CompletedBatch] = []
        pieces: list[list[Array]] = []
        plan = request.plan
        names = plan.needed_names
        run = self._unobserved_run if request.unobserved else self._run

        # Run one piece after the other. Only the last one completes the request.
        for row in range(0, plan.rows, self.max_rows):
            if request.future.done():
                return batches
            piece_start = perf_counter_ns()
            rows = min(self.max_rows, plan.rows - row)
            feeds = {
                name: array[row : row + rows] if name in self._inputs else array
                for name, array in request.feeds.items()
            }
            pieces.append(self.run_rows(run, feeds, rows, names))
            batches.append(CompletedBatch(rows, perf_counter_ns() - piece_start))

        # put the outputs together again, so that the processor sees all rows as one request
        arrays = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
        ended = perf_counter_ns()
        outputs = dict(zip(names, arrays, strict=True))
        (processed,) = _run_processors([plan], outputs, plan.rows)
        processing_ns = perf_counter_ns() - ended
        own = tuple([outputs[name] for name in plan.output_names])
        queue_ns = start - request.queued_ns
        request.outcome = InferenceResult(
            own, queue_ns, ended - start, self.max_rows, processed, processing_ns
        )
        return batches

    def run_rows(
        self, run: Run, feeds: Mapping[str, Array], rows: int, names: tuple[str, ...]
    ) -> list[Array]:
        """One run of at most `max_rows` rows; pads a single row if the model needs that.

        Args:
            run: One of the two functions that the runner was created with.
            feeds: The rows of all inputs, and any other tensors to override (levers).
            rows: The number of rows.
            names: The outputs to return, in this order.
        """
        if rows == 1 and self._pad_single_rows and self.batched and self._splittable.issuperset(names):
            # Single rows take a different kernel with different rounding. A copy next to the row makes the
            # result equal, bit for bit, to that of a batched run.
            pair = {
                name: np.concatenate((array, array)) if name in self._inputs else array
                for name, array in feeds.items()
            }
            return [_slice_rows(array, 0, 1, 2) for array in self._run_checked(run, pair, 2, names)]
        return self._run_checked(run, feeds, rows, names)

    def _run_checked(
        self, run: Run, feeds: Mapping[str, Array], rows: int, names: tuple[str, ...]
    ) -> list[Array]:
        """Run the model and check that the outputs are complete: wrong rows would reach another request."""
        arrays = run(feeds, names)
        if len(arrays) != len(names):
            raise InternalError(f"outputs: expected {len(names)} of the model, got {len(arrays)}")
        for name, array in zip(names, arrays, strict=True):
            if name in self._splittable and not _can_split(array, rows, feeds):
                raise InternalError(
                    f"outputs: expected {rows} rows of {name!r}, got shape {list(array.shape)}"
                )
        return arrays

    def _can_be_cut(self, request: QueuedRequest) -> bool:
        return self.batched and self._splittable.issuperset(request.plan.needed_names)


def _run_processors(plans: Sequence[RunPlan], outputs: Mapping[str, Array], rows: int) -> Sequence[Any]:
    """The processor's result for each request of a run, None for those without a processor.

    Requests with the same processor and the same number of rows are processed in one call.
    """
    if not any([plan.processor is not None for plan in plans]):  # noqa: C419, it is faster
        return [None] * len(plans)

    # group the requests by processor and number of rows
    groups: dict[tuple[OutputProcessor, int], list[int]] = {}
    starts, row = [], 0
    for index, plan in enumerate(plans):
        starts.append(row)
        row += plan.rows
        if plan.processor is not None:
            groups.setdefault((plan.processor, plan.rows), []).append(index)

    # Process the rows of each group. If it covers the whole run, no rows need copying.
    results: list[Any] = [None] * len(plans)
    for (processor, rows_each), members in groups.items():
        own = outputs
        if len(members) < len(plans):
            spans = [(starts[index], starts[index] + rows_each) for index in members]
            own = {
                name: np.concatenate([_slice_rows(outputs[name], start, stop, rows) for start, stop in spans])
                for name in processor.output_names
            }
        for index, result in zip(members, processor.process(own, rows_each, len(members)), strict=True):
            results[index] = result
    return results


def _slice_rows(array: Array, start: int, stop: int, rows: int) -> Array:
    """Rows `start` to `stop` of an output; a row may have several entries, such as one for each word."""
    entries = len(array) // rows
    return array[start * entries : stop * entries]


def _can_split(array: Array, rows: int, feeds: Mapping[str, Array]) -> bool:
    """Whether an output has a part for each row. It may be empty only if an input is empty as well."""
    if not array.ndim or len(array) % rows:
        return False
    return len(array) > 0 or any(not feed.size for feed in feeds.values())
