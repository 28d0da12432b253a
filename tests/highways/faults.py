"""Faults planted in the graph of a highway network, most of them in its last gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]


def clip_last_logit(limit: float) -> Callable[[ir.Model], None]:
    """Clip the logit of the last gate to -limit..limit."""

    def change(model: ir.Model) -> None:
        sigmoid = _last_sigmoid(model)
        bounds = []
        for name, bound in (("low", -limit), ("high", limit)):
            value = ir.Value(name=name, const_value=ir.Tensor(np.float32(bound), name=name))
            model.graph.initializers.add(value)
            bounds.append(value)
        clip = ir.Node("", "Clip", [sigmoid.inputs[0], *bounds], name="clip")
        clip.outputs[0].name = "clipped"
        model.graph.insert_before(sigmoid, clip)
        sigmoid.replace_input_with(0, clip.outputs[0])

    return change


def wrong_carry(model: ir.Model) -> None:
    """C = 0.9999 - T in the last layer."""
    gate = _last_sigmoid(model).outputs[0]
    sub = next(node for node in model.graph if node.op_type == "Sub" and node.inputs[1] is gate)
    literal = ir.Value(name="almost", const_value=ir.Tensor(np.float32(0.9999), name="almost"))
    model.graph.initializers.add(literal)
    sub.replace_input_with(0, literal)


def change_gate(index: int, function: Callable[[Array], Array]) -> Callable[[ir.Model], None]:
    """Change the weight (1) or bias (2) of the last gate."""

    def change(model: ir.Model) -> None:
        _change(model, _linear(_last_sigmoid(model)), index, function)

    return change


def drop_bias(model: ir.Model) -> None:
    """Zeros for the bias of the last gate's transform."""
    linear = [node for node in model.graph if node.op_type in ("Gemm", "Conv")][-2]
    _change(model, linear, 2, np.zeros_like)


def _move_one(amount: float) -> Callable[[Array], Array]:
    def function(array: Array) -> Array:
        array.reshape(-1)[1] += np.float32(amount)
        return array

    return function


def _scale_one(array: Array) -> Array:
    array.reshape(-1)[1] *= np.float32(1.01)
    return array


def _transpose(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(0, 1))


def _to_fp16(array: Array) -> Array:
    return array.astype(np.float16).astype(np.float32)


FAULTS: dict[str, Callable[[ir.Model], None]] = {
    "gate bias off by 1e-3": change_gate(2, _move_one(1e-3)),
    "gate weights rounded to fp16": change_gate(1, _to_fp16),
    "one gate weight off by 1 %": change_gate(1, _scale_one),
    "gate transposed": change_gate(1, _transpose),
    "bias dropped": drop_bias,
    "wrong carry": wrong_carry,
    "clip at 8": clip_last_logit(8),
    "clip at 12": clip_last_logit(12),
}


def _last_sigmoid(model: ir.Model) -> ir.Node:
    return [node for node in model.graph if node.op_type == "Sigmoid"][-1]


def _linear(sigmoid: ir.Node) -> ir.Node:
    """The last product behind a logit, which may be a sum, or a product and its bias."""
    node = _producer(sigmoid, 0)
    while node.op_type == "Add":
        bias = node.inputs[1]
        node = _producer(node, 0 if bias is not None and bias.is_initializer() else 1)
    assert node.op_type in ("Gemm", "Conv"), node
    return node


def _producer(node: ir.Node, index: int) -> ir.Node:
    value = node.inputs[index]
    producer = None if value is None else value.producer()
    assert producer is not None
    return producer


def _change(model: ir.Model, node: ir.Node, index: int, function: Callable[[Array], Array]) -> None:
    if index == 2 and len(node.inputs) == 2:
        # a bias with an axis more is added after the product
        ((node, _),) = node.outputs[0].uses()
        index = 1
    old = node.inputs[index]
    assert old is not None
    assert old.const_value is not None
    name = f"changed.{old.name}"
    value = ir.Value(name=name, const_value=ir.Tensor(function(old.const_value.numpy().copy()), name=name))
    model.graph.initializers.add(value)
    node.replace_input_with(index, value)
