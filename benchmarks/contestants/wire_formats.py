"""Encodes requests in each wire format, and decodes and checks answers. Rows are flat lists of numbers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.contestants import grpc_messages
from benchmarks.contestants.networks import OUTPUT_NAME
from benchmarks.errors import BenchmarkError

# {"x": rows} answered with {"logits": rows}; the same answered with the rows alone; and the
# Open Inference Protocol with JSON, with binary tensors, and over gRPC
WireFormat = Literal["rows", "rows, bare answer", "v2 JSON", "v2 binary", "v2 gRPC"]
Rows = Sequence[Sequence[float]]

JSON_LENGTH_HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class EncodedRequest:
    """Body and headers of a POST request."""

    body: bytes
    headers: Mapping[str, str]


def encode_request(wire_format: WireFormat, rows: Rows, model: str = "") -> EncodedRequest:
    """A request for the logits of the rows; over gRPC it names the model, which HTTP has in the path."""
    if wire_format == "v2 gRPC":
        body = grpc_messages.encode_infer_request(model, rows)
        return EncodedRequest(body, {"content-type": "application/grpc", "te": "trailers"})
    if wire_format in ("rows", "rows, bare answer"):
        return EncodedRequest(compact_json({"x": rows}), {"Content-Type": "application/json"})
    values = [value for row in rows for value in row]
    tensor: dict[str, Any] = {"name": "x", "shape": [len(rows), len(rows[0])], "datatype": "FP32"}
    if wire_format == "v2 JSON":
        body = compact_json({"inputs": [tensor | {"data": values}]})
        return EncodedRequest(body, {"Content-Type": "application/json"})
    data = struct.pack(f"<{len(values)}f", *values)
    tensor["parameters"] = {"binary_data_size": len(data)}
    output = {"name": OUTPUT_NAME, "parameters": {"binary_data": True}}
    head = compact_json({"inputs": [tensor], "outputs": [output]})
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH_HEADER: str(len(head))}
    return EncodedRequest(head + data, headers)


def decode_logits(wire_format: WireFormat, body: bytes, headers: Mapping[str, str]) -> list[float]:
    """The logits of an answer as a flat list; the names of `headers` are in lower case."""
    try:
        if wire_format == "v2 gRPC":
            return grpc_messages.decode_infer_response(body)
        if wire_format == "v2 binary":
            return decode_floats(body[int(headers[JSON_LENGTH_HEADER.lower()]) :])
        logits = json.loads(body)
        if wire_format == "v2 JSON":
            (logits,) = (output["data"] for output in logits["outputs"] if output["name"] == OUTPUT_NAME)
        elif wire_format == "rows":
            logits = logits["logits"]
        return flatten(logits)
    except (LookupError, TypeError, ValueError, struct.error) as error:
        raise BenchmarkError(f"answer: expected logits as {wire_format}, got {body[:200]!r}") from error


def logits_match(logits: Sequence[float], expected: Rows, *, exact: bool = True) -> bool:
    """Whether logits equal the expected ones up to rounding.

    Without `exact`, for a lower precision, the error may be 20 % of the norm of the expected logits.
    """
    expected_values = flatten(expected)
    if len(logits) != len(expected_values):
        return False
    pairs = list(zip(logits, expected_values, strict=True))
    if exact:
        return all(abs(a - b) <= 1e-4 + 1e-3 * abs(b) for a, b in pairs)
    return sum((a - b) ** 2 for a, b in pairs) <= 0.2**2 * sum(b**2 for _, b in pairs)


def decode_floats(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def compact_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def flatten(value: Any) -> list[float]:
    """The numbers of nested lists, in order."""
    if not isinstance(value, list | tuple):
        return [float(value)]
    return [number for part in value for number in flatten(part)]
