"""One request of each wire form, and what its answer says. Rows are flat lists of numbers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.errors import BenchmarkError
from benchmarks.nets import OUTPUT

# rows in an object and logits in one, logits alone, and the Open Inference Protocol in its two forms
Form = Literal["rows", "rows, bare answer", "v2 JSON", "v2 binary"]
Rows = Sequence[Sequence[float]]

HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Request:
    """What is posted."""

    body: bytes
    headers: Mapping[str, str]


def request(form: Form, rows: Rows) -> Request:
    """These rows as a request."""
    if form in ("rows", "rows, bare answer"):
        return Request(dense({"x": rows}), {"Content-Type": "application/json"})
    flat = [value for row in rows for value in row]
    tensor: dict[str, Any] = {"name": "x", "shape": [len(rows), len(rows[0])], "datatype": "FP32"}
    if form == "v2 JSON":
        return Request(dense({"inputs": [tensor | {"data": flat}]}), {"Content-Type": "application/json"})
    data = struct.pack(f"<{len(flat)}f", *flat)
    tensor["parameters"] = {"binary_data_size": len(data)}
    head = dense({"inputs": [tensor], "outputs": [{"name": OUTPUT, "parameters": {"binary_data": True}}]})
    return Request(head + data, {"Content-Type": "application/octet-stream", HEADER: str(len(head))})


def answered(form: Form, body: bytes, headers: Mapping[str, str]) -> list[float]:
    """The logits of an answer, flat; `headers` have small names."""
    try:
        if form == "v2 binary":
            return binary(body[int(headers[HEADER.lower()]) :])
        told = json.loads(body)
        if form == "v2 JSON":
            (told,) = (output["data"] for output in told["outputs"] if output["name"] == OUTPUT)
        elif form == "rows":
            told = told["logits"]
        return flattened(told)
    except (KeyError, TypeError, ValueError) as error:
        raise BenchmarkError(f"answer: expected logits as {form}, got {body[:200]!r}") from error


def near(given: Sequence[float], expected: Rows, *, exact: bool = True) -> bool:
    """Whether an answer is right: to some digits, or for a lower precision to some percent of its size."""
    wanted = flattened(expected)
    if len(given) != len(wanted):
        return False
    if exact:
        return all(abs(a - b) <= 1e-4 + 1e-3 * abs(b) for a, b in zip(given, wanted, strict=True))
    error = sum((a - b) ** 2 for a, b in zip(given, wanted, strict=True))
    return error <= 0.2**2 * sum(b**2 for b in wanted)


def binary(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def dense(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def flattened(value: Any) -> list[float]:
    """The numbers of lists in lists."""
    if not isinstance(value, list | tuple):
        return [float(value)]
    return [number for part in value for number in flattened(part)]
