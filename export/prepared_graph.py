"""A graph ready to be proved: gates offered, checked, and as the bytes that will be served."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from export.errors import RequestError
from export.gates.instrument import Instrumentation, instrument
from export.output.model_bytes import to_bytes
from export.source import Array, Source
from export.trace.trace import DEFAULT_OPSET, OPSETS, TracedGraph, strip_metadata, trace
from service.artifact.runtime import Device, Runtime, device_available, open_model


@dataclass(frozen=True)
class PreparedGraph:
    """`traced` is None for a graph that was adopted, which has no program behind it."""

    traced: TracedGraph | None
    model: ir.Model
    gates: Instrumentation
    data: bytes

    @property
    def public(self) -> tuple[str, ...]:
        """The outputs that a caller gets who asks for none."""
        return tuple(str(value.name) for value in self.model.graph.outputs if value.name not in self.hidden)

    @property
    def hidden(self) -> frozenset[str]:
        """The outputs that are answered when they are asked for by name."""
        return frozenset(self.gates.origins)

    @property
    def biases(self) -> dict[str, Array]:
        """The values of the initializers that a caller may override."""
        names = {lever.tensor for gate in self.gates.gates for lever in gate.levers}
        weights = self.model.graph.initializers
        return {name: value.numpy() for name in names if (value := weights[name].const_value) is not None}


def prepare(source: Source, opset: int | None = None) -> PreparedGraph:
    """The graph of a source; one that was a graph already keeps its opset."""
    if opset is not None and opset not in OPSETS:
        raise RequestError(f"--opset: expected {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    if source.graph is None:
        traced = trace(source, opset or DEFAULT_OPSET)
        model = traced.model
    else:
        traced, model = None, ir.from_proto(source.graph)
        strip_metadata(model)
        own = model.opset_imports.get("")
        if opset not in (None, own):
            raise RequestError(f"--opset: an .onnx file keeps its own, which is {own}, got {opset}")
    gates = instrument(model)
    return PreparedGraph(traced, model, gates, to_bytes(model))


def open_on_all_devices(data: bytes) -> list[Runtime]:
    """The file opened on every device of this machine, as it will be served."""
    devices: tuple[Device, ...] = ("cpu", "cuda")
    return [open_model(data, device=device) for device in devices if device_available(device)]
