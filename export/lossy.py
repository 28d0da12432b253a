"""Where onnxruntime is known to forget a NaN that PyTorch would pass on."""

from __future__ import annotations

import onnx_ir as ir

# on the CPU they keep or drop a NaN by its place among the numbers that they choose from
LOSSY = frozenset(("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin"))


def lossy_values(model: ir.Model) -> frozenset[str]:
    """The names of all values that a lossy operator has a part in."""
    found: set[str] = set()
    for node in model.graph:
        inner = (one for graph in node.subgraphs() for one in graph.all_nodes())
        if (
            node.op_type in LOSSY
            or any(one.op_type in LOSSY for one in inner)
            or any(value is not None and value.name in found for value in node.inputs)
        ):
            found |= {str(value.name) for value in node.outputs}
    return frozenset(found)
