"""The graph to be proved: traced or adopted, with its gates exposed, checked, and serialized."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from export.errors import UsageError
from export.gates.instrument import Instrumentation, instrument
from export.output.model_bytes import to_bytes
from export.source import Array, Source
from export.trace.trace import DEFAULT_OPSET, OPSETS, TracedGraph, strip_metadata, trace
from service.artifact.runtime import Device, Runtime, device_available, open_model


@dataclass(frozen=True)
class PreparedGraph:
    """A graph with hidden gate outputs and levers, and its bytes without a manifest.

    `traced` is None for a graph adopted from an .onnx file, which has no program behind it.
    """

    traced: TracedGraph | None
    model: ir.Model
    gates: Instrumentation
    data: bytes

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


def prepare(source: Source, opset: int | None = None) -> PreparedGraph:
    """Trace a module or program, or adopt a graph (which keeps its opset), and expose its gates."""
    if opset is not None and opset not in OPSETS:
        raise UsageError(f"--opset: expected {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    if source.graph is None:
        traced = trace(source, opset or DEFAULT_OPSET)
        model = traced.model
    else:
        traced, model = None, ir.from_proto(source.graph)
        strip_metadata(model)
        graph_opset = model.opset_imports.get("")
        if opset not in (None, graph_opset):
            raise UsageError(f"--opset: an .onnx file keeps its opset, which is {graph_opset}, got {opset}")
    gates = instrument(model)
    return PreparedGraph(traced, model, gates, to_bytes(model))


def open_on_all_devices(data: bytes) -> list[Runtime]:
    """Open the file on every device of this machine, the CPU first, as the service will."""
    devices: tuple[Device, ...] = ("cpu", "cuda")
    return [open_model(data, device=device) for device in devices if device_available(device)]
