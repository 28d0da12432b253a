"""Reduces the graph of a model file: drops hidden outputs, and makes weights constants."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from service.artifact.protobuf import BYTES, encode_varint, raw_fields, submessages

# field numbers of onnx.proto
GRAPH_FIELD = 7
INITIALIZER_FIELD, INPUT_FIELD, OUTPUT_FIELD = 5, 11, 12
TENSOR_NAME_FIELD, VALUE_NAME_FIELD = 8, 1


def reduce_graph(data: memoryview, dropped_outputs: Collection[str]) -> bytes:
    """The bytes of the same model without these outputs, and without inputs that override a weight.

    Raises:
        MalformedError: The data is not a protobuf message.
    """
    parts: list[bytes | memoryview] = []
    for number, raw, value in raw_fields(data):
        if number == GRAPH_FIELD and isinstance(value, memoryview):
            graph = b"".join(_graph_parts(value, dropped_outputs))
            parts += [encode_varint(GRAPH_FIELD << 3 | BYTES), encode_varint(len(graph)), graph]
        else:
            parts.append(raw)
    return b"".join(parts)


def _graph_parts(graph: memoryview, dropped_outputs: Collection[str]) -> Iterator[memoryview]:
    """The fields of the graph that are kept."""
    weights = {_name(tensor, TENSOR_NAME_FIELD) for tensor in submessages(graph, INITIALIZER_FIELD)}
    dropped = {INPUT_FIELD: weights, OUTPUT_FIELD: set(dropped_outputs)}
    for number, raw, value in raw_fields(graph):
        names = dropped.get(number)
        if names is None or not isinstance(value, memoryview) or _name(value, VALUE_NAME_FIELD) not in names:
            yield raw


def _name(message: memoryview, field: int) -> str:
    """The name of a tensor, an input or an output."""
    return next((str(value, "utf-8") for value in submessages(message, field)), "")
