"""The requests of a load, ready to send: each wire's form of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadtest.errors import UsageError
from loadtest.plan import Plan, Wire
from loadtest.workload.input_data import Sample, Samples
from loadtest.workload.target import Target
from loadtest.workload.tensors import DATATYPES, Array, numbers

# how often each wire goes when all go
MIXED: dict[Wire, float] = {"json": 6, "binary": 2, "v1": 1, "gates": 0.8, "lesion": 0.2}
# requests of one kind hold no more than this together; there are fewer of them where they are large
MOST_BYTES = 64 * 2**20
HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """One request; its path comes after the path of the server's URL. No two are equal."""

    kind: str  # what it is, as the tables call it: "json, 1 row"
    path: str
    data: bytes
    headers: dict[str, str]
    rows: int
    weight: float  # how often it goes, beside the others
    wire: Wire


def bodies(target: Target, plan: Plan) -> tuple[Body, ...]:
    """All different requests of a plan."""
    weights = _weights(target, plan.wire)
    samples = Samples(target, plan)
    made = []
    for rows in dict.fromkeys(plan.rows):
        size = sum(array.nbytes for array in samples.make(rows, 0).values())
        count = max(1, min(plan.samples, MOST_BYTES // max(size, 1)))
        for number in range(count):
            sample = samples.make(rows, number)
            for wire, weight in weights.items():
                path, data, headers = _request(target, wire, sample, samples.by_row, number)
                kind = f"{wire}, {rows} row{'s' if rows > 1 else ''}"
                made.append(Body(kind, path, data, headers, rows, weight / count, wire))
    return tuple(made)


def _weights(target: Target, wire: Wire) -> dict[Wire, float]:
    """The wires that go, and how often."""
    if wire != "mixed":
        # some servers speak the binary form without saying so
        if wire != "binary" and (why := obstacle(target, wire)):
            raise UsageError(f"--wire {wire}: {why}")
        return {wire: 1}
    weights = {each: often for each, often in MIXED.items() if obstacle(target, each) is None}
    if not weights:
        raise UsageError(
            f"--wire mixed: expected a wire that can be spoken; json: {obstacle(target, 'json')}"
        )
    return weights


def obstacle(target: Target, wire: Wire) -> str | None:
    """Why a target is not known to speak a wire; None where it is."""
    match wire:
        case "json" | "v1" if target.half:
            return f"expected a model without FP16, which JSON has no form for, got {target.half!r}"
        case "binary" if not target.binary:
            return f"expected a server that tells of the binary form, got {target.server} without"
        case "v1" if not target.v1:
            return f"expected a server with /v1/models/{target.model}, got {target.server} without"
        case "gates" if not target.gates:
            return f"expected a model whose gates can be read, got none at {target.server}"
        case "lesion" if not target.lesion:
            return f"expected a model with layers that can be closed, got none at {target.server}"
    return None


Request = tuple[str, bytes, dict[str, str]]


def _request(target: Target, wire: Wire, sample: Sample, by_row: bool, number: int) -> Request:
    """Path, body and headers."""
    if wire == "v1":
        body = _json({"instances": _instances(sample, by_row)})
        return f"/v1{target.path}:predict", body, {"Content-Type": "application/json"}
    path = f"/v2{target.path}/{wire if wire in ('gates', 'lesion') else 'infer'}"
    more = {"close": [target.lesions[number % len(target.lesions)]]} if wire == "lesion" else {}
    if wire == "binary" or target.half:
        head = _json({"inputs": _entries(sample, _size), "parameters": {"binary_data_output": True}, **more})
        data = b"".join([head, *(np.ascontiguousarray(array).tobytes() for array in sample.values())])
        return path, data, {"Content-Type": "application/octet-stream", HEADER: str(len(head))}
    return path, _json({"inputs": _entries(sample, _data), **more}), {"Content-Type": "application/json"}


def _entries(sample: Sample, content: Callable[[Array], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": array.shape, "datatype": DATATYPES[array.dtype], **content(array)}
        for name, array in sample.items()
    ]


def _size(array: Array) -> dict[str, Any]:
    return {"parameters": {"binary_data_size": array.nbytes}}


def _data(array: Array) -> dict[str, Any]:
    return {"data": numbers(array)}


def _instances(sample: Sample, by_row: bool) -> list[Any]:
    """Rows as the first protocol has them, by name where there are several inputs."""
    columns = {name: _nested(array) if by_row else [_nested(array)] for name, array in sample.items()}
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _nested(array: Array) -> Any:
    """The values as JSON has them, in lists as the array's shape is."""
    return np.array(numbers(array), object).reshape(array.shape).tolist()


def _json(document: Any) -> bytes:
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise UsageError("--data: expected finite numbers, since JSON has no other; --wire binary") from error
