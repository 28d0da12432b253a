"""Small ONNX graphs of one output, written as Python expressions, and the decision about two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, InputShape

OPSET = 23
ROWS, COLUMNS = (1, 5, 4), 6
NO_CONSTANTS: Mapping[str, Any] = {}


class Operators:
    """ONNX operators as methods: `op.Mul(x, 0.5)` adds a node, with constants for numbers."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def __getattr__(self, name: str) -> Callable[..., ir.Value]:
        def add(*operands: Any, domain: str = "", **attributes: Any) -> ir.Value:
            inputs = [None if operand is None else self._value(operand) for operand in operands]
            node = ir.node(name, inputs, attributes or None, domain=domain)
            self.nodes.append(node)
            node.outputs[0].name = f"value_{len(self.nodes)}"
            return node.outputs[0]

        return add

    def _value(self, operand: Any) -> ir.Value:
        if isinstance(operand, ir.Value):
            return operand
        dtype = np.float32 if isinstance(operand, float) else None
        tensor = ir.tensor(np.asarray(operand, dtype))
        node = ir.node("Constant", [], {"value": tensor})
        self.nodes.append(node)
        node.outputs[0].name = f"value_{len(self.nodes)}"
        return node.outputs[0]


class Names(dict[str, Any]):
    """The names of an expression: inputs, and constants that are given, and operators."""

    def __missing__(self, name: str) -> Callable[..., ir.Value]:
        operator: Callable[..., ir.Value] = getattr(self["operators"], name)
        return operator


def graph_of(expression: str, constants: Mapping[str, Any]) -> ir.Model:
    """A graph with the inputs x and y, each (rows, columns). `Add(x, 0.5)` is a node with a constant."""
    inputs = [
        ir.Value(name=name, shape=ir.Shape(["batch", COLUMNS]), type=ir.TensorType(ir.DataType.FLOAT))
        for name in ("x", "y")
    ]
    operators = Operators()
    names = Names(constants, operators=operators, x=inputs[0], y=inputs[1])
    # of constants in this folder
    result = operators.Identity(eval(expression, {"__builtins__": {}}, names))
    result.name = "result"
    graph = ir.Graph(inputs, [result], nodes=operators.nodes, opset_imports={"": OPSET, "com.microsoft": 1})
    return ir.Model(graph, ir_version=10)


def decision_about(first: str, second: str, constants: Mapping[str, Any] = NO_CONSTANTS) -> Decision:
    shapes = [[InputShape(np.dtype(np.float32), (rows, COLUMNS))] * 2 for rows in ROWS]
    return decide(graph_of(first, constants), graph_of(second, constants), shapes)
