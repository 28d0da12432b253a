"""Runs the model on a decoded request, once or several times."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter_ns
from typing import Any

import numpy as np

from turnpike.service.artifact.tensor import Tensor
from turnpike.service.batching.queue import QueuedRequest
from turnpike.service.errors import InternalError, RequestError, RunError
from turnpike.service.inference_types import (
    Array,
    Feeds,
    InferAnswer,
    InferenceRequest,
    InferenceResult,
    OutputProcessor,
    RequestForm,
    RunPlan,
    Waiter,
)
from turnpike.service.registry.model import Model
from turnpike.service.requests.request import DRIFT_HEADER, Request

log = logging.getLogger(__name__)


def run_deadline(form: RequestForm, client_timeout: float | None, default_ms: int) -> float:
    """The time by which the run must have begun, by the monotonic clock.

    The parameter `timeout` (µs) and the client's own limit (seconds) can only shorten the default wait.
    """
    wait = default_ms / 1e3
    if form.timeout_us:
        wait = min(wait, form.timeout_us / 1e6)
    if client_timeout is not None:
        wait = min(wait, client_timeout)
    return monotonic() + wait


@dataclass(slots=True)
class InferenceCall:
    """A decoded request and its model, which an endpoint may run several times."""

    model: Model
    inference: InferenceRequest
    # time by which its runs must have begun, by the monotonic clock
    deadline: float
    request: Request
    # the run that was started last
    queued: QueuedRequest | None = None
    first_result: InferenceResult | None = None
    # times by perf_counter_ns: before the first run was queued, and after the last one
    first_queued_ns: int = 0
    last_run_ended_ns: int = 0

    def plan(
        self,
        output_names: tuple[str, ...],
        processor: OutputProcessor | None = None,
        *,
        unbatched: bool = False,
    ) -> RunPlan:
        """How to run the model on the caller's rows for these outputs; see `BatchRunner.plan`."""
        form = self.inference.form
        runner = self.model.batcher.runner
        return runner.plan(form.layout, form.rows, output_names, processor, unbatched=unbatched)

    def start(self, plan: RunPlan, feeds: Feeds | None = None) -> Waiter:
        """Queue a run on the caller's rows, or on other feeds. Await what it returns, then call `result`.

        One coroutine for all of this would take more time.
        """
        request = self.request
        unobserved = request.head.skips_drift
        if unobserved is None:
            value = request.head.fields[DRIFT_HEADER][:40].decode("latin-1")
            raise RequestError(f"X-Turnpike-Drift: expected skip, got {value!r}")
        waiter = request.waiter()
        if plan.rows:
            self.queued = self.model.batcher.enqueue(
                self.inference.feeds if feeds is None else feeds,
                plan,
                self.deadline,
                waiter,
                unobserved=unobserved,
            )
        else:
            # without rows there is nothing to run
            self.queued = QueuedRequest({}, plan, self.deadline, perf_counter_ns(), waiter)
            self.queued.outcome = self._empty_result(plan)
            waiter.set_result(None)
        return waiter

    def result(self) -> InferenceResult:
        """The result of the run that was started last. Raises a RequestError that says why there is none."""
        queued = self.queued
        if queued is None:
            raise InternalError("model: expected a run that was started")
        try:
            result = queued.result()
        except RunError as error:
            raise _run_failed(self.model, error) from error
        self.last_run_ended_ns = perf_counter_ns()
        if self.first_result is None:
            self.first_result = result
            self.first_queued_ns = queued.queued_ns
            model = self.model
            self.request.record_inference(model.name, model.version, result, self.last_run_ended_ns)
        return result

    def count_success(self, received_ns: int) -> None:
        """Count the request, whose body had arrived at `received_ns`, and whose answer is complete."""
        result = self.first_result
        if result is not None:
            ended_ns = perf_counter_ns()
            self.model.counters.count_request(
                result,
                ended_ns - self.request.started_ns,
                self.first_queued_ns - received_ns,
                ended_ns - self.last_run_ended_ns + result.processing_ns,
                self.inference.form.rows,
            )

    def abandon(self) -> None:
        """Take the run out of the queue: the caller has gone."""
        if self.queued is not None:
            self.model.batcher.withdraw(self.queued)

    async def run_named(
        self,
        names: tuple[str, ...],
        extra_feeds: Mapping[str, Array] | None = None,
        *,
        unbatched: bool = False,
    ) -> dict[str, Array]:
        """Run the model, and return its outputs of these names by name.

        Args:
            names: The outputs to return.
            extra_feeds: More inputs, such as biases that move gates; such a run is never batched.
            unbatched: Never run the rows together with those of other requests.
        """
        feeds = self.inference.feeds
        if extra_feeds:
            feeds = {**feeds, **extra_feeds}
            unbatched = True
        await self.start(self.plan(names, unbatched=unbatched), feeds)
        result = self.result()
        return dict(zip(names, result.arrays, strict=True))

    def infer_answer(self, arrays: Sequence[Array]) -> InferAnswer:
        """The answer with these arrays of the requested outputs."""
        model = self.model
        return InferAnswer(model.name, model.version, self.inference.form, arrays, model.labels)

    def named_answer(self, arrays: Mapping[str, Array]) -> InferAnswer:
        """The answer with the requested outputs among these."""
        return self.infer_answer([arrays[name] for name in self.inference.form.output_names])

    def _empty_result(self, plan: RunPlan) -> InferenceResult:
        """The result for no rows, without a run."""
        empty = {name: _empty_output(self.model, name, self.inference) for name in plan.needed_names}
        processed = None if plan.processor is None else plan.processor.process(empty, 0, 1)[0]
        return InferenceResult(tuple(empty[name] for name in plan.output_names), processed=processed)


def _run_failed(model: Model, error: RunError) -> RequestError:
    log.warning("%s/%d: %s", model.name, model.version, error)
    if error.caused_by_input and error.id_and_range is not None:
        found, _, highest = error.id_and_range
        return RequestError(
            f"inputs: model {model.name!r} cannot be run on these values: a table of it has ids, or "
            f"positions, up to {highest}, got {found}"
        )
    if error.caused_by_input:
        return RequestError(
            f"inputs: model {model.name!r} cannot be run on these values; "
            "expected values that it accepts, such as ids below the size of its table"
        )
    if error.out_of_memory:
        return InternalError(f"model {model.name!r} needs more memory for these rows than the worker has")
    return InternalError(f"model {model.name!r} failed on these rows")


def _empty_output(model: Model, name: str, inference: InferenceRequest) -> Array:
    """An output of zero rows. A dimension that is only known after a run is 0."""
    tensor = model.signature.outputs.get(name) or model.signature.hidden[name]
    sizes = _dimension_sizes(model.signature.inputs.values(), inference)
    shape = [dim if isinstance(dim, int) else sizes.get(dim, 0) for dim in tensor.dims]
    return np.zeros(shape, tensor.dtype)


def _dimension_sizes(inputs: Any, inference: InferenceRequest) -> dict[str, int]:
    """The sizes of the named dimensions in this request, by name."""
    tensors: tuple[Tensor, ...] = tuple(inputs)
    return {
        dim: size
        for tensor in tensors
        for dim, size in zip(tensor.dims, inference.feeds[tensor.name].shape, strict=True)
        # "?" stands for every dimension that has no name in the graph
        if isinstance(dim, str) and dim != "?"
    }
