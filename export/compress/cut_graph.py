"""Cuts units out of the highway layers of a graph: the rows of their weights go, and they carry their input.

For the kept units K of a layer y = T H + C x, the cut graph computes y_K from weights of K alone, and writes
it over x: y is x, except for y[K] = y_K.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from export.compress.removable_layers import RemovableLayer
from export.compress.sliced_values import SlicedValues
from export.gates.gate_names import rename
from export.gates.instrument import bias_statistics
from service.artifact.manifest import Gate, Lever

# how kept units are written over the state: see `WRITERS`
Form = Literal["gather", "scatter"]
FORMS: tuple[Form, ...] = ("scatter", "gather")


@dataclass(frozen=True)
class CutGraph:
    """A graph without the removed units.

    Attributes:
        model: The graph.
        gates: Its gates; those of layers without any kept unit are gone.
        macs: Multiplications of the matrices of the cut layers for one row, before and after.
        form: How the kept units are written over the state.
    """

    model: ir.Model
    gates: tuple[Gate, ...]
    macs: tuple[int, int]
    form: Form


def cut_units(
    model: ir.Model,
    gates: Sequence[Gate],
    layers: Sequence[RemovableLayer],
    kept: Mapping[str, Sequence[int]],
    form: Form = "scatter",
) -> CutGraph:
    """A copy of an instrumented graph with only the kept units of its layers.

    Args:
        model: The graph, with hidden outputs and levers.
        gates: Its gates.
        layers: The layers to cut.
        kept: Ascending indices of the units that each layer keeps, by the name of its gate.
        form: How the kept units are written over the state.
    """
    model = model.clone()
    cutter = _Cutter(model.graph, gates, form)
    cut = {layer.gate.name: cutter.cut(layer, kept[layer.gate.name]) for layer in layers}
    passes.RemoveUnusedNodesPass()(model)
    cutter.drop_unused_levers()
    left = tuple(now for gate in gates if (now := cut.get(gate.name, gate)) is not None)
    return CutGraph(model, left, (cutter.macs[0], cutter.macs[1]), form)


class _Cutter:
    """Cuts layers of one graph, in place."""

    def __init__(self, graph: ir.Graph, gates: Sequence[Gate], form: Form) -> None:
        self._graph, self._write = graph, WRITERS[form]
        self._values = {str(value.name): value for value in _values(graph)}
        # how many levers are in each tensor: one with several cannot be cut for one of them
        self._lever_counts = Counter(lever.tensor for gate in gates for lever in gate.levers)
        self.macs = [0, 0]

    def cut(self, layer: RemovableLayer, kept: Sequence[int]) -> Gate | None:
        """Cut one layer; returns its gate after the cut, None if no unit is left."""
        gate, state, gated_sum = layer.gate, self._values[layer.state], self._values[layer.sum]
        hidden = [name for name in (gate.name, gate.carry_gate) if name is not None]
        own_levers = {lever.tensor for lever in gate.levers if self._lever_counts[lever.tensor] == 1}
        sliced = SlicedValues(state, kept, layer.units, gate.unit_axis, own_levers)
        kept_sum = sliced.of(gated_sum)
        kept_gates = {name: sliced.of(self._values[name]) for name in hidden}
        self.macs[0] += sliced.macs[0]
        self.macs[1] += sliced.macs[1]
        if len(kept) in (0, layer.units):
            # the layer stays as it is, or nothing of it is left and its sum is the state
            sliced.forget_nodes()
            if kept:
                return gate
            self._drop_outputs(*hidden, str(gate.output))
            ir.convenience.replace_all_uses_with(gated_sum, state, replace_graph_outputs=True)
            self._values[layer.sum] = state
            return None

        # compute the kept units and write them over the state, where the whole sum was computed
        output = self._write(sliced, state, kept_sum)
        producer = gated_sum.producer()
        if producer is None:
            raise ValueError(f"{gate.name}: expected a sum that a node computes")
        self._graph.insert_before(producer, sliced.nodes)
        for value in sliced.initializers:
            self._register(value)
        self._replace(gated_sum, output)
        for name, value in kept_gates.items():
            self._replace(self._values[name], value)
        return self._cut_gate(gate, sliced)

    def drop_unused_levers(self) -> None:
        """Remove the levers that nothing uses any more."""
        for value in [value for value in self._graph.inputs if value.is_initializer() and not value.uses()]:
            self._graph.inputs.remove(value)
            del self._graph.initializers[str(value.name)]

    def _replace(self, whole: ir.Value, cut: ir.Value) -> None:
        """Use a value in place of another, under its name."""
        name = str(whole.name)
        rename(whole, f"{name}.whole")
        rename(cut, name)
        ir.convenience.replace_all_uses_with(whole, cut, replace_graph_outputs=True)
        self._values[name] = cut

    def _drop_outputs(self, *names: str) -> None:
        for value in [value for value in self._graph.outputs if value.name in names]:
            self._graph.outputs.remove(value)

    def _register(self, value: ir.Value) -> None:
        """Add a weight under a name of its own."""
        name, number = str(value.name), 1
        while value.name in self._graph.initializers:
            number += 1
            value.name = f"{name}{number}"
        self._graph.register_initializer(value)

    def _cut_gate(self, gate: Gate, sliced: SlicedValues) -> Gate:
        """The gate with its kept units alone."""
        levers: list[Lever] = []
        bias = None
        for lever in gate.levers:
            value = sliced.levers.get(lever.tensor)
            if value is None or value.const_value is None:
                levers.append(lever)
                continue
            self._graph.inputs.append(value)
            array, whole = value.const_value.numpy(), self._values[lever.tensor].const_value
            name = str(value.name)
            levers.append(lever.model_copy(update={"tensor": name, "start": 0, "stop": array.size}))
            # a lever of zeros, added to the gate, says nothing about its bias
            if bias is None and gate.bias is not None and whole is not None:
                signed = lever.sign * whole.numpy()
                if np.isclose(signed.mean(), gate.bias.mean):
                    bias = bias_statistics(lever.sign * array)
        kept = tuple(sliced.kept.tolist())
        return gate.model_copy(
            update={"units": len(kept), "kept": kept, "levers": tuple(levers), "bias": bias}
        )


def _write_by_gather(sliced: SlicedValues, state: ir.Value, kept_sum: ir.Value) -> ir.Value:
    """Append the kept units to the state, and take each unit from one of the two."""
    units = sliced.units
    order = np.arange(units)
    order[sliced.kept] = units + np.arange(len(sliced.kept))
    both = sliced.compute(
        "Concat", [state, kept_sum], state, [sliced.axis_attribute], units=units + len(sliced.kept)
    )
    indices = sliced.weight(f"{state.name}.order", order.astype(np.int64))
    return sliced.compute("Gather", [both, indices], state, [sliced.axis_attribute], units=units)


def _write_by_scatter(sliced: SlicedValues, state: ir.Value, kept_sum: ir.Value) -> ir.Value:
    """Write the kept units into the state, at indices that are repeated for each row."""
    shape = [1] * len(state.shape or ())
    shape[sliced.axis] = len(sliced.kept)
    indices = sliced.weight(f"{state.name}.places", sliced.kept.reshape(shape))
    size = ir.node("Shape", [kept_sum])
    repeated = ir.node("Expand", [indices, size.outputs[0]])
    sliced.nodes += [size, repeated]
    return sliced.compute(
        "ScatterElements",
        [state, repeated.outputs[0], kept_sum],
        state,
        [sliced.axis_attribute],
        units=sliced.units,
    )


WRITERS: dict[Form, Callable[[SlicedValues, ir.Value, ir.Value], ir.Value]] = {
    "gather": _write_by_gather,
    "scatter": _write_by_scatter,
}


def _values(graph: ir.Graph) -> list[ir.Value]:
    computed = [value for node in graph for value in node.outputs]
    return [*graph.inputs, *graph.initializers.values(), *computed]
