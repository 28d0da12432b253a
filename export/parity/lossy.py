"""Where onnxruntime is known to forget a NaN that PyTorch would pass on."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

# on the CPU the first seven keep or drop a NaN by its place among the numbers they choose from, and the
# recurrent ones clip it away before they squash
LOSSY = frozenset(
    ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin", "GRU", "LSTM", "RNN")
)


def lossy_values(model: ir.Model) -> frozenset[str]:
    """The names of all values that a lossy operator has a part in."""
    found: set[str] = set()
    for node in model.graph:
        if any(one.op_type in LOSSY for one in (node, *_inside(node))) or any(
            value is not None and value.name in found for value in node.inputs
        ):
            found |= {str(value.name) for value in node.outputs}
    return frozenset(found)


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of the graphs that a node holds, as loops and branches do."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()
