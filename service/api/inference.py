"""A decoded request run on its model: deadlines, requests of no rows, and rows that the model cannot take."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any

import numpy as np

from service.artifact.runtime import Tensor
from service.batching.job import Pending
from service.errors import Broken, RequestError, RunError
from service.inference_types import Answer, Array, Inference, Reader
from service.registry.model import Model

log = logging.getLogger(__name__)


def expect_room(model: Model) -> None:
    """Stop with Overloaded before a request is even decoded, when there is no room to wait in."""
    if model.batcher.full:
        raise model.batcher.overloaded()


def deadline(inference: Inference, header: bytes | None, usual_ms: int) -> float:
    """When the request must have begun to run, by the clock of the event loop.

    The `timeout` parameter (µs) and the header `X-Request-Timeout-Ms` may only shorten the usual wait.
    """
    wait = usual_ms / 1e3
    if inference.timeout:
        wait = min(wait, inference.timeout / 1e6)
    if header is not None:
        wait = min(wait, _milliseconds(header) / 1e3)
    return monotonic() + wait


async def answer(
    model: Model,
    inference: Inference,
    names: tuple[str, ...],
    until: float,
    *,
    alone: bool = False,
    future: Pending | None = None,
    reader: Reader | None = None,
) -> Answer:
    """The arrays of the outputs named; a RequestError says why there are none."""
    if inference.rows == 0:
        nothing = None if reader is None else reader.read({}, 0, 1)[0]
        return Answer(tuple(_empty(model, name, inference) for name in names), reading=nothing)
    try:
        return await model.batcher.submit(
            inference.feeds,
            inference.rows,
            names,
            deadline=until,
            alone=alone,
            future=future,
            reader=reader,
        )
    except RunError as error:
        log.warning("%s/%d: %s", model.name, model.version, error)
        if error.callers:
            raise RequestError(
                f"inputs: model {model.name!r} cannot be run on these values; "
                "expected values that it knows, such as ids below the size of its table"
            ) from error
        raise Broken(f"model {model.name!r} failed on these rows") from error


def _empty(model: Model, name: str, inference: Inference) -> Array:
    """An output of no rows; a dimension that only a run could tell is 0."""
    tensor = model.signature.outputs.get(name) or model.signature.hidden[name]
    known = _sizes(model.signature.inputs.values(), inference)
    shape = [dim if isinstance(dim, int) else known.get(dim, 0) for dim in tensor.dims]
    return np.zeros(shape, tensor.dtype)


def _sizes(inputs: Any, inference: Inference) -> dict[str, int]:
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
