"""What one request asks of a model, in one run or several, and the answer put together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic, perf_counter_ns
from typing import Any

import numpy as np

from service.artifact.runtime import Tensor
from service.errors import InternalError, RequestError, RunError
from service.http.request_context import Course
from service.inference_types import Array, InferenceRequest, InferenceResult, OutputReader, Waiter
from service.protocol.infer_response import encode_infer
from service.registry.model import Model

log = logging.getLogger(__name__)


def reject_if_queue_full(model: Model) -> None:
    """Stop with Overloaded before a request is even decoded, when there is no room to wait in."""
    if model.batcher.is_full:
        raise model.batcher.overloaded_error()


def deadline(inference: InferenceRequest, header: bytes | None, usual_ms: int) -> float:
    """When the request must have begun to run, by the clock of the event loop.

    The `timeout` parameter (µs) and the header `X-Request-Timeout-Ms` may only shorten the usual wait.
    """
    wait = usual_ms / 1e3
    if inference.timeout_us:
        wait = min(wait, inference.timeout_us / 1e6)
    if header is not None:
        wait = min(wait, _milliseconds(header) / 1e3)
    return monotonic() + wait


async def run_inference(
    model: Model,
    inference: InferenceRequest,
    names: tuple[str, ...],
    until: float,
    *,
    unbatched: bool = False,
    future: Waiter | None = None,
    reader: OutputReader | None = None,
) -> InferenceResult:
    """The arrays of the outputs named; a RequestError says why there are none."""
    if inference.rows == 0:
        nothing = None if reader is None else reader.read({}, 0, 1)[0]
        return InferenceResult(tuple(_empty(model, name, inference) for name in names), reader_result=nothing)
    try:
        return await model.batcher.submit(
            inference.feeds,
            inference.rows,
            names,
            deadline=until,
            unbatched=unbatched,
            future=future,
            reader=reader,
        )
    except RunError as error:
        log.warning("%s/%d: %s", model.name, model.version, error)
        if error.caused_by_input:
            raise RequestError(
                f"inputs: model {model.name!r} cannot be run on these values; "
                "expected values that it knows, such as ids below the size of its table"
            ) from error
        raise InternalError(f"model {model.name!r} failed on these rows") from error


def _empty(model: Model, name: str, inference: InferenceRequest) -> Array:
    """An output of no rows; a dimension that only a run could tell is 0."""
    tensor = model.signature.outputs.get(name) or model.signature.hidden[name]
    known = _sizes(model.signature.inputs.values(), inference)
    shape = [dim if isinstance(dim, int) else known.get(dim, 0) for dim in tensor.dims]
    return np.zeros(shape, tensor.dtype)


def _sizes(inputs: Any, inference: InferenceRequest) -> dict[str, int]:
    """The named dimensions, as the request gives them."""
    tensors: tuple[Tensor, ...] = tuple(inputs)
    return {
        dim: size
        for tensor in tensors
        for dim, size in zip(tensor.dims, inference.feeds[tensor.name].shape, strict=True)
        # the graph has no name for every dimension, and runtime.py one for all of those
        if isinstance(dim, str) and dim != "?"
    }


def _milliseconds(header: bytes) -> int:
    if not (header.isdigit() and 0 < len(header) <= 10 and int(header)):
        came = header[:40].decode("latin-1")
        raise RequestError(f"X-Request-Timeout-Ms: expected whole milliseconds from 1, got {came!r}")
    return int(header)


# a body, and how many bytes of it are JSON where tensors follow that
Content = tuple[bytes, int | None]


@dataclass(slots=True)
class InferenceCall:
    """A request that was decoded; `first` is what its first run gave, `ran` when its last ended."""

    model: Model
    inference: InferenceRequest
    until: float
    course: Course
    first: InferenceResult | None = None
    ran: int = 0

    async def run(
        self,
        names: tuple[str, ...],
        moved: Mapping[str, Array] | None = None,
        *,
        unbatched: bool = False,
        reader: OutputReader | None = None,
    ) -> InferenceResult:
        """The outputs named on the caller's rows, and what a reader makes of others.

        `moved` is fed beside the rows, and such a run is its own.
        """
        inference = self.inference
        if moved:
            inference = replace(inference, feeds={**inference.feeds, **moved})
        future = self.course.future()
        given = await run_inference(
            self.model, inference, names, self.until, unbatched=unbatched, future=future, reader=reader
        )
        self.ran = perf_counter_ns()
        if self.first is None:
            self.first = given
            self.course.ran(self.model, given)
        return given

    async def by_name(
        self, names: tuple[str, ...], moved: Mapping[str, Array] | None = None, *, unbatched: bool = False
    ) -> dict[str, Array]:
        """The same as a dict."""
        return dict(zip(names, (await self.run(names, moved, unbatched=unbatched)).arrays, strict=True))

    def as_infer(self, arrays: Mapping[str, Array]) -> Content:
        """What infer would answer with these arrays."""
        model, inference = self.model, self.inference
        answered = InferenceResult(tuple(arrays[name] for name in inference.output_names))
        return encode_infer(model.name, model.version, inference, answered, model.labels)


def merge_json(first: Content, second: Content) -> Content:
    """One answer of two: the JSON objects made one, and the tensors' bytes one after the other."""
    text, more = first[0][: first[1]], second[0][: second[1]]
    whole = text[:-1] + b"," + more[1:]
    if first[1] is second[1] is None:
        return whole, None
    return b"".join((whole, first[0][len(text) :], second[0][len(more) :])), len(whole)


def wrap_json(name: str, content: Content) -> Content:
    """An answer as the one value of an object."""
    text = content[0][: content[1]]
    whole = b'{"%s":%s}' % (name.encode(), text)
    return whole + content[0][len(text) :], None if content[1] is None else len(whole)
