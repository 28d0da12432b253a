"""Runs a model on OpenVINO. Runs with moved gates take place on the CPU provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from turnpike.service.artifact.onnx_file.protobuf import (
    BYTES,
    GRAPH_FIELD,
    encode_varint,
    raw_fields,
    submessages,
)
from turnpike.service.inference_types import Array

# field numbers of onnx.proto
INITIALIZER_FIELD, INPUT_FIELD, OUTPUT_FIELD = 5, 11, 12
TENSOR_NAME_FIELD, VALUE_NAME_FIELD = 8, 1

# runs a session: the outputs of these names, from these feeds
SessionRun = Callable[[Sequence[str], dict[str, Array]], list[Array]]


class OpenVinoRun:
    """Runs a model that is open in three sessions.

    OpenVINO's plugin refuses graphs with weights that may be overridden, so runs that override levers take
    place on the CPU provider. OpenVINO computes all outputs of a graph, also those that are not requested, so
    predictions have a graph without hidden outputs. Public outputs always come from this graph, since the
    other one may compute other last bits.

    Args:
        on_cpu: Runs the whole graph on the CPU provider.
        without_gates: Runs the graph without hidden outputs on OpenVINO.
        with_gates: Runs the graph with hidden outputs on OpenVINO.
        public: The names of the public outputs.
        levers: The names of the weights that may be overridden.
    """

    def __init__(
        self,
        on_cpu: SessionRun,
        without_gates: SessionRun,
        with_gates: SessionRun,
        public: Collection[str],
        levers: Collection[str],
    ) -> None:
        self._on_cpu, self._without_gates, self._with_gates = on_cpu, without_gates, with_gates
        self._public, self._levers = frozenset(public), frozenset(levers)

    def __call__(self, names: Sequence[str], feeds: dict[str, Array]) -> list[Array]:
        if not self._levers.isdisjoint(feeds):
            return self._on_cpu(names, feeds)
        if self._public.issuperset(names):
            return self._without_gates(names, feeds)
        public = [name for name in names if name in self._public]
        hidden = [name for name in names if name not in self._public]
        arrays = dict(zip(hidden, self._with_gates(hidden, feeds), strict=True))
        if public:
            arrays.update(zip(public, self._without_gates(public, feeds), strict=True))
        return [arrays[name] for name in names]


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
