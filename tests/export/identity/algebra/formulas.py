"""Small ONNX graphs of one output, written as Python expressions, and the decision about two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, InputShape

OPSET = 23
ROWS, COLUMNS = (1, 5, 4), 6


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


Formula = Callable[[Any, ir.Value, ir.Value], ir.Value]


def graph_of(formula: Formula, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Model:
    """A graph with the inputs x and y, each (rows, columns)."""
    inputs = [
        ir.Value(name=name, shape=ir.Shape(["batch", COLUMNS]), type=ir.TensorType(dtype))
        for name in ("x", "y")
    ]
    operators = Operators()
    result = operators.Identity(formula(operators, *inputs))
    result.name = "result"
    graph = ir.Graph(inputs, [result], nodes=operators.nodes, opset_imports={"": OPSET, "com.microsoft": 1})
    return ir.Model(graph, ir_version=10)


def decision_about(first: Formula, second: Formula, dtype: ir.DataType = ir.DataType.FLOAT) -> Decision:
    shapes = [[InputShape(dtype.numpy(), (rows, COLUMNS))] * 2 for rows in ROWS]
    return decide(graph_of(first, dtype), graph_of(second, dtype), shapes)
