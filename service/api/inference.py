"""Runs the model on a decoded request, once or several times, and combines the bodies of responses."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, perf_counter_ns
from typing import Any

import numpy as np

from service.artifact.runtime import Tensor
from service.errors import InternalError, RequestError, RunError
from service.http.request import Request
from service.http.response import ResponseBody
from service.inference_types import Array, InferenceRequest, InferenceResult, OutputReader
from service.protocol.infer_response import encode_infer
from service.registry.model import Model

log = logging.getLogger(__name__)


def run_deadline(inference: InferenceRequest, header: bytes | None, default_ms: int) -> float:
    """The time by which the run must have begun, by the monotonic clock.

    The parameter `timeout` (µs) and the header `X-Request-Timeout-Ms` can only shorten the default wait.
    """
    wait = default_ms / 1e3
    if inference.timeout_us:
        wait = min(wait, inference.timeout_us / 1e6)
    if header is not None:
        wait = min(wait, _parse_timeout_ms(header) / 1e3)
    return monotonic() + wait


@dataclass(slots=True)
class InferenceCall:
    """A decoded request and its model, which an endpoint may run several times."""

    model: Model
    inference: InferenceRequest
    # time by which its runs must have begun, by the monotonic clock
    deadline: float
    request: Request
    first_result: InferenceResult | None = None
    last_run_ended_ns: int = 0

    async def run(
        self,
        names: tuple[str, ...],
        extra_feeds: Mapping[str, Array] | None = None,
        *,
        unbatched: bool = False,
        reader: OutputReader | None = None,
    ) -> InferenceResult:
        """Run the model on the caller's rows.

        Args:
            names: The outputs to return.
            extra_feeds: More inputs, such as biases that move gates; such a run is never batched.
            unbatched: Never run the rows together with those of other requests.
            reader: Summarizes outputs within the run, for all its requests together.

        Raises:
            RequestError: Says why there is no result.
        """
        model, inference = self.model, self.inference
        if inference.rows == 0:
            summary = None if reader is None else reader.read({}, 0, 1)[0]
            result = InferenceResult(
                tuple(_empty_output(model, name, inference) for name in names), reader_result=summary
            )
        else:
            batcher = model.batcher
            queued = batcher.enqueue(
                {**inference.feeds, **extra_feeds} if extra_feeds else inference.feeds,
                inference.rows,
                names,
                deadline=self.deadline,
                unbatched=unbatched,
                future=self.request.waiter(),
                reader=reader,
                layout=None if extra_feeds else inference.layout,
                unobserved=self.request.head.skips_drift,
            )
            try:
                await queued.future
                result = queued.result()
            except CancelledError:
                batcher.withdraw(queued)
                raise
            except RunError as error:
                raise _run_failed(model, error) from error
        self.last_run_ended_ns = perf_counter_ns()
        if self.first_result is None:
            self.first_result = result
            self.request.record_inference(model.name, model.version, result, self.last_run_ended_ns)
        return result

    async def run_named(
        self,
        names: tuple[str, ...],
        extra_feeds: Mapping[str, Array] | None = None,
        *,
        unbatched: bool = False,
    ) -> dict[str, Array]:
        """Like `run`, but return the arrays by name."""
        result = await self.run(names, extra_feeds, unbatched=unbatched)
        return dict(zip(names, result.arrays, strict=True))

    def encode_infer(self, arrays: Mapping[str, Array]) -> ResponseBody:
        """The body of an infer response with these arrays."""
        model, inference = self.model, self.inference
        result = InferenceResult(tuple(arrays[name] for name in inference.output_names))
        return encode_infer(model.name, model.version, inference, result, model.labels)


def merge_json(first: ResponseBody, second: ResponseBody) -> ResponseBody:
    """Merge two bodies: the JSON objects into one, then the bytes of their tensors one after the other."""
    json, more_json = first[0][: first[1]], second[0][: second[1]]
    merged = json[:-1] + b"," + more_json[1:]
    if first[1] is second[1] is None:
        return merged, None
    return b"".join((merged, first[0][len(json) :], second[0][len(more_json) :])), len(merged)


def wrap_json(name: str, body: ResponseBody) -> ResponseBody:
    """Make a body the only value of a JSON object, `{name: body}`."""
    json = body[0][: body[1]]
    wrapped = b'{"%s":%s}' % (name.encode(), json)
    return wrapped + body[0][len(json) :], None if body[1] is None else len(wrapped)


def _run_failed(model: Model, error: RunError) -> RequestError:
    log.warning("%s/%d: %s", model.name, model.version, error)
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


def _parse_timeout_ms(header: bytes) -> int:
    if not (header.isdigit() and 0 < len(header) <= 10 and int(header)):
        value = header[:40].decode("latin-1")
        raise RequestError(f"X-Request-Timeout-Ms: expected whole milliseconds from 1, got {value!r}")
    return int(header)
