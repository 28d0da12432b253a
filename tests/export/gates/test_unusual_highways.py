"""Highways with unusual gates, and highways whose sums hide their products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.highways.unusual import GATES, SUMS, UNITS, Formula, Unusual, mixed
from tests.support.gate_graphs import instrument_net, open_graph, shifted_biases
from turnpike.export import export_model
from turnpike.export.gates.highways.other_gates import UNDECIDED

ROWS, TIMES = 3, 4
TOLERANCE = 1e-5
# gates whose bias is found
WITH_LEVERS = {"power", "clamped", "attention over sources", *SUMS}
# these are parts of one softmax
KINDS = {"log softmax": "softmax", "attention over sources": "softmax"}


@pytest.mark.parametrize("name", [*GATES, *SUMS])
def test_the_gates_are_found(name: str) -> None:
    """Each with its values; a lever closes its layer."""
    torch.manual_seed(0)
    net = Unusual({**GATES, **SUMS}[name]).eval()
    model, found = instrument_net(net, (TIMES, UNITS))
    assert [(gate.kind, gate.carry) for gate in found.gates] == [(KINDS.get(name, "coupled"), "identity")] * 2
    assert [gate.name for gate in found.gates] == ["layer00.transform_gate", "layer01.transform_gate"]
    assert found.warnings == found.other_gates == ()
    assert {bool(gate.levers) for gate in found.gates} == {name in WITH_LEVERS}
    x = torch.randn(ROWS, TIMES, UNITS)
    with torch.no_grad():
        y, gates = net.run(x)
    runtime = open_graph(model)
    names = [str(model.graph.outputs[0].name), *(gate.name for gate in found.gates)]
    output, *arrays = runtime.run({"x": x.numpy()}, names)
    np.testing.assert_allclose(output, y, atol=TOLERANCE)
    for expected, array in zip(gates, arrays, strict=True):
        # a gate may be found where it is transposed
        actual = array if array.shape == expected.shape else np.swapaxes(array, -1, -2)
        np.testing.assert_allclose(actual, expected, atol=TOLERANCE)
    if found.gates[0].levers:
        closed = shifted_biases(model, found.gates, -1e4)
        (carried,) = runtime.run({"x": x.numpy(), **closed}, names[:1])
        np.testing.assert_allclose(carried, x, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["e / (e + 1)", "diagonal matrix", "carried by a tanh", "tanh in einsum"])
def test_they_are_exported(name: str, tmp_path: Path) -> None:
    """The file is decided to be the network, with its gates."""
    net = Unusual({**GATES, **SUMS}[name]).eval()
    result = export_model(net, tmp_path, name="net", inputs=[f"x:float32[batch,{UNITS}]"], expect_gates=2)
    assert result.manifest.identity is not None
    assert [gate.name for gate in result.manifest.gates] == [
        "layer00.transform_gate",
        "layer01.transform_gate",
    ]


class Loss(nn.Module):
    """A loss for each number, of a target that the network computes too."""

    def __init__(self, loss: Formula) -> None:
        super().__init__()
        self.target, self.prediction = nn.Linear(UNITS, UNITS), nn.Linear(UNITS, UNITS)
        self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(torch.sigmoid(self.target(x)), self.prediction(x), x)[0]


def cross_entropy(t: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    p = torch.sigmoid(z)
    return t * torch.log(p) + (1 - t) * torch.log(1 - p), t


def of_log_sigmoids(t: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return t * F.logsigmoid(z) + (1 - t) * F.logsigmoid(-z), t


def by_pytorch(t: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return F.binary_cross_entropy(torch.sigmoid(z), t, reduction="none"), t


@pytest.mark.parametrize("loss", [cross_entropy, of_log_sigmoids, by_pytorch])
def test_a_cross_entropy_is_no_highway(loss: Formula) -> None:
    """Neither of its branches has weights, so that there is no layer past which something is carried."""
    _, found = instrument_net(Loss(loss), (UNITS,))
    assert found.gates == found.warnings == ()
    assert [other.reason for other in found.other_gates] == [UNDECIDED]


def unbounded(z: Tensor) -> Tensor:
    return z / (1 + torch.exp(z))


def short_of_a_root(z: Tensor) -> Tensor:
    return 0.5 + 0.5 * z * torch.rsqrt(1 - torch.tanh(z) ** 2 + 0.1)


def beyond_one(z: Tensor) -> Tensor:
    return 0.5 + z / (1 + z.abs())


@pytest.mark.parametrize("gate", [unbounded, short_of_a_root, beyond_one])
def test_a_weight_that_leaves_its_bounds_is_no_gate(gate: object) -> None:
    assert callable(gate)
    _, found = instrument_net(Unusual(mixed(gate)), (UNITS,))
    assert found.gates == ()


def without_carry(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    return torch.einsum("...i,...i->...i", t, h - 2 * x) + x, t


def residual(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    return torch.einsum("...i,...i->...i", t, h) + x, t


def two_weights(h: Tensor, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.sigmoid(z)
    return torch.einsum("...i,...i->...i", t, h) + torch.einsum("...i,...i->...i", 1 - t * t, x), t


@pytest.mark.parametrize("formula", [without_carry, residual, two_weights])
def test_sums_that_almost_are_highways_have_no_gates(formula: Formula) -> None:
    _, found = instrument_net(Unusual(formula), (UNITS,))
    assert found.gates == ()
