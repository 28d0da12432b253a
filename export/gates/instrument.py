"""Instruments a graph: finds its gates, names them, and adds them as hidden outputs with levers.

Works on any ONNX graph, whatever code it came from. A hidden output is a graph output that is returned only
if it is requested by name. The graph is changed in place: values are renamed, outputs are appended, and at
most a few small nodes are added (1 - gate where only the carry gate exists, (1 + q) / 2 for a gate that is
written with q, Identity for values that keep another name, additions for levers).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.algebra.gated_sums import Branch
from turnpike.export.gates.gate_names import GateNames, rename
from turnpike.export.gates.graph.element_moves import shape_of
from turnpike.export.gates.graph.inner_graphs import loop_bodies
from turnpike.export.gates.graph.nodes import Array
from turnpike.export.gates.graph.shapes import infer_shapes
from turnpike.export.gates.highways.highway import Highway
from turnpike.export.gates.highways.other_gates import OtherGate
from turnpike.export.gates.highways.positions import GatePosition, flow_positions, number_layers
from turnpike.export.gates.highways.search import (
    SearchedGraph,
    search_graph,
    search_unshown_bodies,
    unshown_sentences,
)
from turnpike.export.gates.levers import LeverFactory
from turnpike.service.artifact.manifest import BiasStats, Gate, Lever


@dataclass(frozen=True)
class Origin:
    """The place where the proof finds the value of a hidden output, which is scale * value + offset.

    Attributes:
        value: Its name before it was renamed; None for a value inside a loop.
        row_axis: The axis of the value that was moved to the front.
        scale: 1 if the output is the value itself, -1 if it is 1 - value.
        offset: A number to add.
    """

    value: str | None
    row_axis: int = 0
    scale: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Instrumentation:
    """The gates of a graph.

    Attributes:
        gates: In the order data flows.
        origins: The origin of each hidden output, by the name of the output.
        warnings: Sentences for the user.
        other_gates: Sigmoids that multiply something and belong to no highway.
    """

    gates: tuple[Gate, ...]
    origins: dict[str, Origin]
    warnings: tuple[str, ...]
    other_gates: tuple[OtherGate, ...] = ()


def instrument(
    model: ir.Model, batch: str | None = None, places: Mapping[str, str] = MappingProxyType({})
) -> Instrumentation:
    """Find the gates of a graph, name them, and add their hidden outputs and levers, in place.

    Args:
        model: The graph.
        batch: Name of the dimension of rows. It becomes the first axis of each hidden output that has it.
        places: Where in the user's code a value is computed, by the name of the value.
    """
    infer_shapes(model)
    warnings, others_in_bodies = search_unshown_bodies(model, places)
    main = search_graph(model)
    bodies = [search_graph(model, body, batch) for body in loop_bodies(model.graph)]
    searches = [search for search in (main, *bodies) if search.highways]
    positions = number_layers(main, [search for search in bodies if search.highways])
    names = GateNames(model.graph, list(positions.values()))
    gates: list[tuple[int, Gate]] = []
    origins: dict[str, Origin] = {}
    for search in searches:
        instrumenter = GateInstrumenter(search, positions, names, batch)
        found = [instrumenter.add_gate(highway) for highway in search.highways]
        # one warning for all repeats of a gate, with the name of the first
        uncertain = {
            highway.weights: f"{gate.name}: {highway.uncertainty}"
            for highway, gate in zip(reversed(search.highways), reversed(found), strict=True)
            if highway.uncertainty is not None
        }
        warnings += reversed(uncertain.values())
        gates += zip(flow_positions(search, main), found, strict=True)
        if search.body is None:
            origins |= instrumenter.origins
    for search in (main, *bodies):
        search.finish()
        if search.body is not None:
            for value in search.body.new_outputs():
                model.graph.outputs.append(value)
                origins[str(value.name)] = Origin(None)
        warnings += unshown_sentences(search, places)
    others = [other for search in (main, *bodies) for other in search.other_gates]
    in_order = tuple(gate for _, gate in sorted(gates, key=lambda entry: entry[0]))
    return Instrumentation(in_order, origins, tuple(warnings), (*others, *others_in_bodies))


class GateInstrumenter:
    """Adds the hidden outputs and levers of gates to a graph, one gate after the other.

    Attributes:
        origins: The origin of each hidden output added so far, by the name of the output.
    """

    def __init__(
        self,
        search: SearchedGraph,
        positions: dict[Highway, GatePosition],
        names: GateNames,
        batch: str | None,
    ) -> None:
        graph = search.graph
        # the outputs of a loop are arranged where it is put back
        self._batch = batch if search.body is None else None
        self.origins: dict[str, Origin] = {}
        self._graph = graph
        self._logits = search.logits
        self._lever_factory = LeverFactory(graph, search.view, search.logits)
        self._positions = {highway: positions[highway] for highway in search.highways}
        self._names = names
        self._public_outputs = set(graph.outputs)
        self._former_names: dict[ir.Value, str] = {}
        self._hidden_outputs: dict[ir.Value, str] = {}
        self._weights: dict[tuple[ir.Value, float, float], ir.Value] = {}
        self._numbers: dict[tuple[float, ir.DataType], ir.Value] = {}
        self._layers: defaultdict[int, list[Highway]] = defaultdict(list)
        for highway, position in self._positions.items():
            self._layers[position.layer].append(highway)
        self._levers_of_gates: dict[tuple[ir.Value, ...], tuple[Lever, ...]] = {}

    def add_gate(self, highway: Highway) -> Gate:
        """Add the outputs and levers of one gate, and describe it for the manifest."""
        position = self._positions[highway]
        # the bias is read before levers change the graph
        logit = self._logits.logit(highway.transform.gate)
        bias = logit.bias
        levers = self._levers(highway, position)
        transform_gate = self._add_output(
            *self._value_of(highway.transform_gate, highway.transform),
            self._names.name(position, "transform_gate"),
        )
        # C is an output only if it is a gate of its own; the C of a coupled gate is only renamed
        carry_gate = None
        if highway.kind != "coupled":
            value, origin = self._value_of(highway.carry_gate, highway.carried)
            carry_gate = self._hidden_outputs.get(value) or self._add_output(
                value, origin, self._names.name(position, "carry_gate")
            )
        elif (coupled_carry := highway.carry_gate) is not None:
            self._rename(coupled_carry, self._names.name(position, "carry_gate"))
        if (transformed := highway.transform.single_value) is not None:
            self._rename(transformed, self._names.name(position, "transform"))
        output = self._output_name(highway.output, self._names.name(position, "output"))
        shape = shape_of(highway.transform.gate)
        return Gate(
            name=transform_gate,
            layer=position.layer,
            depth=position.depth,
            time=position.time,
            kind=highway.kind,
            carry=highway.carry,
            carry_gate=carry_gate,
            output=output,
            unit_axis=self._unit_axis(highway.transform.gate, logit.unit_axis),
            units=None if shape is None else shape[logit.unit_axis],
            bias=None if bias is None else bias_statistics(-bias if highway.transform.complemented else bias),
            levers=levers,
        )

    def _levers(self, highway: Highway, position: GatePosition) -> tuple[Lever, ...]:
        """The levers of a highway, which its repeats in time share."""
        layer = self._layers[position.layer]
        repeats = [other for other in layer if self._positions[other].depth == position.depth]
        # (sign, name, branches at all times) of T, and of C if it is a gate of its own: opening T closes C
        branches = [(1, "transform_gate", [repeat.transform for repeat in repeats])]
        if highway.kind != "coupled":
            branches.append((-1, "carry_gate", [repeat.carried for repeat in repeats]))
        neighbours = [branch.gate for other in layer for branch in (other.transform, other.carried)]
        levers: tuple[Lever, ...] = ()
        for sign, part, repeated_branches in branches:
            gates = tuple(branch.gate for branch in repeated_branches)
            if gates not in self._levers_of_gates:
                self._levers_of_gates[gates] = self._lever_factory.create(
                    gates,
                    neighbours,
                    sign=-sign if repeated_branches[0].complemented else sign,
                    name=self._names.name(position, f"{part}.bias", all_times=True),
                )
            levers += self._levers_of_gates[gates]
        return levers

    def _value_of(self, gate: ir.Value | None, branch: Branch) -> tuple[ir.Value, Origin]:
        """The weight of a branch; if the graph does not compute it, nodes that do are added."""
        if gate is not None:
            return gate, self._origin(gate)
        scale, offset = branch.weight
        if (key := (branch.gate, scale, offset)) not in self._weights:
            value, first = branch.gate, self._number(offset, branch.gate)
            if abs(scale) != 1:
                value = self._with_node("Mul", [value, self._number(abs(scale), value)], after=value)
            value = self._with_node("Sub" if scale < 0 else "Add", [first, value], after=value)
            self._weights[key] = value
        return self._weights[key], replace(self._origin(branch.gate), scale=scale, offset=offset)

    def _origin(self, value: ir.Value) -> Origin:
        return Origin(self._former_names.get(value, str(value.name)))

    def _output_name(self, value: ir.Value, name: str) -> str:
        """The name of a value as a hidden output; it becomes one, with the name given, if it is none yet."""
        return self._hidden_outputs.get(value) or self._add_output(value, self._origin(value), name)

    def _add_output(self, value: ir.Value, origin: Origin, name: str) -> str:
        """Make a value a hidden output, with its rows first.

        A value that must keep its name is copied under the new one.
        """
        self._hidden_outputs.setdefault(value, name)
        axis = self._row_axis(value)
        if axis:
            value = self._with_rows_first(value, axis)
        elif value in self._public_outputs or value in self._former_names:
            node = ir.node("Identity", [value])
            self._insert_after(value, node)
            value = node.outputs[0]
        self._rename(value, name)
        self._graph.outputs.append(value)
        self.origins[name] = replace(origin, row_axis=axis)
        return name

    def _row_axis(self, value: ir.Value) -> int:
        """The axis of the batch; 0 if there is none, or if its size is part of another dimension."""
        sizes = [getattr(size, "value", size) for size in value.shape or ()]
        return 0 if self._batch is None or self._batch not in sizes else sizes.index(self._batch)

    def _unit_axis(self, gate: ir.Value, axis: int) -> int:
        """The axis of the units, counted from the end, after the rows were moved to the first axis."""
        rank = len(gate.shape or ())
        return axis + 1 if rank + axis < self._row_axis(gate) else axis

    def _with_rows_first(self, value: ir.Value, axis: int) -> ir.Value:
        shape = list(value.shape or ())
        order = [axis, *(other for other in range(len(shape)) if other != axis)]
        node = ir.node("Transpose", [value], {"perm": order})
        self._insert_after(value, node)
        node.outputs[0].shape = ir.Shape([shape[other] for other in order])
        return node.outputs[0]

    def _with_node(self, op: str, inputs: Sequence[ir.Value], *, after: ir.Value) -> ir.Value:
        node = ir.node(op, inputs)
        self._insert_after(after, node)
        return node.outputs[0]

    def _insert_after(self, value: ir.Value, node: ir.Node) -> None:
        """Insert a node with a single output, of the type and shape of `value`, after the node of `value`."""
        (output,) = node.outputs
        output.type, output.shape = value.type, value.shape
        if (producer := value.producer()) is not None:
            self._graph.insert_after(producer, node)

    def _rename(self, value: ir.Value, name: str) -> None:
        """Rename a value, unless it was renamed before or is a public input or output."""
        if (
            value not in self._public_outputs
            and value not in self._former_names
            and value.producer() is not None
        ):
            self._former_names[value] = str(value.name)
            rename(value, name)

    def _number(self, number: float, like: ir.Value) -> ir.Value:
        """A constant number in the dtype of another value."""
        dtype = like.dtype or ir.DataType.FLOAT
        if (number, dtype) not in self._numbers:
            name = self._names.constant(number, dtype.name.lower())
            data = ir.tensor(np.array(number, dtype=dtype.numpy()), name=name)
            value = ir.Value(name=name, shape=ir.Shape(()), type=ir.TensorType(dtype), const_value=data)
            self._graph.register_initializer(value)
            self._numbers[number, dtype] = value
        return self._numbers[number, dtype]


def bias_statistics(bias: Array) -> BiasStats:
    """Statistics of a gate's bias over its units."""
    return BiasStats(
        mean=float(bias.mean()), sd=float(bias.std()), min=float(bias.min()), max=float(bias.max())
    )
