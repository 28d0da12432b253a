"""Where each gate stands: its layer, and its depth and time where a layer is applied again and again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from export.gates.flow import Flow
from export.gates.highways import Highway


@dataclass(frozen=True)
class Place:
    """Counted from 0 in the order data flows; depth and time are None where there is but one."""

    layer: int
    depth: int | None = None
    time: int | None = None


def places(highways: Sequence[Highway], flow: Flow) -> list[Place]:
    """The place of every highway.

    Gates of the same weights are one gate at several times. Of gates that repeat equally often, those
    of which each carries on the state of the one before it are the depths of one layer.
    """
    gates: dict[Hashable, list[Highway]] = {}
    for highway in highways:
        gates.setdefault(highway.weights, []).append(highway)
    made: dict[Highway, Place] = {}
    for layer, depths in enumerate(_layers(list(gates.values()), flow)):
        for depth, repeats in enumerate(depths):
            for time, highway in enumerate(repeats):
                made[highway] = Place(
                    layer,
                    depth if len(depths) > 1 else None,
                    time if len(repeats) > 1 else None,
                )
    return [made[highway] for highway in highways]


def _layers(gates: list[list[Highway]], flow: Flow) -> list[list[list[Highway]]]:
    """The gates of each layer, in the order of their depth."""
    above: dict[int, int] = {}
    for upper, gate in enumerate(gates):
        for lower, other in enumerate(gates):
            if lower != upper and lower not in above.values() and _carries_on(gate, other, flow):
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


def _carries_on(gate: list[Highway], other: list[Highway], flow: Flow) -> bool:
    """Whether a gate goes on with what another left at the same time, or is a further gate of its block."""
    if len(gate) != len(other):
        return False
    if all(one.output is two.output for one, two in zip(gate, other, strict=True)):
        return flow.order(gate[0].transform.gate) > flow.order(other[0].transform.gate)
    if len(gate) == 1:
        return False
    return all(one.state is flow.first(two.output) for one, two in zip(gate, other, strict=True))
