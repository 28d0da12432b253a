"""The decision whether the rows of a batch are answered alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from turnpike.export.graph_identity import decide_row_independence
from turnpike.export.identity.decision import RowDecision, RowVerdict
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


def decided(net: nn.Module, spec: str) -> RowDecision:
    torch.manual_seed(0)
    network = load_source(net.eval(), SourceOptions(inputs=[spec], name="net"))
    return decide_row_independence(network, prepare(network))


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
    decision = decided(Mixed(COUPLED[name]), "x:float32[batch,4]")
    assert decision.verdict is RowVerdict.COUPLED, decision
    assert decision.output is not None


INDEPENDENT = {
    "softmax": lambda x: torch.softmax(x, -1),
    "norm of a row": lambda x: x / x.norm(dim=1, keepdim=True),
    "batch first": lambda x: x.reshape(-1, 2, 2).flip(1).reshape(-1, 4),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_do_not_are_independent(name: str) -> None:
    decision = decided(Mixed(INDEPENDENT[name]), "x:float32[batch,4]")
    assert decision.verdict is RowVerdict.INDEPENDENT, decision
    assert decision.error_bound < 1e-18


def test_rows_of_a_preset_are_independent() -> None:
    """In its gates and layers, too."""
    decision = decided(build_network(find_preset("digits-10").config), "x:float32[batch,1,8,8]")
    assert decision.verdict is RowVerdict.INDEPENDENT, decision


class Summed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


def test_an_output_without_rows_is_coupled() -> None:
    assert decided(Summed(), "x:float32[batch,4]").verdict is RowVerdict.COUPLED


def test_one_number_of_rows_is_not_decided() -> None:
    decision = decided(Mixed(torch.relu), "x:float32[2,4]")
    assert str(decision) == "not decided: the network takes one number of rows only"
