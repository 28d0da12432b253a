"""Readable names in the graph: a gate of the eighth layer is `layer07.transform_gate`."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from export.gates.find import Highway
from export.gates.graph_view import GraphView


@dataclass(frozen=True)
class GatePosition:
    """Counted from 0 in the order data flows; depth and time are None where there is but one."""

    layer: int
    depth: int | None = None
    time: int | None = None


def gate_positions(highways: Sequence[Highway], flow: GraphView) -> list[GatePosition]:
    """The place of every highway.

    Gates of the same weights are one gate at several times. Of gates that repeat equally often, those
    of which each carries on the state of the one before it are the depths of one layer.
    """
    gates: dict[Hashable, list[Highway]] = {}
    for highway in highways:
        gates.setdefault(highway.weights, []).append(highway)
    made: dict[Highway, GatePosition] = {}
    for layer, depths in enumerate(_layers(list(gates.values()), flow)):
        for depth, repeats in enumerate(depths):
            for time, highway in enumerate(repeats):
                made[highway] = GatePosition(
                    layer,
                    depth if len(depths) > 1 else None,
                    time if len(repeats) > 1 else None,
                )
    return [made[highway] for highway in highways]


def _layers(gates: list[list[Highway]], flow: GraphView) -> list[list[list[Highway]]]:
    """The gates of each layer, in the order of their depth."""
    above: dict[int, int] = {}
    for upper, gate in enumerate(gates):
        for lower, other in enumerate(gates):
            if lower != upper and lower not in above.values() and _continues(gate, other, flow):
                above[upper] = lower
                break
    below = {lower: upper for upper, lower in above.items()}
    layers: list[list[list[Highway]]] = []
    for number, gate in enumerate(gates):
        if number in above:
            continue
        depths = [gate]
        next_up = below.get(number)
        while next_up is not None:
            depths.append(gates[next_up])
            next_up = below.get(next_up)
        layers.append(depths)
    return layers


def _continues(gate: list[Highway], other: list[Highway], flow: GraphView) -> bool:
    """Whether a gate goes on with what another left at the same time, or is a further gate of its block."""
    if len(gate) != len(other):
        return False
    if all(one.output is two.output for one, two in zip(gate, other, strict=True)):
        return flow.order(gate[0].transform.gate) > flow.order(other[0].transform.gate)
    if len(gate) == 1:
        return False
    return all(one.state is flow.first(two.output) for one, two in zip(gate, other, strict=True))


# what a name may end with, or go on with after
NAME_PARTS = ("transform_gate", "carry_gate", "transform", "output")


class GateNames:
    """Names for the gates of one graph, none of which the graph has for anything else."""

    def __init__(self, graph: ir.Graph, gate_positions: Sequence[GatePosition]) -> None:
        taken = {value.name for value in (*graph.inputs, *graph.initializers.values())}
        for node in graph.all_nodes():
            taken |= {node.name, *(value.name for value in node.outputs)}
        self._digits = {
            part: len(str(max((getattr(place, part) or 0 for place in gate_positions), default=0)))
            for part in ("layer", "depth", "time")
        }
        self._word = "layer"
        while any(name is not None and self._ours(name) for name in taken):
            self._word = f"highway_{self._word}"

    def of(self, place: GatePosition, part: str, *, timeless: bool = False) -> str:
        """The name of one part of a layer's block; `timeless` for what all times share."""
        words = [f"{self._word}{place.layer:0{max(2, self._digits['layer'])}}"]
        if place.depth is not None:
            words.append(f"depth{place.depth:0{self._digits['depth']}}")
        if place.time is not None and not timeless:
            words.append(f"time{place.time:0{self._digits['time']}}")
        return ".".join([*words, part])

    @property
    def one(self) -> str:
        """The name of the number 1."""
        return f"{self._word}s.one"

    def _ours(self, name: str) -> bool:
        if name.startswith(self.one):
            return True
        return bool(re.match(rf"{self._word}\d+\.((depth|time)\d+\.)*({'|'.join(NAME_PARTS)})\b", name))


def rename(value: ir.Value, name: str) -> None:
    """Give a value its name, and its node too where it makes nothing else."""
    value.name = name
    node = value.producer()
    if node is not None and len(node.outputs) == 1:
        node.name = name
