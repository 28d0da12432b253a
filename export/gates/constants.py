"""What a graph says outright: the numbers and arrays that its literals hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]

# what a literal may pass through without becoming another number
KEEPS_NUMBER = frozenset({"Identity", "Cast", "CastLike", "Expand", "Reshape", "Unsqueeze", "Squeeze"})


def array(value: ir.Value | None) -> Array | None:
    """The elements of an initializer or a Constant node; None for what is computed."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def integers(value: ir.Value | None) -> list[int] | None:
    """The elements as integers, of axes, sizes and the like."""
    data = array(value)
    return None if data is None else [int(number) for number in data.reshape(-1)]


def scalar(value: ir.Value | None) -> float | None:
    """The one number that a literal holds, however often it was repeated."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in KEEPS_NUMBER:
        value = node.inputs[0]
        node = None if value is None else value.producer()
    if node is not None and node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])
    data = array(value)
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None


def is_one(value: ir.Value | None) -> bool:
    """Whether every element is 1, as in `torch.ones_like(t) - t`."""
    if (number := scalar(value)) is not None:
        return number == 1.0
    data = array(value)
    return data is not None and data.size > 0 and bool((data == 1).all())


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, or the default."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze, Unsqueeze or the like: an input in new opsets, an attribute in old ones."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return integers(node.inputs[1])
    axes = attribute(node, "axes")
    return None if axes is None else [int(axis) for axis in axes]


def first_input(node: ir.Node) -> ir.Value:
    """What a node is made of in the first place; a ValueError for operators that take nothing."""
    if not node.inputs or node.inputs[0] is None:
        raise ValueError(f"{node.op_type}: expected a first input, got none")
    return node.inputs[0]


def given(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node without those that were left out."""
    return [value for value in node.inputs if value is not None]
