"""Layers, depths and times of recurrent networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.highways import recurrent
from tests.support.gate_graphs import instrument_net, open_graph, shifted_biases
from turnpike.export.gates.instrument import Instrumentation

ROWS = 3


def positions(instrumentation: Instrumentation) -> list[tuple[int, int | None, int | None]]:
    return [(gate.layer, gate.depth, gate.time) for gate in instrumentation.gates]


@pytest.mark.slow
def test_recurrent_highways_have_layer_depth_and_time() -> None:
    """Micro-layers with different weights are depths, repeats are times, and one lever moves all times."""
    net = recurrent.Rhn(3, 4, depth=3).eval()
    model, instrumentation = instrument_net(net, (3, 3))
    assert positions(instrumentation) == [(0, depth, time) for time in range(3) for depth in range(3)]
    assert instrumentation.gates[4].name == "layer00.depth1.time1.transform_gate"
    assert {gate.carry for gate in instrumentation.gates} == {"identity"}
    runtime = open_graph(model)
    x = torch.randn(ROWS, 3, 3)
    feeds = {"x": x.numpy()}
    second = tuple(gate for gate in instrumentation.gates if gate.depth == 1)
    assert {gate.levers for gate in second} == {second[0].levers}
    assert [(lever.tensor, lever.start, lever.stop) for lever in second[0].levers] == [
        ("hidden_lin.1.bias", 4, 8)
    ]
    shifted = feeds | shifted_biases(model, second, 3.0)
    with torch.no_grad():
        net.hidden_lin[1].bias[4:] += 3
        np.testing.assert_allclose(runtime.run(shifted, [runtime.outputs[0].name])[0], net(x), atol=1e-5)


@pytest.mark.parametrize("make", [recurrent.LearnedStart, recurrent.OneLogit])
def test_repeats_of_a_layer_are_recognized_by_its_weights(make: Callable[[int], nn.Module]) -> None:
    """The first state is not a weight of the gate, and a logit that H reads too is still the gate's."""
    _, instrumentation = instrument_net(make(4), (3, 4))
    assert positions(instrumentation) == [(0, None, time) for time in range(3)]


@pytest.mark.slow
def test_cells_in_two_directions_are_two_layers() -> None:
    """The cells of one direction are the times of one layer; the carry of a GRU is its state h."""
    net = recurrent.GruCells(3, 4).eval()
    model, instrumentation = instrument_net(net, (2, 3))
    assert positions(instrumentation) == [(layer, None, time) for layer in range(2) for time in range(2)]
    assert {(gate.kind, gate.carry) for gate in instrumentation.gates} == {("coupled", "identity")}
    x = torch.randn(ROWS, 2, 3)
    first = open_graph(model).run({"x": x.numpy()}, ["layer00.time0.transform_gate"])[0]
    cell = net.ahead
    z = (x[:, 0] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh)[:, 4:8]
    np.testing.assert_allclose(first, 1 - torch.sigmoid(z).detach(), atol=1e-5)
    bias = (cell.bias_ih + cell.bias_hh).detach()[4:8]
    assert instrumentation.gates[0].bias is not None
    assert instrumentation.gates[0].bias.mean == pytest.approx(-bias.mean().item(), abs=1e-6)


def test_lstm_cells_are_independent_gates() -> None:
    """In c' = f c + i g, T is i and C is f. Two layers that alternate in time are two layers."""
    net = recurrent.LstmCells(3, 4).eval()
    model, instrumentation = instrument_net(net, (2, 3))
    assert sorted(positions(instrumentation)) == [
        (layer, None, time) for layer in range(2) for time in range(2)
    ]
    assert {(gate.kind, gate.carry) for gate in instrumentation.gates} == {("independent", "identity")}
    x = torch.randn(ROWS, 2, 3)
    names = ["layer00.time0.transform_gate", "layer00.time0.carry_gate"]
    i, f = open_graph(model).run({"x": x.numpy()}, names)
    cell = net.lower
    z = (x[:, 0] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh).detach()
    np.testing.assert_allclose(i, torch.sigmoid(z[:, :4]), atol=1e-5)
    np.testing.assert_allclose(f, torch.sigmoid(z[:, 4:8]), atol=1e-5)
    ranges = {(lever.start, lever.stop, lever.sign) for lever in instrumentation.gates[0].levers}
    assert ranges == {(0, 4, 1), (4, 8, -1)}


@pytest.mark.slow
def test_the_state_of_an_sru_is_its_carry() -> None:
    """The cell of an SRU carries c in time, and its highway carries x."""
    model, instrumentation = instrument_net(recurrent.Sru(4), (3, 4))
    assert positions(instrumentation) == [(0, None, 0), (0, None, 1), (0, None, 2), (1, None, None)]
    x = torch.randn(ROWS, 3, 4)
    assert {gate.carry for gate in instrumentation.gates} == {"identity"}
    runtime = open_graph(model)
    weights = model.graph.initializers
    projected = (
        x.numpy() @ weights["all.weight"].const_value.numpy().T + weights["all.bias"].const_value.numpy()
    )
    f = 1 / (1 + np.exp(-projected[:, 1, 4:8]))
    np.testing.assert_allclose(
        runtime.run({"x": x.numpy()}, [instrumentation.gates[1].name])[0], 1 - f, atol=1e-5
    )
