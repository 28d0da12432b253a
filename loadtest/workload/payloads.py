"""Makes the payloads of a load: the same rows in the format of each wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnpike.common.datatypes import DATATYPE_BY_DTYPE
from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.plan import LoadPlan, Wire
from turnpike.loadtest.workload.input_data import InputArrays, InputSource
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import Array, json_numbers

# relative frequency of each wire format in the mix
MIX_WEIGHTS: dict[Wire, float] = {"json": 6, "binary": 2, "v1": 1, "gates": 0.8, "lesion": 0.2}
# bytes that all inputs of one kind may take: there are fewer different payloads if they are large
MAX_KIND_BYTES = 64 * 2**20
JSON_LENGTH_HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """One request without the server's address. No two payloads are equal, so they can be dictionary keys."""

    kind: str  # as tables show it: "json, 1 row"
    path: str  # goes after the path in the server's URL
    data: bytes
    headers: dict[str, str]
    rows: int
    weight: float  # relative frequency
    wire: Wire


def make_payloads(
    target: Target, plan: LoadPlan, max_kind_bytes: int = MAX_KIND_BYTES
) -> tuple[Payload, ...]:
    """All different payloads of a plan: for each number of rows, several inputs in each wire format."""
    weights = _weights(target, plan.wire)
    source = InputSource(target, plan)
    payloads = []
    for rows in dict.fromkeys(plan.rows):
        size = sum(array.nbytes for array in source.make(rows, 0).values())
        count = max(1, min(plan.samples, max_kind_bytes // max(size, 1)))
        for number in range(count):
            inputs = source.make(rows, number)
            for wire, weight in weights.items():
                path, data, headers = _request(target, wire, inputs, source.by_row, number)
                kind = f"{wire}, {rows} row{'s' if rows > 1 else ''}"
                payloads.append(Payload(kind, path, data, headers, rows, weight / count, wire))
    return tuple(payloads)


def _weights(target: Target, wire: Wire) -> dict[Wire, float]:
    """The wire formats to send, and their relative frequencies."""
    if wire != "mixed":
        # some servers support binary tensors without saying so
        if wire != "binary" and (reason := why_unsupported(target, wire)):
            raise UsageError(f"--wire {wire}: {reason}")
        return {wire: 1}
    weights = {name: weight for name, weight in MIX_WEIGHTS.items() if why_unsupported(target, name) is None}
    if not weights:
        reason = why_unsupported(target, "json")
        raise UsageError(f"--wire mixed: expected a target that supports at least one format; json: {reason}")
    return weights


def why_unsupported(target: Target, wire: Wire) -> str | None:
    """Why a target does not support a wire format, as far as is known; None if it does."""
    match wire:
        case "json" | "v1" if target.fp16_tensor:
            return f"expected a model without FP16, which JSON cannot hold, got {target.fp16_tensor!r}"
        case "binary" if not target.binary:
            return f"expected a server with the binary tensor extension, got {target.server} without it"
        case "v1" if not target.v1:
            return f"expected a server with /v1/models/{target.model}, got {target.server} without it"
        case "gates" if not target.gates:
            return f"expected a model whose gates can be read, got none at {target.server}"
        case "lesion" if not target.lesion_layers:
            return f"expected a model with layers that can be closed, got none at {target.server}"
    return None


_Request = tuple[str, bytes, dict[str, str]]


def _request(target: Target, wire: Wire, inputs: InputArrays, by_row: bool, number: int) -> _Request:
    """Path, body and headers."""
    if wire == "v1":
        body = _json({"instances": _instances(inputs, by_row)})
        return f"/v1{target.path}:predict", body, {"Content-Type": "application/json"}
    path = f"/v2{target.path}/{wire if wire in ('gates', 'lesion') else 'infer'}"
    layers = target.lesion_layers
    more = {"close": [layers[number % len(layers)]]} if wire == "lesion" else {}
    if wire == "binary" or target.fp16_tensor:
        parameters = {"binary_data_output": True}
        head = _json({"inputs": _entries(inputs, _binary_size), "parameters": parameters, **more})
        data = b"".join([head, *(np.ascontiguousarray(array).tobytes() for array in inputs.values())])
        headers = {"Content-Type": "application/octet-stream", JSON_LENGTH_HEADER: str(len(head))}
        return path, data, headers
    body = _json({"inputs": _entries(inputs, _json_data), **more})
    return path, body, {"Content-Type": "application/json"}


def _entries(inputs: InputArrays, content: Callable[[Array], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": array.shape, "datatype": DATATYPE_BY_DTYPE[array.dtype], **content(array)}
        for name, array in inputs.items()
    ]


def _binary_size(array: Array) -> dict[str, Any]:
    return {"parameters": {"binary_data_size": array.nbytes}}


def _json_data(array: Array) -> dict[str, Any]:
    return {"data": json_numbers(array)}


def _instances(inputs: InputArrays, by_row: bool) -> list[Any]:
    """Rows as /v1 expects them; with several inputs, each row is an object with their names."""
    columns = {name: _nested(array) if by_row else [_nested(array)] for name, array in inputs.items()}
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _nested(array: Array) -> Any:
    """The values as nested JSON lists."""
    return np.array(json_numbers(array), object).reshape(array.shape).tolist()


def _json(document: Any) -> bytes:
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise UsageError(
            "--data: expected finite numbers, because JSON has no others; use --wire binary"
        ) from error
