"""Instruments a graph: finds its gates, names them, and adds them as hidden outputs with levers.

Works on any ONNX graph, whatever code it came from. A hidden output is a graph output that is returned only
if it is requested by name. The graph is changed in place: values are renamed, outputs are appended, and at
most a few small nodes are added (1 - gate where only the carry gate exists, Identity for values that keep
another name, additions for levers).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from export.gates.element_moves import shape_of
from export.gates.find import Highway, HighwayFinder
from export.gates.gate_names import GateNames, GatePosition, gate_positions, rename
from export.gates.graph_view import Array, constant_integers, first_input, present_inputs
from export.gates.levers import LeverFactory
from service.artifact.manifest import BiasStats, Gate, Lever

# operators that get the shape of their output as an input, which may be computed
SHAPE_INPUT_OPS = frozenset({"Reshape", "Expand"})


@dataclass(frozen=True)
class Origin:
    """The value behind a hidden output, by its name before; if `complement`, the output is 1 - value."""

    value: str
    complement: bool = False


@dataclass(frozen=True)
class Instrumentation:
    """The gates of a graph.

    Attributes:
        gates: In the order data flows.
        origins: The origin of each hidden output, by the name of the output.
        warnings: Sentences for the user.
    """

    gates: tuple[Gate, ...]
    origins: dict[str, Origin]
    warnings: tuple[str, ...]


def instrument(model: ir.Model) -> Instrumentation:
    """Find the gates of a graph, name them, and add their hidden outputs and levers, in place."""
    infer_shapes(model)
    finder = HighwayFinder(model.graph)
    found = finder.find()
    # a graph output needs a rank
    highways = [
        highway
        for highway in found
        if highway.output.shape is not None and highway.transform.gate.shape is not None
    ]
    instrumenter = GateInstrumenter(model.graph, finder, highways)
    gates = tuple(instrumenter.add_gate(highway) for highway in highways)
    # one warning for all repeats of a gate, with the name of the first
    uncertain = {
        highway.weights: f"{gate.name}: {highway.uncertainty}"
        for highway, gate in zip(reversed(highways), reversed(gates), strict=True)
        if highway.uncertainty is not None
    }
    warnings = list(reversed(uncertain.values()))
    if unranked := len(found) - len(highways):
        warnings.append(f"left out {unranked} gates, whose number of dimensions depends on the input")
    return Instrumentation(gates, instrumenter.origins, tuple(warnings))


class GateInstrumenter:
    """Adds the hidden outputs and levers of gates to a graph, one gate after the other.

    Attributes:
        origins: The origin of each hidden output added so far, by the name of the output.
    """

    def __init__(self, graph: ir.Graph, finder: HighwayFinder, highways: list[Highway]) -> None:
        self.origins: dict[str, Origin] = {}
        self._graph = graph
        self._logits = finder.logits
        self._lever_factory = LeverFactory(graph, finder.view, finder.logits)
        self._positions = dict(zip(highways, gate_positions(highways, finder.view), strict=True))
        self._names = GateNames(graph, list(self._positions.values()))
        self._public_outputs = set(graph.outputs)
        self._former_names: dict[ir.Value, str] = {}
        self._hidden_outputs: dict[ir.Value, str] = {}
        self._ones: dict[ir.DataType, ir.Value] = {}
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
            *self._transform_gate(highway), self._names.name(position, "transform_gate")
        )
        # C is an output only if it is a gate of its own; the C of a coupled gate is only renamed
        carry_gate = None
        if highway.kind != "coupled":
            carry_gate = self._output_name(highway.carried.gate, self._names.name(position, "carry_gate"))
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
            unit_axis=logit.unit_axis,
            units=None if shape is None else shape[logit.unit_axis],
            bias=None if bias is None else _statistics(-bias if highway.transform.complemented else bias),
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

    def _transform_gate(self, highway: Highway) -> tuple[ir.Value, Origin]:
        """The value T; if the graph only has the carry gate, 1 - C is added to it."""
        if (value := highway.transform_gate) is not None:
            return value, self._origin(value)
        carry_gate = highway.transform.gate
        node = ir.node("Sub", [self._one(carry_gate), carry_gate])
        self._insert_after(carry_gate, node)
        return node.outputs[0], Origin(self._origin(carry_gate).value, complement=True)

    def _origin(self, value: ir.Value) -> Origin:
        return Origin(self._former_names.get(value, str(value.name)))

    def _output_name(self, value: ir.Value, name: str) -> str:
        """The name of a value as a hidden output; it becomes one, with the name given, if it is none yet."""
        return self._hidden_outputs.get(value) or self._add_output(value, self._origin(value), name)

    def _add_output(self, value: ir.Value, origin: Origin, name: str) -> str:
        """Make a value a hidden output; a value that must keep its name is copied under the new one."""
        self._hidden_outputs.setdefault(value, name)
        if value in self._public_outputs or value in self._former_names:
            node = ir.node("Identity", [value])
            self._insert_after(value, node)
            value = node.outputs[0]
        self._rename(value, name)
        self._graph.outputs.append(value)
        self.origins[name] = origin
        return name

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

    def _one(self, like: ir.Value) -> ir.Value:
        """The constant 1 in the dtype of another value."""
        dtype = like.dtype or ir.DataType.FLOAT
        if dtype not in self._ones:
            name = f"{self._names.constant_one}.{dtype.name.lower()}"
            data = ir.tensor(np.ones((), dtype=dtype.numpy()), name=name)
            value = ir.Value(name=name, shape=ir.Shape(()), type=ir.TensorType(dtype), const_value=data)
            self._graph.register_initializer(value)
            self._ones[dtype] = value
        return self._ones[dtype]


def infer_shapes(model: ir.Model) -> None:
    """Infer missing shapes without running the graph.

    ONNX's inference gives up at a Reshape to a computed shape, although the rank is known: it is the number
    of elements of that shape. Filling in such ranks lets the inference go on.
    """
    if all(value.shape is not None for node in model.graph for value in node.outputs):
        return
    inference = passes.ShapeInferencePass(check_type=False, strict_mode=False)
    inference(model)
    while _fill_in_ranks(model.graph):
        inference(model)


def _fill_in_ranks(graph: ir.Graph) -> bool:
    """Give the outputs of Reshape and Expand a shape, if its length is known; whether any was filled in."""
    filled_in = False
    for node in graph:
        inputs = present_inputs(node)
        if node.op_type in SHAPE_INPUT_OPS and node.outputs[0].shape is None and len(inputs) == 2:
            dims = _dims_in(inputs[1])
            if dims is not None:
                node.outputs[0].shape = ir.Shape(dims)
                node.outputs[0].type = first_input(node).type
                filled_in = True
    return filled_in


def _dims_in(shape: ir.Value) -> list[int | None] | None:
    """The dimensions that a shape tensor holds, None for a computed one; None if their number is unknown."""
    numbers = constant_integers(shape)
    if numbers is not None:
        return [number if number > 0 else None for number in numbers]
    node = shape.producer()
    if node is not None and node.op_type == "Concat":
        parts = [_dims_in(part) for part in present_inputs(node)]
        known = [part for part in parts if part is not None]
        return [dim for part in known for dim in part] if len(known) == len(parts) else None
    length = shape_of(shape)
    return None if length is None or length == [] or length[0] is None else [None] * length[0]


def _statistics(bias: Array) -> BiasStats:
    return BiasStats(
        mean=float(bias.mean()), sd=float(bias.std()), min=float(bias.min()), max=float(bias.max())
    )
