"""Moved runs: sigmoid may be wrong by a unit in the last place of 1, and so may what it multiplies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity import prove as prove_module
from turnpike.export.parity.error_stats import EPS
from turnpike.export.parity.moved_runs import moved_functions
from turnpike.export.parity.onnx_reference import GraphEvaluator
from turnpike.export.prepared_graph import prepare
from turnpike.service.artifact.proof_records import Parity
from turnpike.service.artifact.runtime import open_model

X = torch.linspace(-3000, 3000, 41)


def distance(function: Callable[[Tensor], Tensor]) -> Tensor:
    """How far a function moves, at each value of X."""
    exact = function(X.clone())
    with torch.no_grad(), moved_functions(seed=0):
        return (function(X.clone()) - exact).abs()


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, torch.Tensor.sigmoid_, torch.Tensor.tanh_])
def test_a_bounded_function_moves_by_a_unit_of_one(function: Callable[[Tensor], Tensor]) -> None:
    moved = distance(function)
    assert 0 < moved.max() <= EPS
    assert moved[X < -100].max() > 0


@pytest.mark.parametrize("function", [F.silu, F.gelu, F.mish, lambda x: F.glu(torch.cat([x, -x.abs()]))])
def test_what_it_multiplies_moves_in_proportion(function: Callable[[Tensor], Tensor]) -> None:
    moved = distance(function)
    assert 0 < moved.max() <= 2 * EPS * 3000
    assert moved[X < -1000].max() > EPS


def test_other_functions_do_not_move() -> None:
    assert not distance(lambda x: torch.relu(x) * 2 + 1).any()


def test_the_functions_of_a_branch_move() -> None:
    def branches(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > -1, torch.sigmoid, torch.sigmoid, (x,))

    assert 0 < distance(branches).max() <= EPS


def test_the_evaluator_of_graphs_moves_them() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])
    evaluator = GraphEvaluator(helper.make_model(helper.make_graph(nodes, "g", [x], [y])), ["s", "y"])
    feeds = {"x": X.numpy()}
    exact, moved = (evaluator.run(feeds, float64=False, moved=moved) for moved in (False, True))
    for name in ("s", "y"):
        assert 0 < np.abs(moved[name] - exact[name]).max() <= 2 * EPS
        assert moved[name].dtype == np.float32


class SwishOfHighway(nn.Module):
    """Its swish is almost 0 for each value of some large rows, where onnxruntime's sigmoid is not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.h, self.t, self.out = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.t(x))
        y = torch.relu(self.h(x)) * t + x * (1 - t)
        y = -torch.relu(self.out(y)) - 1
        return y * torch.sigmoid(y)


def prove(network: Network) -> Parity:
    """The measurement by which a network is judged of which nothing is decided."""
    graph = prepare(network)
    runtimes = [open_model(graph.data)]
    return prove_module.prove(
        network, graph.traced, graph.model, graph.gates.origins, runtimes=runtimes
    ).parity


def test_a_swish_of_large_values_is_no_error() -> None:
    torch.manual_seed(0)
    inputs = parse_inputs(["x:float32[batch,12]"])
    network = Network("net", "module", inputs, module=SwishOfHighway().eval())
    assert {unjudged.first for unjudged in prove(network).unjudged} == {"output"}
    graph = onnx.load_model_from_string(prepare(network).data)
    assert prove(Network("net", "onnx", inputs, graph=graph)).unjudged


def test_the_gates_inside_a_gru_move() -> None:
    """In a large row, PyTorch's own error is 0: its gates are 0 or 1."""
    torch.manual_seed(10)

    class Gru(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.out = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.out(self.gru(x)[0][:, -1])
            return result

    network = Network("net", "module", parse_inputs(["x:float32[batch,5,4]"]), module=Gru().eval())
    assert prove(network).tensors[-1].name == "output"
