"""Messages that the benchmarks write and read by hand, compared with those of protobuf."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from benchmarks.contestants import grpc_messages, wire_formats
from benchmarks.contestants.grpc_messages import MESSAGE_PREFIX
from benchmarks.errors import BenchmarkError
from turnpike.service.grpc.messages.descriptors import message_class

ROWS = [[0.5, -1.25], [3.0, 4.0], [0.0, 1.0]]


def response(**fields: Any) -> bytes:
    """An answer by protobuf, with fields that the benchmarks do not read."""
    message = message_class("inference.ModelInferResponse")(model_name="S", id="7", **fields)
    message.parameters["number"].int64_param = 300
    data: bytes = message.SerializeToString()
    return MESSAGE_PREFIX.pack(0, len(data)) + data


def output(name: str, values: list[float] | None = None) -> dict[str, Any]:
    fields = {"name": name, "datatype": "FP32", "shape": [1, 2]}
    return fields | ({"contents": {"fp32_contents": values}} if values else {})


def test_a_request_is_one_message() -> None:
    """With a prefix, and more rows than fit a length of one byte."""
    rows = [[float(number), 0.5] for number in range(200)]
    request = wire_formats.encode_request("v2 gRPC", rows, "net")
    is_compressed, size = MESSAGE_PREFIX.unpack_from(request.body)
    message = message_class("inference.ModelInferRequest").FromString(request.body[5:])
    (tensor,) = message.inputs
    assert (is_compressed, size) == (0, len(request.body) - 5)
    assert message.model_name == "net"
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "FP32", [200, 2])
    assert message.raw_input_contents[0] == b"".join(struct.pack("<2f", *row) for row in rows)
    assert request.headers["content-type"] == "application/grpc"


def test_a_small_request_byte_by_byte() -> None:
    tensor = b"\x0a\x01x" + b"\x12\x04FP32" + b"\x1a\x02\x01\x01"
    message = b"\x0a\x01S" + b"\x2a\x0d" + tensor + b"\x3a\x04" + struct.pack("<f", 1.5)
    assert grpc_messages.encode_infer_request("S", [[1.5]]) == b"\x00\x00\x00\x00\x18" + message


def test_logits_are_raw_contents() -> None:
    """Those of the output of this name: each output has its part."""
    raw = [struct.pack("<f", 9), struct.pack("<2f", 1, 2)]
    body = response(outputs=[output("more"), output("output")], raw_output_contents=raw)
    assert wire_formats.decode_logits("v2 gRPC", body, {}) == [1.0, 2.0]


def test_logits_are_contents_of_the_output() -> None:
    body = response(outputs=[output("more", [9.0]), output("output", [1.0, 2.0])])
    assert wire_formats.decode_logits("v2 gRPC", body, {}) == [1.0, 2.0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        response(),
        response(outputs=[output("more", [9.0])]),
        response(outputs=[output("output")]),
        response(outputs=[output("output")], raw_output_contents=[b"odd"]),
        response(outputs=[output("output", [1.0])])[:-1],
        b"\x01" + response(outputs=[output("output", [1.0])])[1:],
        MESSAGE_PREFIX.pack(0, 1) + b"\x2a",
        MESSAGE_PREFIX.pack(0, 2) + b"\x09\x01",
    ],
    ids=[
        "empty",
        "no outputs",
        "another output",
        "no contents",
        "a part of a number",
        "cut off",
        "compressed",
        "a field cut off",
        "a number in fixed size",
    ],
)
def test_an_answer_without_logits_is_refused(body: bytes) -> None:
    with pytest.raises(BenchmarkError, match="expected logits as v2 gRPC, got b"):
        wire_formats.decode_logits("v2 gRPC", body, {})
