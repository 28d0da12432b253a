"""The shapes of a graph that does not tell them: inferred, of what is reshaped at least the rank."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as passes

from export.gates.constants import first_input, given, integers
from export.gates.element_moves import sizes

# what is given its shape as a value, which may be computed
SHAPED = frozenset({"Reshape", "Expand"})


def infer(model: ir.Model) -> None:
    """Fill in the shapes that can be known without running the graph, where some are missing."""
    if all(value.shape is not None for node in model.graph for value in node.outputs):
        return
    infer_once = passes.ShapeInferencePass(check_type=False, strict_mode=False)
    infer_once(model)
    while _rank(model.graph):
        infer_once(model)


def _rank(graph: ir.Graph) -> bool:
    """Give each value of computed shape as many dimensions as its shape has elements."""
    ranked = False
    for node in graph:
        if node.op_type in SHAPED and node.outputs[0].shape is None and len(given(node)) == 2:
            dims = _elements(given(node)[1])
            if dims is not None:
                node.outputs[0].shape = ir.Shape(dims)
                node.outputs[0].type = first_input(node).type
                ranked = True
    return ranked


def _elements(shape: ir.Value) -> list[int | None] | None:
    """The dimensions that a shape holds: None for one that varies, None for all where their number does."""
    numbers = integers(shape)
    if numbers is not None:
        return [number if number > 0 else None for number in numbers]
    node = shape.producer()
    if node is not None and node.op_type == "Concat":
        parts = [_elements(part) for part in given(node)]
        known = [part for part in parts if part is not None]
        return [dim for part in known for dim in part] if len(known) == len(parts) else None
    length = sizes(shape)
    return None if length is None or length == [] or length[0] is None else [None] * length[0]
