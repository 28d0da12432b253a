"""Cuts units out of the highway layers of a graph: the rows of their weights go, and they carry their input.

For the kept units K of a layer y = T H + C x, the cut graph computes y_K from weights of K alone, and writes
it over x: y is x, except for y[K] = y_K. There are two forms:

- "scatter" reads x_K and writes y_K element by element. If C = 1 - T, it adds T (H - x_K) to x[K], which
  takes fewer operators. This is the faster form for dense layers.
- "gather" appends y_K to x, and takes each unit from one of the two. This copies whole blocks if the units
  are channels, since the pixels of a channel are adjacent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from turnpike.export.compress.graph.removable_layers import RemovableLayer
from turnpike.export.compress.graph.sliced_values import SlicedValues
from turnpike.export.gates.gate_names import rename
from turnpike.export.gates.instrument import bias_statistics
from turnpike.service.artifact.manifest import Gate, Lever

# the units that each layer keeps, in ascending order, by the name of its gate
Kept = dict[str, list[int]]
Form = Literal["scatter", "gather"]
FORMS: tuple[Form, ...] = ("scatter", "gather")


@dataclass(frozen=True)
class CutGraph:
    """A graph without the removed units.

    Attributes:
        model: The graph.
        gates: Its gates; those of layers without any kept unit are gone.
        macs: Multiplications of the matrices of the cut layers for one row.
        macs_whole: The same in the whole graph.
        form: How the kept units are read and written.
    """

    model: ir.Model
    gates: tuple[Gate, ...]
    macs: int
    macs_whole: int
    form: Form

    @property
    def macs_share(self) -> float:
        """The share of the multiplications that is left."""
        return self.macs / self.macs_whole if self.macs_whole else 1.0


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
        form: How the kept units are read and written.
    """
    model = model.clone()
    rewriter = _LayerRewriter(model.graph, gates, form)
    cut_gates = {layer.gate.name: rewriter.cut_layer(layer, kept[layer.gate.name]) for layer in layers}
    passes.RemoveUnusedNodesPass()(model)
    rewriter.drop_unused_levers()
    left = tuple(now for gate in gates if (now := cut_gates.get(gate.name, gate)) is not None)
    return CutGraph(model, left, rewriter.macs, rewriter.macs_whole, form)


class _LayerRewriter:
    """Cuts the layers of one graph, in place.

    Attributes:
        macs: Multiplications of the matrices of the layers so far, for one row.
        macs_whole: The same before they were cut.
    """

    def __init__(self, graph: ir.Graph, gates: Sequence[Gate], form: Form) -> None:
        self._graph, self._form = graph, form
        # the shape of a state with one unit, by the axis of the units and the other dimensions
        self._single_unit_shapes: dict[tuple[int, tuple[int | str | None, ...]], ir.Value] = {}
        self._values = {str(value.name): value for value in _values(graph)}
        # how many levers are in each tensor: one with several cannot be cut for one of them
        self._lever_counts = Counter(lever.tensor for gate in gates for lever in gate.levers)
        self.macs, self.macs_whole = 0, 0

    def cut_layer(self, layer: RemovableLayer, kept: Sequence[int]) -> Gate | None:
        """Cut one layer; returns its gate after the cut, None if no unit is left."""
        gate, state, gated_sum = layer.gate, self._values[layer.state], self._values[layer.sum]
        producer = gated_sum.producer()
        if producer is None:
            raise ValueError(f"{gate.name}: expected a sum that a node computes")
        hidden = [name for name in (gate.name, gate.carry_gate) if name is not None]
        own_levers = {
            lever.tensor: range(lever.start, lever.stop)
            for lever in gate.levers
            if self._lever_counts[lever.tensor] == 1
        }
        sliced = SlicedValues(state, kept, layer.units, gate.unit_axis, own_levers)
        indices = self._indices(sliced, state, producer) if self._form == "scatter" else None
        kept_state = _read(sliced, state, indices)
        sliced.know(state, kept_state)
        change = None
        if indices is not None and layer.transformed is not None:
            change = self._change(sliced, layer, kept_state)
        kept_sum = sliced.of(gated_sum) if change is None else change
        kept_gates = {name: sliced.of(self._values[name]) for name in hidden}
        self.macs += sliced.macs
        self.macs_whole += sliced.macs_whole
        if len(kept) in (0, layer.units):
            # the layer stays as it is, or nothing of it is left and its sum is the state
            sliced.forget_nodes()
            if kept:
                return gate
            self._drop_outputs(*hidden, str(gate.output))
            if gated_sum.is_graph_output():
                # the network's own output keeps its name
                copy = ir.node("Identity", [state])
                copy.outputs[0].type, copy.outputs[0].shape = gated_sum.type, gated_sum.shape
                self._graph.insert_before(producer, copy)
                self._replace(gated_sum, copy.outputs[0])
                return None
            ir.convenience.replace_all_uses_with(gated_sum, state)
            self._values[layer.sum] = state
            return None

        # compute the kept units and write them over the state, where the whole sum was computed
        output = _write(sliced, state, kept_sum, indices, added=change is not None)
        self._graph.insert_before(producer, sliced.nodes)
        for value in sliced.initializers:
            self._register(value)
        self._replace(gated_sum, output)
        for name, value in kept_gates.items():
            self._replace(self._values[name], value)
        return self._cut_gate(gate, sliced)

    def _indices(self, sliced: SlicedValues, state: ir.Value, producer: ir.Node) -> ir.Value:
        """The unit of each element of the kept state."""
        shape = [1] * len(state.shape or ())
        shape[sliced.axis] = len(sliced.kept)
        units = sliced.weight(f"{state.name}.kept_units", sliced.kept.reshape(shape))
        shape_of_one = self._single_unit_shape(state, sliced.axis, producer)
        indices = sliced.compute("Expand", [units, shape_of_one], state)
        indices.type = units.type
        return indices

    def _single_unit_shape(self, state: ir.Value, axis: int, producer: ir.Node) -> ir.Value:
        """The shape of a state, with a single unit. States of one shape share it."""
        dims = tuple(dim if isinstance(dim, int) else dim.value for dim in state.shape or ())
        rank = len(dims)
        others = dims[: rank + axis] + dims[rank + axis + 1 :]
        key = (axis, others)
        if key in self._single_unit_shapes:
            return self._single_unit_shapes[key]
        first = ir.node("Shape", [state], {"start": 0, "end": rank + axis})
        last = ir.node("Shape", [state], {"start": rank + axis + 1, "end": rank})
        one = ir.node("Constant", [], {"value": ir.tensor([1])})
        parts = [node.outputs[0] for node in (first, one, last)]
        joined = ir.node("Concat", parts, {"axis": 0})
        self._graph.insert_before(producer, [first, last, one, joined])
        if None not in others:
            self._single_unit_shapes[key] = joined.outputs[0]
        return joined.outputs[0]

    def _change(self, sliced: SlicedValues, layer: RemovableLayer, kept_state: ir.Value) -> ir.Value:
        """T (H - x) for the kept units."""
        transformed = self._values[str(layer.transformed)]
        difference = sliced.compute("Sub", [sliced.of(transformed), kept_state], transformed)
        return sliced.compute("Mul", [sliced.of(self._values[layer.gate.name]), difference], transformed)

    def drop_unused_levers(self) -> None:
        """Remove the levers that nothing uses any more."""
        for value in [value for value in self._graph.inputs if value.is_initializer() and not value.uses()]:
            self._graph.inputs.remove(value)
            del self._graph.initializers[str(value.name)]

    def _replace(self, value: ir.Value, other: ir.Value) -> None:
        """Use another value in place of one, under its name."""
        name = str(value.name)
        rename(value, f"{name}.whole")
        rename(other, name)
        ir.convenience.replace_all_uses_with(value, other, replace_graph_outputs=True)
        self._values[name] = other

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
            array, whole_array = value.const_value.numpy(), self._values[lever.tensor].const_value
            name = str(value.name)
            levers.append(lever.model_copy(update={"tensor": name, "start": 0, "stop": array.size}))
            # a lever of zeros, added to the gate, says nothing about its bias
            if bias is None and gate.bias is not None and whole_array is not None:
                signed = lever.sign * whole_array.numpy().reshape(-1)[lever.start : lever.stop]
                if np.isclose(signed.mean(), gate.bias.mean):
                    bias = bias_statistics(lever.sign * array)
        kept = tuple(sliced.kept.tolist())
        return gate.model_copy(
            update={"units": len(kept), "kept": kept, "levers": tuple(levers), "bias": bias}
        )


def _read(sliced: SlicedValues, state: ir.Value, indices: ir.Value | None) -> ir.Value:
    """The kept units of a state; `indices` has the unit of each element, None for the form "gather"."""
    if indices is not None:
        return sliced.compute("GatherElements", [state, indices], state, [sliced.axis_attribute])
    units = sliced.weight(f"{state.name}.kept_units", sliced.kept)
    return sliced.compute("Gather", [state, units], state, [sliced.axis_attribute])


def _write(
    sliced: SlicedValues, state: ir.Value, kept_sum: ir.Value, indices: ir.Value | None, *, added: bool
) -> ir.Value:
    """The state with other values in its kept units, or with values added to them."""
    if indices is not None:
        attributes = [sliced.axis_attribute, *([ir.AttrString("reduction", "add")] if added else [])]
        return sliced.compute(
            "ScatterElements", [state, indices, kept_sum], state, attributes, units=sliced.units
        )
    # the kept units are behind those of the state
    order = np.arange(sliced.units)
    order[sliced.kept] = sliced.units + np.arange(len(sliced.kept))
    both = sliced.compute(
        "Concat", [state, kept_sum], state, [sliced.axis_attribute], units=sliced.units + len(sliced.kept)
    )
    places = sliced.weight(f"{state.name}.order", order)
    return sliced.compute("Gather", [both, places], state, [sliced.axis_attribute], units=sliced.units)


def _values(graph: ir.Graph) -> list[ir.Value]:
    computed = [value for node in graph for value in node.outputs]
    return [*graph.inputs, *graph.initializers.values(), *computed]
