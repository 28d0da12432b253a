"""What the user is told about the gates of a graph: their names, and those that form no highway."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from turnpike.export.errors import GateCountError
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network
from turnpike.export.prepared_graph import expect_gate_count, prepare

UNITS = 4


def recurrent_graph(op: str, matrices: int, direction: str) -> onnx.ModelProto:
    """A GRU or LSTM and nothing else."""
    directions = 2 if direction == "bidirectional" else 1
    shape = (directions, matrices * UNITS, UNITS)
    weights = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name in ("cell.w", "cell.r")]
    node = helper.make_node(op, ["x", "cell.w", "cell.r"], ["y"], hidden_size=UNITS, direction=direction)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, "batch", UNITS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, directions, "batch", UNITS])
    graph = helper.make_graph([node], "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def network(graph: onnx.ModelProto, *dims: int | str) -> Network:
    return Network("net", "onnx", (InputSpec("x", "float32", dims),), graph=graph)


@pytest.mark.parametrize(
    ("op", "matrices", "direction", "gate"),
    [("GRU", 3, "forward", "reset"), ("GRU", 3, "bidirectional", "reset"), ("LSTM", 4, "forward", "output")],
)
def test_the_other_gates_of_an_opened_layer_are_called_what_they_are(
    op: str, matrices: int, direction: str, gate: str
) -> None:
    """Not by their names in the graph, which no user knows."""
    graph = prepare(network(recurrent_graph(op, matrices, direction), 6, "batch", UNITS), open_recurrent=True)
    count = " (2 sigmoids)" if direction == "bidirectional" else ""
    name = f"the {gate} gate of the {op} with the weights cell.w{count}"
    assert graph.other_gates == (f"{name}: it is no highway gate",)


def test_a_sigmoid_inside_an_operator_of_pytorch_has_the_line_of_the_operator() -> None:
    """The exporter writes GLU as several nodes, which it names itself."""

    class Glu(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.glu(x)

    spec = InputSpec("x", "float32", ("batch", 8))
    (sentence,) = prepare(Network("net", "module", (spec,), module=Glu())).other_gates
    assert "return nn.functional.glu(x)" in sentence


def test_an_error_names_the_first_ten_gates() -> None:
    """Each of twelve layers takes the output of the one before, and has weights of its own."""
    lines, weights = [], []
    for number, (source_name, output) in enumerate(pairwise(["x", *(f"x{n}" for n in range(1, 12)), "y"])):
        weights.append(numpy_helper.from_array(np.full((UNITS, UNITS), number, np.float32), f"w{number}"))
        lines += [
            helper.make_node("MatMul", [source_name, f"w{number}"], [f"z{number}"]),
            helper.make_node("Sigmoid", [f"z{number}"], [f"t{number}"]),
            helper.make_node("Tanh", [source_name], [f"h{number}"]),
            helper.make_node("Sub", [f"h{number}", source_name], [f"d{number}"]),
            helper.make_node("Mul", [f"t{number}", f"d{number}"], [f"p{number}"]),
            helper.make_node("Add", [source_name, f"p{number}"], [output]),
        ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", UNITS]) for name in ("x", "y"))
    model = helper.make_model(
        helper.make_graph(lines, "net", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    )
    graph = prepare(network(model, "batch", UNITS))
    expect_gate_count(graph, 12)
    expect_gate_count(graph, None)
    with pytest.raises(GateCountError) as caught:
        expect_gate_count(graph, 11)
    names = ", ".join(f"layer{number:02}.transform_gate" for number in range(10))
    assert str(caught.value) == f"--expect-gates: expected 11, found 12: {names} and 2 more"
