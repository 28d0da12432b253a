"""Names gates by their position: the gate of the eighth layer is `layer07.transform_gate`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

from turnpike.export.gates.highways.positions import GatePosition

# the last part of a name; what is derived from a value continues after it, as in `transform_gate.bias`
NAME_PARTS = ("transform_gate", "carry_gate", "transform", "output")
# the constants that are added to a graph
CONSTANT_NAMES = {1.0: "one", 0.5: "half"}


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

    def constant(self, number: float, dtype: str) -> str:
        """The name of a constant number."""
        return f"{self._prefix}s.{CONSTANT_NAMES[number]}.{dtype}"

    def _collides(self, name: str) -> bool:
        if name.startswith(tuple(f"{self._prefix}s.{word}" for word in CONSTANT_NAMES.values())):
            return True
        return bool(re.match(rf"{self._prefix}\d+\.((depth|time)\d+\.)*({'|'.join(NAME_PARTS)})\b", name))


def rename(value: ir.Value, name: str) -> None:
    """Rename a value, and its node too if that has no other output."""
    value.name = name
    node = value.producer()
    if node is not None and len(node.outputs) == 1:
        node.name = name
