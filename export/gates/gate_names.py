"""Names gates by their position: the gate of the eighth layer is `layer07.transform_gate`.

A position is a layer, and a depth and a time for layers that are applied repeatedly. Gates with the same
weights are one gate at several times. Gates that repeat equally often, each of which takes the output of the
one before as its state, are the depths of one layer: the micro-layers of a recurrent highway network.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from export.gates.find import Highway
from export.gates.graph_view import GraphView

# the last part of a name; what is derived from a value continues after it, as in `transform_gate.bias`
NAME_PARTS = ("transform_gate", "carry_gate", "transform", "output")


@dataclass(frozen=True)
class GatePosition:
    """Counted from 0 in the order data flows; depth and time are None if there is only one."""

    layer: int
    depth: int | None = None
    time: int | None = None


def gate_positions(highways: Sequence[Highway], view: GraphView) -> list[GatePosition]:
    """The position of each highway."""
    repeats_by_weights: dict[Hashable, list[Highway]] = {}
    for highway in highways:
        repeats_by_weights.setdefault(highway.weights, []).append(highway)
    positions: dict[Highway, GatePosition] = {}
    for layer, depths in enumerate(_group_into_layers(list(repeats_by_weights.values()), view)):
        for depth, repeats in enumerate(depths):
            for time, highway in enumerate(repeats):
                positions[highway] = GatePosition(
                    layer,
                    depth if len(depths) > 1 else None,
                    time if len(repeats) > 1 else None,
                )
    return [positions[highway] for highway in highways]


def _group_into_layers(gates: list[list[Highway]], view: GraphView) -> list[list[list[Highway]]]:
    """The gates of each layer in the order of their depth; a gate is the list of its repeats in time."""
    # link each gate to the one that it continues, if any; no gate is continued twice
    below: dict[int, int] = {}
    for upper, gate in enumerate(gates):
        for lower, other in enumerate(gates):
            if lower != upper and lower not in below.values() and _continues(gate, other, view):
                below[upper] = lower
                break
    # each gate that continues no other one begins a layer
    above = {lower: upper for upper, lower in below.items()}
    layers: list[list[list[Highway]]] = []
    for number, gate in enumerate(gates):
        if number in below:
            continue
        depths = [gate]
        upper_number = above.get(number)
        while upper_number is not None:
            depths.append(gates[upper_number])
            upper_number = above.get(upper_number)
        layers.append(depths)
    return layers


def _continues(gate: list[Highway], other: list[Highway], view: GraphView) -> bool:
    """Whether a gate carries what another one returned at the same time, or is a further gate of its sum."""
    if len(gate) != len(other):
        return False
    if all(upper.output is lower.output for upper, lower in zip(gate, other, strict=True)):
        return view.position(gate[0].transform.gate) > view.position(other[0].transform.gate)
    if len(gate) == 1:
        return False
    return all(upper.state is view.canonical(lower.output) for upper, lower in zip(gate, other, strict=True))


class GateNames:
    """Names for the gates of one graph; none of them is in use in the graph."""

    def __init__(self, graph: ir.Graph, positions: Sequence[GatePosition]) -> None:
        names_in_use = {value.name for value in (*graph.inputs, *graph.initializers.values())}
        for node in graph.all_nodes():
            names_in_use |= {node.name, *(value.name for value in node.outputs)}
        self._digits = {
            part: len(str(max((getattr(position, part) or 0 for position in positions), default=0)))
            for part in ("layer", "depth", "time")
        }
        self._prefix = "layer"
        while any(name is not None and self._collides(name) for name in names_in_use):
            self._prefix = f"highway_{self._prefix}"

    def name(self, position: GatePosition, part: str, *, all_times: bool = False) -> str:
        """The name of a part of a highway; with `all_times`, of what its repeats in time share."""
        words = [f"{self._prefix}{position.layer:0{max(2, self._digits['layer'])}}"]
        if position.depth is not None:
            words.append(f"depth{position.depth:0{self._digits['depth']}}")
        if position.time is not None and not all_times:
            words.append(f"time{position.time:0{self._digits['time']}}")
        return ".".join([*words, part])

    @property
    def constant_one(self) -> str:
        """The name of the constant 1."""
        return f"{self._prefix}s.one"

    def _collides(self, name: str) -> bool:
        if name.startswith(self.constant_one):
            return True
        return bool(re.match(rf"{self._prefix}\d+\.((depth|time)\d+\.)*({'|'.join(NAME_PARTS)})\b", name))


def rename(value: ir.Value, name: str) -> None:
    """Rename a value, and its node too if that has no other output."""
    value.name = name
    node = value.producer()
    if node is not None and len(node.outputs) == 1:
        node.name = name
