"""The graph to be proved: traced or adopted, with its gates exposed, checked, and serialized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from turnpike.export.defaults import DEFAULT_OPSET, OPSETS
from turnpike.export.errors import GateCountError, UsageError
from turnpike.export.gates.highways.other_gates import OtherGate
from turnpike.export.gates.instrument import Instrumentation, instrument
from turnpike.export.gates.levers import drop_levers
from turnpike.export.gates.short_sums import shorten_sums
from turnpike.export.input_spec import batch_dimension
from turnpike.export.network import Array, Network
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.trace.recurrent_operators import (
    closed_operators,
    has_open_operators,
    open_recurrent_operators,
)
from turnpike.export.trace.trace_network import TracedGraph, strip_metadata, trace
from turnpike.service.artifact.devices import Device
from turnpike.service.artifact.runtime import Runtime, device_available, open_model

# gates that an error names
MAX_NAMES = 10


@dataclass(frozen=True)
class PreparedGraph:
    """A graph with hidden gate outputs and levers, and its bytes without a manifest.

    Attributes:
        traced: None for a graph adopted from an .onnx file, which has no program behind it.
        model: The graph.
        gates: What was found in it and added to it.
        other_gates: A sentence about each sigmoid that multiplies something and forms no highway: the line of
            the user's code or its name, and why.
        warnings: Sentences for the user, about layers and gates.
        data: The bytes.
        plain: The same network without hidden outputs and levers, if it was asked for.
    """

    traced: TracedGraph | None
    model: ir.Model
    gates: Instrumentation
    other_gates: tuple[str, ...]
    warnings: tuple[str, ...]
    data: bytes
    plain: PreparedGraph | None = None

    @property
    def public_outputs(self) -> tuple[str, ...]:
        """The outputs that a request gets if it names none."""
        hidden = self.gates.origins
        return tuple(str(value.name) for value in self.model.graph.outputs if value.name not in hidden)

    @property
    def biases(self) -> dict[str, Array]:
        """The values of the initializers that a caller may override, by name."""
        names = {lever.tensor for gate in self.gates.gates for lever in gate.levers}
        weights = self.model.graph.initializers
        return {name: value.numpy() for name in names if (value := weights[name].const_value) is not None}


def prepare(
    network: Network, opset: int | None = None, *, open_recurrent: bool = False, plain: bool = False
) -> PreparedGraph:
    """Trace a module or program, or adopt a graph (which keeps its opset), and expose its gates.

    With `open_recurrent`, each GRU and LSTM becomes a loop that shows its gates. With `plain`, the graph is
    also prepared as it is without gates.
    """
    if opset is not None and opset not in OPSETS:
        raise UsageError(f"--opset: expected {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    if network.graph is None:
        traced = trace(network, opset or DEFAULT_OPSET)
        model = traced.model
    else:
        traced, model = None, ir.from_proto(network.graph)
        strip_metadata(model)
        graph_opset = model.opset_imports.get("")
        if opset not in (None, graph_opset):
            raise UsageError(f"--opset: an .onnx file keeps its opset, which is {graph_opset}, got {opset}")
    plain_graph = prepare_plain(traced, model) if plain else None
    recurrent_gates: dict[str, str] = {}
    closed = closed_operators(model.graph)
    if open_recurrent:
        recurrent_gates, closed = open_recurrent_operators(model)
    places = {} if traced is None else traced.places
    gates = instrument(model, batch_dimension(network.inputs), places)
    other_gates = tuple(_other_gate_sentences(gates.other_gates, places, recurrent_gates))
    warnings = (*(() if traced is None else traced.warnings), *closed, *gates.warnings)
    return PreparedGraph(traced, model, gates, other_gates, warnings, to_bytes(model), plain_graph)


def prepare_plain(traced: TracedGraph | None, model: ir.Model) -> PreparedGraph:
    """A copy of a graph whose gates are not exposed, and whose weights no caller can override."""
    model = model.clone()
    drop_levers(model)
    return PreparedGraph(traced, model, Instrumentation((), {}, ()), (), (), to_bytes(model))


def with_short_sums(graph: PreparedGraph) -> PreparedGraph | None:
    """A copy with fewer operators in its gated sums; None if there are no sums to shorten."""
    model = graph.model.clone()
    if not shorten_sums(model, graph.gates.gates):
        return None
    return replace(graph, model=model, data=to_bytes(model))


def prepare_like(network: Network, exported: ir.Model, *, plain: bool) -> PreparedGraph:
    """Prepare a network with the options that an exported graph was made with."""
    opset = exported.opset_imports.get("") if network.graph is None else None
    return prepare(network, opset, open_recurrent=has_open_operators(exported), plain=plain)


def expect_gate_count(graph: PreparedGraph, count: int | None) -> None:
    """Raise GateCountError if the user expects another number of gates."""
    names = [gate.name for gate in graph.gates.gates]
    if count is None or count == len(names):
        return
    shown = ", ".join(names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    facts = [f"--expect-gates: expected {count}, found {len(names)}{': ' if names else ''}{shown}{more}"]
    if graph.other_gates:
        facts.append(f"sigmoids that multiply something and form no highway: {'; '.join(graph.other_gates)}")
    raise GateCountError(". ".join([*facts, *graph.warnings]))


def _other_gate_sentences(
    other_gates: Iterable[OtherGate], places: Mapping[str, str], recurrent_gates: Mapping[str, str]
) -> Iterator[str]:
    """A sentence for each line of code; of gates in a GRU or LSTM, for each of its operators."""
    counts: Counter[tuple[str, str]] = Counter()
    for other in other_gates:
        known = recurrent_gates.get(other.value)
        reason = other.reason if known is None else "it is no highway gate"
        counts[known or places.get(other.value, other.value), reason] += other.count
    for (place, reason), count in counts.items():
        yield f"{place}{f' ({count} sigmoids)' if count > 1 else ''}: {reason}"


def open_on_all_devices(data: bytes, disabled_optimizers: Sequence[str] = ()) -> list[Runtime]:
    """Open the file on the CPU, and on the GPU if there is one, as the service will.

    OpenVINO is left out: `turnpike verify --device openvino` proves a file there.
    """
    devices: tuple[Device, ...] = ("cpu", "cuda")
    return [
        open_model(data, device=device, disabled_optimizers=disabled_optimizers)
        for device in devices
        if device_available(device)
    ]
