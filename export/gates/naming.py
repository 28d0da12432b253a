"""Readable names in the graph: a gate of the eighth layer is `layer07.transform_gate`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

from export.gates.repeats import Place

# what a name may end with, or go on with after
PARTS = ("transform_gate", "carry_gate", "transform", "output")


class Names:
    """Names for the gates of one graph, none of which the graph has for anything else."""

    def __init__(self, graph: ir.Graph, places: Sequence[Place]) -> None:
        taken = {value.name for value in (*graph.inputs, *graph.initializers.values())}
        for node in graph.all_nodes():
            taken |= {node.name, *(value.name for value in node.outputs)}
        self._digits = {
            part: len(str(max((getattr(place, part) or 0 for place in places), default=0)))
            for part in ("layer", "depth", "time")
        }
        self._word = "layer"
        while any(name is not None and self._ours(name) for name in taken):
            self._word = f"highway_{self._word}"

    def of(self, place: Place, part: str, *, timeless: bool = False) -> str:
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
        return bool(re.match(rf"{self._word}\d+\.((depth|time)\d+\.)*({'|'.join(PARTS)})\b", name))


def call(value: ir.Value, name: str) -> None:
    """Give a value its name, and its node too where it makes nothing else."""
    value.name = name
    node = value.producer()
    if node is not None and len(node.outputs) == 1:
        node.name = name
