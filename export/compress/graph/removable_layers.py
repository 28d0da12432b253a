"""Finds the highway layers of a graph whose units can be removed one by one.

Removing a unit means that it always carries its input: y = x for this unit. That is what the layer computes
while the gate T of the unit is closed, if the layer carries its input unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from turnpike.export.gates.graph.element_moves import shape_of
from turnpike.export.gates.highways.highway import Highway
from turnpike.export.gates.highways.search import search_graph
from turnpike.service.artifact.manifest import Gate


@dataclass(frozen=True)
class RemovableLayer:
    """A layer whose units can be removed.

    Attributes:
        gate: Its gate, whose number of units is known.
        state: Name of the value x that the layer carries.
        sum: Name of the gated sum y. A hidden output may be a copy of it with another name.
        transformed: Name of the value H, if y = x + T (H - x); None for other sums.
    """

    gate: Gate
    state: str
    sum: str
    transformed: str | None

    @property
    def units(self) -> int:
        return self.gate.units or 0


@dataclass(frozen=True)
class LayerSearch:
    """The layers of a graph whose units can be removed.

    Attributes:
        layers: These layers, in the order data flows.
        left_whole: Why other layers are left whole: a sentence for each reason.
    """

    layers: tuple[RemovableLayer, ...]
    left_whole: tuple[str, ...]


def find_removable_layers(model: ir.Model, gates: Sequence[Gate]) -> LayerSearch:
    """The layers of an instrumented graph, in the order data flows. The graph is not changed."""
    search = search_graph(model.clone())
    highways = {
        str(value.name): highway
        for highway in search.highways
        if (value := highway.transform_gate) is not None
    }
    shared_outputs = Counter(gate.output for gate in gates)
    layers, reasons = [], Counter[str]()
    for gate in gates:
        highway = highways.get(gate.name)
        if gate.time is not None or gate.depth is not None:
            reason = "a recurrent layer, whose units are used at every step"
        elif gate.carry != "identity":
            reason = "the layer carries a projection of its input"
        elif gate.output is None or shared_outputs[gate.output] > 1:
            reason = "several gates share a sum"
        elif gate.kind == "softmax":
            reason = "its gates share a softmax, so that each depends on all"
        elif highway is None or gate.units is None:
            reason = "its units are not known"
        elif (state := _carried_value(highway)) is None:
            reason = "gate, input and output have different shapes"
        else:
            transformed = _transformed_value(highway, state)
            layers.append(RemovableLayer(gate, str(state.name), str(highway.output.name), transformed))
            continue
        reasons[reason] += 1
    sentences = tuple(
        f"{count} {'gate' if count == 1 else 'gates'} left whole: {reason}"
        for reason, count in reasons.items()
    )
    return LayerSearch(tuple(layers), sentences)


def _carried_value(highway: Highway) -> ir.Value | None:
    """The value that C multiplies, if it has a value for each unit; None otherwise."""
    # the state itself may be one before a Reshape
    for value in (highway.carried.single_value, highway.state):
        if value is not None and _have_one_shape(highway.output, highway.transform.gate, value):
            return value
    return None


def _transformed_value(highway: Highway, state: ir.Value) -> str | None:
    """Name of the value H of a sum that is x + T (H - x)."""
    value = highway.transform.single_value
    if highway.kind != "coupled" or value is None or not _have_one_shape(state, value):
        return None
    return str(value.name) if highway.carried.single_value is state else None


def _have_one_shape(*values: ir.Value) -> bool:
    """Whether the shapes are equal, as far as they are known without running the graph."""
    shapes = [shape_of(value) for value in values]
    ranks = {None if shape is None else len(shape) for shape in shapes}
    if len(ranks) > 1 or None in ranks:
        return False
    sizes_by_axis = zip(*(shape for shape in shapes if shape is not None), strict=True)
    return all(len({size for size in sizes if size is not None}) <= 1 for sizes in sizes_by_axis)
