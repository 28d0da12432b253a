"""Which form of a graph is written: with short sums, or as it is if that is more accurate."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.pipeline import export_model
from turnpike.export.prepared_graph import prepare, with_short_sums
from turnpike.export.proved_graph import prove_first
from turnpike.export.steps import Steps
from turnpike.export.verify import verify_model
from turnpike.service.artifact.manifest import Precision

INPUT = "x:float32[batch,8]"


class GatedNet(nn.Module):
    """One highway layer of 32 units, with values of about `scale` in its input."""

    def __init__(self, gate_bias: float, scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.entry, self.transform, self.gate = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        with torch.no_grad():
            self.entry.weight.mul_(scale)
            for linear in (self.transform, self.gate):
                linear.weight.div_(scale)
            self.gate.bias.fill_(gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.entry(x)
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.tanh(self.transform(x)) + (1 - gate) * x


def short() -> nn.Module:
    return GatedNet(gate_bias=-1, scale=1).eval()


def long() -> nn.Module:
    """T is exactly 1, so that y is H, and x + (H - x) loses digits of H, as x is 1000 times as large."""
    return GatedNet(gate_bias=40, scale=1000).eval()


def products(path: Path) -> int:
    return sum(node.op_type == "Mul" for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    ("net", "precision", "expected"),
    [
        (short(), "fp32", 1),
        pytest.param(long(), "fp32", 2, marks=pytest.mark.slow),
        pytest.param(short(), "fp16", 2, marks=pytest.mark.slow),
    ],
)
def test_the_file_has_the_shorter_form_if_that_is_accurate(
    net: nn.Module, precision: Precision, expected: int, tmp_path: Path
) -> None:
    """It verifies, and exporting it again finds the same file."""
    first = export_model(net, tmp_path, name="net", inputs=[INPUT], precision=precision)
    assert products(first.path) == expected
    assert verify_model(first.path, net).proof.parity.verdict == "pass"
    again = export_model(net, tmp_path, name="net", inputs=[INPUT], version=1, precision=precision)
    assert not again.written


@pytest.mark.slow
def test_the_next_form_is_tried_only_if_an_error_is_above_its_bound() -> None:
    net = long()
    network = Network("net", "module", tuple(parse_inputs([INPUT])), module=net)
    graph = prepare(network)
    shortened = with_short_sums(graph)
    assert shortened is not None
    (warning,) = prove_first([shortened], network, 0, Steps()).proof.warnings
    assert warning.startswith("rounding: output ")
    assert prove_first([shortened, graph], network, 0, Steps()).graph is graph
    assert prove_first([graph, shortened], network, 0, Steps()).graph is graph
