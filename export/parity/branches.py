"""Finds branches of a graph that the values of its inputs choose, as `torch.cond` does.

One branch is run for the whole batch, so the answer for a row depends on the rows beside it. Random rows may
all take the same branch and not show it.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir
import torch

from turnpike.export.trace.trace_network import TracedGraph
from turnpike.export.trace.untraceable import source_location

# operators whose results do not depend on the values of their inputs
SHAPE_OPS = frozenset({"Shape", "Size"})


def chosen_branch(model: ir.Model, traced: TracedGraph | None, inputs: Collection[str]) -> str | None:
    """The first branch, in words, that depends on the values of one of these inputs; None if none does."""
    for node in model.graph:
        if node.op_type == "If" and _depends_on(node.inputs[0], inputs):
            nodes = () if traced is None else traced.program.graph.nodes
            calls = (call for call in nodes if call.target is torch.ops.higher_order.cond)
            places = (source_location(call).removesuffix(": ") for call in calls)
            return next(filter(None, places), f"the operator If that computes {node.outputs[0].name}")
    return None


def _depends_on(value: ir.Value | None, inputs: Collection[str]) -> bool:
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current is None or current in seen:
            continue
        seen.add(current)
        node = current.producer()
        if node is None:
            if current.name in inputs:
                return True
        elif node.op_type not in SHAPE_OPS:
            waiting += node.inputs
    return False
