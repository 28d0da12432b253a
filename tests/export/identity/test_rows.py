"""The decision whether the rows of a batch are answered alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import InputShape, RowDecision, RowVerdict
from turnpike.export.identity.samples import ROW_SETS
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.load import load_source
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import find_preset


class Mixed(nn.Module):
    """Rows that are changed by a function of the batch."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.function(x)


def decided(net: nn.Module, *sizes: int) -> RowDecision:
    """What is decided about the rows of a network's graph, which is the same function as itself."""
    torch.manual_seed(0)
    dims = ",".join(["batch", *map(str, sizes)])
    network = load_source(net.eval(), SourceOptions(inputs=[f"x:float32[{dims}]"], name="net"))
    graph = prepare(network)
    sets = [[InputShape(np.dtype(np.float32), (len(rows), *sizes))] for rows in ROW_SETS]
    return decided_of(graph.model, sets)


def decided_of(model: ir.Model, sets: list[list[InputShape]]) -> RowDecision:
    decision = decide(model, model, sets, row_axes=[0])
    assert decision.rows is not None, decision
    return decision.rows


COUPLED = {
    "mean of the batch": lambda x: x.mean(0, keepdim=True),
    "little of the batch": lambda x: 1e-20 * x.mean(0, keepdim=True),
    "the row before": lambda x: torch.roll(x, 1, 0),
    "the row after": lambda x: torch.roll(x, -1, 0),
    "rows before": lambda x: torch.cumsum(x, 0),
    "the opposite row": lambda x: x.flip(0),
    "the number of rows": lambda x: x * x.shape[0],
    "the place of the row": lambda x: x + torch.arange(x.shape[0], dtype=x.dtype)[:, None],
    "attention between rows": lambda x: torch.softmax(x @ x.T, -1) @ x,
}


@pytest.mark.parametrize("name", COUPLED)
def test_rows_that_depend_on_others_are_coupled(name: str) -> None:
    decision = decided(Mixed(COUPLED[name]), 4)
    assert decision.verdict is RowVerdict.COUPLED, decision
    assert decision.output is not None


INDEPENDENT = {
    "softmax": lambda x: torch.softmax(x, -1),
    "norm of a row": lambda x: x / x.norm(dim=1, keepdim=True),
    "batch first": lambda x: x.reshape(-1, 2, 2).flip(1).reshape(-1, 4),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_do_not_are_independent(name: str) -> None:
    decision = decided(Mixed(INDEPENDENT[name]), 4)
    assert decision.verdict is RowVerdict.INDEPENDENT, decision
    assert decision.error_bound < 1e-18


@pytest.mark.parametrize(("name", "verdict"), [("rows before", "coupled"), ("softmax", "independent")])
def test_the_row_alone_may_have_another_length(name: str, verdict: str) -> None:
    net = Mixed((COUPLED | INDEPENDENT)[name]).eval()
    graph = prepare(load_source(net, SourceOptions(inputs=["x:float32[batch,time,4]"], name="net")))
    lengths = (8, 11, 11)
    sets = [
        [InputShape(np.dtype(np.float32), (len(rows), length, 4))]
        for rows, length in zip(ROW_SETS, lengths, strict=True)
    ]
    assert decided_of(graph.model, sets).verdict == verdict


def test_rows_of_a_preset_are_independent() -> None:
    """In its gates and layers, too."""
    decision = decided(build_network(find_preset("digits-10").config), 1, 8, 8)
    assert decision.verdict is RowVerdict.INDEPENDENT, decision


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


def test_an_output_without_rows_is_coupled() -> None:
    assert decided(Summed(), 4).verdict is RowVerdict.COUPLED


def test_one_number_of_rows_is_not_decided() -> None:
    network = load_source(Mixed(torch.relu).eval(), SourceOptions(inputs=["x:float32[2,4]"], name="net"))
    graph = prepare(network)
    rows = decide_identity(network, graph, graph.model).rows
    assert str(rows) == "not decided: the network takes one number of rows only"
