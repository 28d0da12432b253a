"""What one node of a graph says: its inputs, its attributes, and the constants among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]

# operators through which a constant keeps its number
VALUE_KEEPING_OPS = frozenset({"Identity", "Cast", "CastLike", "Expand", "Reshape", "Unsqueeze", "Squeeze"})


def is_pass_through(node: ir.Node) -> bool:
    """Whether a node returns its first input unchanged, except perhaps for the float type."""
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        training = constant_array(node.inputs[2]) if len(node.inputs) > 2 else None
        return training is None or not training.any()
    if node.op_type in {"Cast", "CastLike"}:
        return is_float(first_input(node)) and is_float(node.outputs[0])
    return False


def is_float(value: ir.Value) -> bool:
    """Whether a value holds floating point numbers; assumed if the graph gives no dtype."""
    node = value.producer()
    if value.dtype is None and node is not None and node.op_type == "Cast":
        return ir.DataType(attribute(node, "to")).is_floating_point()
    return value.dtype is None or value.dtype.is_floating_point()


def constant_array(value: ir.Value | None) -> Array | None:
    """The elements of an initializer or a Constant node; None for a computed value."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def constant_integers(value: ir.Value | None) -> list[int] | None:
    """The elements of a constant as integers, for axes, sizes and the like."""
    data = constant_array(value)
    return None if data is None else [int(number) for number in data.reshape(-1)]


def constant_scalar(value: ir.Value | None) -> float | None:
    """The single number of a constant, even if it was cast, reshaped or repeated; None if there is none."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in VALUE_KEEPING_OPS:
        value = node.inputs[0]
        node = None if value is None else value.producer()
    if node is not None and node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])
    data = constant_array(value)
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None


def is_all_ones(value: ir.Value | None) -> bool:
    """Whether a value is a constant with 1 in every element, as in `torch.ones_like(t) - t`."""
    if (number := constant_scalar(value)) is not None:
        return number == 1.0
    data = constant_array(value)
    return data is not None and bool((data == 1).all())


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, or the default."""
    entry = node.attributes.get(name)
    return default if entry is None else entry.value


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze, Unsqueeze or the like: an input in new opsets, an attribute in old ones."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return constant_integers(node.inputs[1])
    axes = attribute(node, "axes")
    return None if axes is None else [int(axis) for axis in axes]


def first_input(node: ir.Node) -> ir.Value:
    """The first input of a node; a ValueError for operators that have none."""
    if not node.inputs or node.inputs[0] is None:
        raise ValueError(f"{node.op_type}: expected a first input, got none")
    return node.inputs[0]


def present_inputs(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node without the optional ones that were left out."""
    return [value for value in node.inputs if value is not None]


def subgraphs(node: ir.Node) -> list[ir.Graph]:
    """The bodies of a loop, or the branches of an If."""
    attributes = node.attributes.values()
    single = [entry.as_graph() for entry in attributes if entry.type is ir.AttributeType.GRAPH]
    several = [entry.as_graphs() for entry in attributes if entry.type is ir.AttributeType.GRAPHS]
    return [*single, *(graph for graphs in several for graph in graphs)]
