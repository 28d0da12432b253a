"""Infers the shapes that a graph lacks."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as passes

from turnpike.export.gates.graph.element_moves import shape_of
from turnpike.export.gates.graph.nodes import constant_integers, first_input, present_inputs

# operators that get the shape of their output as an input, which may be computed
SHAPE_INPUT_OPS = frozenset({"Reshape", "Expand"})


def infer_shapes(model: ir.Model) -> None:
    """Infer missing shapes without running the graph.

    ONNX's inference gives up at a Reshape to a computed shape, although the rank is known: it is the number
    of elements of that shape. Filling in such ranks lets the inference go on.
    """
    if all(value.shape is not None for node in model.graph for value in node.outputs):
        return
    inference = passes.ShapeInferencePass(check_type=False, strict_mode=False)
    inference(model)
    while _fill_in_ranks(model.graph):
        inference(model)


def _fill_in_ranks(graph: ir.Graph) -> bool:
    """Give the outputs of Reshape and Expand a shape, if its length is known; whether any was filled in."""
    filled_in = False
    for node in graph:
        inputs = present_inputs(node)
        if node.op_type in SHAPE_INPUT_OPS and node.outputs[0].shape is None and len(inputs) == 2:
            dims = _dims_in(inputs[1])
            if dims is not None:
                node.outputs[0].shape = ir.Shape(dims)
                node.outputs[0].type = first_input(node).type
                filled_in = True
    return filled_in


def _dims_in(shape: ir.Value) -> list[int | None] | None:
    """The dimensions that a shape tensor holds, None for a computed one; None if their number is unknown."""
    numbers = constant_integers(shape)
    if numbers is not None:
        return [number if number > 0 else None for number in numbers]
    node = shape.producer()
    if node is not None and node.op_type == "Concat":
        parts = [_dims_in(part) for part in present_inputs(node)]
        known = [part for part in parts if part is not None]
        return [dim for part in known for dim in part] if len(known) == len(parts) else None
    length = shape_of(shape)
    return None if length is None or length == [] or length[0] is None else [None] * length[0]
