"""The position of each gate: a layer, and a depth and a time for layers that are applied repeatedly.

Gates with the same weights are one gate at several times. Gates that repeat equally often, each of which
takes the output of the one before as its state, are the depths of one layer: the micro-layers of a recurrent
highway network.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from turnpike.export.gates.graph.view import GraphView
from turnpike.export.gates.highways.highway import Highway
from turnpike.export.gates.highways.search import SearchedGraph


@dataclass(frozen=True)
class GatePosition:
    """Counted from 0 in the order data flows; depth and time are None if there is only one."""

    layer: int
    depth: int | None = None
    time: int | None = None


def number_layers(main: SearchedGraph, bodies: Sequence[SearchedGraph]) -> dict[Highway, GatePosition]:
    """The position of each highway, with layers numbered across the graph and its loops."""
    positions: dict[Highway, GatePosition] = {}
    layers: dict[tuple[int, int, int], list[Highway]] = {}
    for number, search in enumerate((main, *bodies)):
        view, in_loop = search.view, search.body is not None
        local = gate_positions(search.highways, view, in_loop=in_loop)
        starts: dict[int, int] = {}
        for highway, position, flow in zip(search.highways, local, flow_positions(search, main), strict=True):
            positions[highway] = position
            key = (starts.setdefault(position.layer, flow), number, position.layer)
            layers.setdefault(key, []).append(highway)
    return {
        highway: replace(positions[highway], layer=layer)
        for layer, (_, highways) in enumerate(sorted(layers.items(), key=lambda entry: entry[0]))
        for highway in highways
    }


def flow_positions(search: SearchedGraph, main: SearchedGraph) -> list[int]:
    """The position of each highway in the graph, ascending; one in a loop has that of the loop's node."""
    view = main.view
    if search.body is not None:
        return [view.positions[search.body.node]] * len(search.highways)
    return list(accumulate((view.position(highway.output) for highway in search.highways), max))


def gate_positions(
    highways: Sequence[Highway], view: GraphView, *, in_loop: bool = False
) -> list[GatePosition]:
    """The position of each highway of a graph; with `in_loop`, the graph is the body of a loop."""
    repeats_by_weights: dict[Hashable, list[Highway]] = {}
    for highway in highways:
        repeats_by_weights.setdefault(highway.weights, []).append(highway)
    positions: dict[Highway, GatePosition] = {}
    for layer, depths in enumerate(_group_into_layers(list(repeats_by_weights.values()), view, in_loop)):
        for depth, repeats in enumerate(depths):
            for time, highway in enumerate(repeats):
                positions[highway] = GatePosition(
                    layer,
                    depth if len(depths) > 1 else None,
                    time if len(repeats) > 1 else None,
                )
    return [positions[highway] for highway in highways]


def _group_into_layers(
    gates: list[list[Highway]], view: GraphView, in_loop: bool
) -> list[list[list[Highway]]]:
    """The gates of each layer in the order of their depth; a gate is the list of its repeats in time."""
    # link each gate to the one that it continues, if any; no gate is continued twice
    below: dict[int, int] = {}
    for upper, gate in enumerate(gates):
        for lower, other in enumerate(gates):
            if lower != upper and lower not in below.values() and _continues(gate, other, view, in_loop):
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


def _continues(gate: list[Highway], other: list[Highway], view: GraphView, in_loop: bool) -> bool:
    """Whether a gate carries what another one returned at the same time, or is a further gate of its sum."""
    if len(gate) != len(other):
        return False
    if all(upper.output is lower.output for upper, lower in zip(gate, other, strict=True)):
        return view.position(gate[0].transform.gate) > view.position(other[0].transform.gate)
    if len(gate) == 1 and not in_loop:
        return False
    return all(upper.state is view.canonical(lower.output) for upper, lower in zip(gate, other, strict=True))
