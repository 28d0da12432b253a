"""Branches of `torch.cond`: exported, proved on both sides, and never batched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.parity.branches import chosen_branch
from turnpike.export.pipeline import ExportResult, export_model
from turnpike.service.artifact.runtime import open_model


class Branching(nn.Module):
    """A highway for rows whose condition holds, and rows minus 1 for others."""

    def __init__(self, condition: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate, self.transform = nn.Linear(4, 4), nn.Linear(4, 4)
        self.condition = condition

    def highway(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.transform(x)) + (1 - t) * x

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(self.condition(x), self.highway, lambda rows: rows - 1, (x,))


def export_branching(condition: Callable[[Tensor], Tensor], to: Path) -> tuple[Branching, ExportResult]:
    torch.manual_seed(0)
    network = Branching(condition).eval()
    return network, export_model(network, to, inputs=["x:float32[batch,4]"])


def test_both_branches_are_proved(tmp_path: Path) -> None:
    """The file takes the branch that the module takes; the warning names the line of the gate inside."""
    network, result = export_branching(lambda x: x[:, 0].sum() > 0, tmp_path)
    assert result.manifest.batch_coupled
    unshown, mixing = result.warnings
    assert unshown.startswith("gates that are not in the file: 1 in a branch: test_branches.py:")
    assert "one branch is chosen for all of them: test_branches.py:" in mixing
    assert len(result.manifest.parity.batches) == 12
    assert result.manifest.parity.reference == "the original network in float64"
    assert result.other_gates == ()
    runtime = open_model(result.path)
    for rows in (np.ones((3, 4), np.float32), -np.ones((3, 4), np.float32)):
        expected = network.highway(torch.from_numpy(rows)) if rows.sum() > 0 else torch.from_numpy(rows) - 1
        np.testing.assert_allclose(runtime.run({"x": rows})[0], expected.detach().numpy(), atol=1e-6)


def test_a_branch_that_is_never_run_is_reported(tmp_path: Path) -> None:
    """Nothing is known about it; still rows of a request may reach it, and share it with others."""
    _, result = export_branching(lambda x: ~(x.abs().sum() < -1), tmp_path)
    assert result.manifest.batch_coupled
    assert result.warnings[1].endswith(
        ": no ordinary batch of finite rows took the branch for False: this branch is not proved"
    )


def test_a_branch_that_only_an_infinity_takes_is_not_proved(tmp_path: Path) -> None:
    _, result = export_branching(lambda x: ~torch.isinf(x).any(), tmp_path)
    assert "took the branch for False: this branch is not proved" in result.warnings[1]


GRAPH = """
<ir_version: 9, opset_import: ["" : 20]>
net (float[batch, 4] x, bool[1] flag) => (float[batch, 4] y) {
    zero = Constant<value_float: float = 0.0>()
    shape = Shape(x)
    size = ReduceProd<keepdims: int = 0>(shape)
    limit = Constant<value_int: int = 8>()
    small = Less(size, limit)
    total = ReduceSum<keepdims: int = 0>(x)
    positive = Greater(total, zero)
    y = If(CONDITION) <
        then_branch = yes () => (float[batch, 4] a) { a = Identity(x) },
        else_branch = no () => (float[batch, 4] b) { b = Neg(x) }
    >
}
"""


@pytest.mark.parametrize(("condition", "found"), [("positive", True), ("small", False), ("flag", False)])
def test_only_conditions_on_the_values_of_rows_count(condition: str, found: bool) -> None:
    """A condition on sizes, or on an input without rows, is the same for every row."""
    model = ir.from_onnx_text(GRAPH.replace("CONDITION", condition))
    expected = "the operator If that computes y" if found else None
    assert chosen_branch(model, None, {"x"}) == expected
