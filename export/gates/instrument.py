"""The gates of a graph, whoever made it: found, named, and offered as hidden outputs with levers."""

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

# what is given its shape as a value, which may be computed
SHAPE_INPUT_OPS = frozenset({"Reshape", "Expand"})


def infer_shapes(model: ir.Model) -> None:
    """Fill in the shapes that can be known without running the graph, where some are missing."""
    if all(value.shape is not None for node in model.graph for value in node.outputs):
        return
    infer_once = passes.ShapeInferencePass(check_type=False, strict_mode=False)
    infer_once(model)
    while _fill_in_ranks(model.graph):
        infer_once(model)


def _fill_in_ranks(graph: ir.Graph) -> bool:
    """Give each value of computed shape as many dimensions as its shape has elements."""
    ranked = False
    for node in graph:
        if (
            node.op_type in SHAPE_INPUT_OPS
            and node.outputs[0].shape is None
            and len(present_inputs(node)) == 2
        ):
            dims = _dims_in(present_inputs(node)[1])
            if dims is not None:
                node.outputs[0].shape = ir.Shape(dims)
                node.outputs[0].type = first_input(node).type
                ranked = True
    return ranked


def _dims_in(shape: ir.Value) -> list[int | None] | None:
    """The dimensions that a shape holds: None for one that varies, None for all where their number does."""
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


@dataclass(frozen=True)
class Origin:
    """Where a hidden output came from: the value's name before, or where `complement`, 1 minus that value."""

    value: str
    complement: bool = False


@dataclass(frozen=True)
class Instrumentation:
    """The gates of a graph in the order data flows, and of every hidden output its origin by its name."""

    gates: tuple[Gate, ...]
    origins: dict[str, Origin]
    warnings: tuple[str, ...]


def instrument(model: ir.Model) -> Instrumentation:
    """Find the gates of a graph, name them, and add their hidden outputs and levers to it, in place."""
    infer_shapes(model)
    search = HighwayFinder(model.graph)
    found = search.find()
    highways = [one for one in found if one.output.shape is not None and one.transform.gate.shape is not None]
    offered = GateInstrumenter(model.graph, search, highways)
    gates = tuple(offered.gate(highway) for highway in highways)
    doubts = {
        highway.weights: f"{gate.name}: {highway.doubt}"
        for highway, gate in zip(reversed(highways), reversed(gates), strict=True)
        if highway.doubt is not None
    }
    warnings = list(reversed(doubts.values()))
    if unknown := len(found) - len(highways):
        warnings.append(f"{unknown} gates are left out, as their number of dimensions depends on the input")
    return Instrumentation(gates, offered.origins, tuple(warnings))


class GateInstrumenter:
    """A graph whose gates become outputs, one by one."""

    def __init__(self, graph: ir.Graph, search: HighwayFinder, highways: list[Highway]) -> None:
        self.origins: dict[str, Origin] = {}
        self._graph = graph
        self._search = search
        self._levers = LeverFactory(graph, search.flow, search.logits)
        self._places = dict(zip(highways, gate_positions(highways, search.flow), strict=True))
        self._names = GateNames(graph, list(self._places.values()))
        self._public = set(graph.outputs)
        self._former: dict[ir.Value, str] = {}
        self._hidden: dict[ir.Value, str] = {}
        self._one: dict[ir.DataType, ir.Value] = {}
        self._layers: defaultdict[int, list[Highway]] = defaultdict(list)
        for highway, place in self._places.items():
            self._layers[place.layer].append(highway)
        self._pulled: dict[tuple[ir.Value, ...], tuple[Lever, ...]] = {}

    def gate(self, highway: Highway) -> Gate:
        """Offer one gate, and say what it is."""
        place = self._places[highway]
        logit = self._search.logits.of(highway.transform.gate)
        bias = logit.bias
        levers = self._pull(highway, place)
        name = self._hide(*self._transform(highway), self._names.of(place, "transform_gate"))
        carry_gate = None
        if highway.kind != "coupled":
            carry_gate = self._share(highway.carried.gate, self._names.of(place, "carry_gate"))
        elif (other := self._carry(highway)) is not None:
            self._call(other, self._names.of(place, "carry_gate"))
        if (made := highway.transform.sole) is not None:
            self._call(made, self._names.of(place, "transform"))
        output = self._share(highway.output, self._names.of(place, "output"))
        shape = shape_of(highway.transform.gate)
        return Gate(
            name=name,
            layer=place.layer,
            depth=place.depth,
            time=place.time,
            kind=highway.kind,
            carry=highway.carry,
            carry_gate=carry_gate,
            output=output,
            unit_axis=logit.unit_axis,
            units=None if shape is None else shape[logit.unit_axis],
            bias=None if bias is None else _statistics(-bias if highway.transform.flipped else bias),
            levers=levers,
        )

    def _pull(self, highway: Highway, place: GatePosition) -> tuple[Lever, ...]:
        """The levers of a highway: one and the same at all of its times."""
        layer = self._layers[place.layer]
        repeats = [one for one in layer if self._places[one].depth == place.depth]
        made: tuple[Lever, ...] = ()
        branches = [(1, "transform_gate", [one.transform for one in repeats])]
        if highway.kind != "coupled":
            branches.append((-1, "carry_gate", [one.carried for one in repeats]))
        beside = [branch.gate for one in layer for branch in (one.transform, one.carried)]
        for sign, part, gates in branches:
            key = tuple(branch.gate for branch in gates)
            if key not in self._pulled:
                self._pulled[key] = self._levers.offer(
                    key,
                    beside,
                    sign=-sign if gates[0].flipped else sign,
                    name=self._names.of(place, f"{part}.bias", timeless=True),
                )
            made += self._pulled[key]
        return made

    def _transform(self, highway: Highway) -> tuple[ir.Value, Origin]:
        """The value T; it is added to the graph where the gate is the carry gate and T is never computed."""
        gate = highway.transform.gate
        found = self._search.blocks.sums.complements.get(gate) if highway.transform.flipped else gate
        if found is not None:
            return found, self._origin(found)
        node = ir.node("Sub", [self._ones(gate), gate])
        self._add(node, gate)
        return node.outputs[0], Origin(self._origin(gate).value, complement=True)

    def _carry(self, highway: Highway) -> ir.Value | None:
        """The value of a coupled gate's C, where the graph has it."""
        gate = highway.transform.gate
        return gate if highway.transform.flipped else self._search.blocks.sums.complements.get(gate)

    def _origin(self, value: ir.Value) -> Origin:
        return Origin(self._former.get(value, str(value.name)))

    def _share(self, value: ir.Value, name: str) -> str:
        """The name that a value has as a hidden output, which it is made if it is none."""
        return self._hidden.get(value) or self._hide(value, self._origin(value), name)

    def _hide(self, value: ir.Value, origin: Origin, name: str) -> str:
        """Make a value a hidden output of this name; one that has a name to keep is handed on under it."""
        self._hidden.setdefault(value, name)
        if value in self._public or value in self._former:
            node = ir.node("Identity", [value])
            self._add(node, value)
            value = node.outputs[0]
        self._call(value, name)
        self._graph.outputs.append(value)
        self.origins[name] = origin
        return name

    def _add(self, node: ir.Node, value: ir.Value) -> None:
        """Put a node behind the one that makes the value it works on."""
        (made,) = node.outputs
        made.type, made.shape = value.type, value.shape
        if (maker := value.producer()) is not None:
            self._graph.insert_after(maker, node)

    def _call(self, value: ir.Value, name: str) -> None:
        """Give a value a readable name, unless it has one already or must keep its own."""
        if value not in self._public and value not in self._former and value.producer() is not None:
            self._former[value] = str(value.name)
            rename(value, name)

    def _ones(self, gate: ir.Value) -> ir.Value:
        dtype = gate.dtype or ir.DataType.FLOAT
        if dtype not in self._one:
            name = f"{self._names.one}.{dtype.name.lower()}"
            data = ir.tensor(np.ones((), dtype=dtype.numpy()), name=name)
            value = ir.Value(name=name, shape=ir.Shape(()), type=ir.TensorType(dtype), const_value=data)
            self._graph.register_initializer(value)
            self._one[dtype] = value
        return self._one[dtype]


def _statistics(bias: Array) -> BiasStats:
    return BiasStats(
        mean=float(bias.mean()), sd=float(bias.std()), min=float(bias.min()), max=float(bias.max())
    )
