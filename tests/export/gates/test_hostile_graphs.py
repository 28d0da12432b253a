"""Graphs built to make the gate search slow or deeply recursive."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from turnpike.export.gates.instrument import instrument

LINKS = 1500
JOIN = [
    helper.make_node("MatMul", ["x", "w"], ["h"]),
    helper.make_node("Sub", ["h", "x"], ["more"]),
    helper.make_node("Mul", ["more", "t"], ["let"]),
    helper.make_node("Add", ["let", "x"], ["y"]),
]


def chain(op: str, start: str, *others: str) -> tuple[list[NodeProto], str]:
    """An operator applied to its own output LINKS times; `self` as second input stands for that output."""
    nodes, value = [], start
    for link in range(LINKS):
        second = [value if name == "self" else name for name in others]
        nodes.append(helper.make_node(op, [value, *second], [f"{start}{link}"]))
        value = f"{start}{link}"
    return nodes, value


def gate(value: str) -> list[NodeProto]:
    return [helper.make_node("Sigmoid", [value], ["t"]), *JOIN]


def doubled() -> list[NodeProto]:
    nodes, last = chain("Add", "x", "self")
    return [*nodes, *gate(last)]


def long_sum() -> list[NodeProto]:
    nodes, last = chain("Add", "x", "x")
    return [*nodes, *gate(last)]


def long_output() -> list[NodeProto]:
    nodes, last = chain("Add", "t", "x")
    return [helper.make_node("Sigmoid", ["x"], ["t"]), *nodes, helper.make_node("Identity", [last], ["y"])]


def transposed() -> list[NodeProto]:
    nodes, last = chain("Transpose", "s")
    gate_nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["s"])]
    return [*gate_nodes, *nodes, helper.make_node("Identity", [last], ["t"]), *JOIN]


def doubled_weights() -> list[NodeProto]:
    nodes, last = chain("Add", "w", "self")
    return [*nodes, helper.make_node("MatMul", ["x", last], ["z"]), *gate("z")]


def complements() -> list[NodeProto]:
    nodes, value = [helper.make_node("Sigmoid", ["x"], ["s"])], "s"
    for link in range(LINKS):
        nodes.append(helper.make_node("Sub", ["one", value], [f"s{link}"]))
        value = f"s{link}"
    return [*nodes, helper.make_node("Identity", [value], ["t"]), *JOIN]


def product_of_sums() -> list[NodeProto]:
    """(x + a0) (x + a1) ..., which are two million terms."""
    nodes, value = [], "x"
    for link in range(21):
        nodes += [
            helper.make_node("Tanh", [f"a{link - 1}" if link else "x"], [f"a{link}"]),
            helper.make_node("Add", ["x", f"a{link}"], [f"s{link}"]),
            helper.make_node("Mul", [value, f"s{link}"], [f"p{link}"]),
        ]
        value = f"p{link}"
    return [*nodes, helper.make_node("Add", [value, "x"], ["z"]), *gate("z")]


def literal() -> list[NodeProto]:
    nodes, last = chain("Identity", "one")
    return [*nodes, helper.make_node("Add", [last, "x"], ["t"]), *JOIN]


@pytest.mark.slow
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "make",
    [doubled, long_sum, long_output, transposed, doubled_weights, complements, product_of_sums, literal],
)
def test_hostile_graphs_are_read_in_short_time(make: object) -> None:
    """Neither run time nor recursion depth explodes, and the gate behind the chain is found."""
    assert callable(make)
    nodes = make()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    weights = [
        numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
        numpy_helper.from_array(np.float32(1), "one"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert len(instrument(model).gates) == (0 if make in (long_output, literal) else 1)
