"""Recurrent highway networks and highway LSTMs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.network_training import expect_glorot, losses_in_training, with_random_weights
from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.gate import Carry, record_gates
from turnpike.models.networks.recurrent import (
    HighwayLstm,
    HighwayLstmConfig,
    HighwayLstmLayer,
    RecurrentHighway,
    RecurrentHighwayStep,
    Rhn,
    RhnConfig,
)

Same = Callable[[Tensor, Tensor], None]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def sigmoid(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def weights_of(linear: nn.Linear) -> tuple[Numbers, Numbers]:
    return linear.weight.detach().numpy(), linear.bias.detach().numpy()


def test_a_recurrent_highway_step_worked_out_by_hand(same: Same) -> None:
    """s' = h t + s (1 - t) with weights of one number each."""
    step = RecurrentHighwayStep(1, 1).double()
    with torch.no_grad():
        step.transform.weight.copy_(torch.tensor([[1.0, 2.0]]))  # x, then s
        step.gate.weight.copy_(torch.tensor([[0.0, 1.0]]))
        step.gate.bias.fill_(-0.5)
    got = step(torch.tensor([[0.5]]).double(), torch.tensor([[-1.0]]).double())
    # h = tanh(-1 + 2 * 0.5) = 0, t = sigmoid(0.5 - 0.5) = 1/2, s' = 0 + 0.5 * 1/2
    same(got, torch.tensor([[0.25]]).double())


def test_a_new_recurrent_step_has_weights_after_glorot() -> None:
    expect_glorot(RecurrentHighwayStep(60, 140).transform.weight, inputs=200, units=140)


@torch.no_grad()
def test_a_new_highway_lstm_layer_has_glorot_and_orthogonal_weights() -> None:
    """Each of its four maps by itself: W after Glorot, R orthogonal."""
    layer = HighwayLstmLayer(60, 140, lowest=False).double()
    for weight in layer.read.weight.chunk(4):
        expect_glorot(weight, inputs=60, units=140)
    for weight in layer.recur.weight.chunk(4):
        # the values were drawn in float32
        torch.testing.assert_close(weight @ weight.T, torch.eye(140).double(), rtol=0, atol=1e-5)
    assert layer.depth_gate is not None
    expect_glorot(layer.depth_gate.map.weight, inputs=60, units=140)


@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_recurrent_highway_equals_its_equations(carry: Carry, same: Same) -> None:
    """Every state agrees with the equations, written with separate W and R."""
    inputs, width, depth, time = 3, 4, 3, 5
    layer = with_random_weights(RecurrentHighway(inputs, width, depth, carry=carry), 0.5)
    x = torch.randn(2, time, inputs, dtype=torch.float64)
    expected = np.zeros((2, time, width))
    for row in range(2):
        s = np.zeros(width)
        for t in range(time):
            for level, step in enumerate(layer.steps):
                read = x[row, t].numpy() if level == 0 else np.zeros(0)

                def form(linear: nn.Linear, read: Numbers = read, s: Numbers = s) -> Numbers:
                    both, bias = weights_of(linear)
                    return both[:, : len(read)] @ read + both[:, len(read) :] @ s + bias

                gate = sigmoid(form(step.gate))
                keep = 1 - gate if carry == "coupled" else sigmoid(form(step.carry_gate))
                s = np.tanh(form(step.transform)) * gate + s * keep
            expected[row, t] = s
    same(layer(x), torch.from_numpy(expected))


def test_recurrent_highway_continues_from_a_state(same: Same) -> None:
    """A row read in two pieces, with the state passed on, gives the same as in one."""
    layer = RecurrentHighway(3, 4, 2)
    x = torch.randn(2, 6, 3)
    first = layer(x[:, :2])
    same(torch.cat([first, layer(x[:, 2:], first[:, -1])], dim=1), layer(x))


def test_a_new_recurrent_highway_mostly_keeps_its_state() -> None:
    """The default gate bias of -2 gives T = sigmoid(-2) = 0.12 for inputs of zero."""
    layer = RecurrentHighway(3, 16, 1)
    with record_gates(layer) as recordings:
        layer(torch.zeros(1, 1, 3))
    assert recordings["steps.0"].transform_gates[0].mean().item() == pytest.approx(0.1192, abs=1e-3)


@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_every_gate_of_an_rhn_is_recorded_at_every_time_step(carry: Carry) -> None:
    """A recording has T and y of each highway step, once per time step."""
    net = Rhn(RhnConfig(inputs=(5, 3), classes=4, width=6, depth=3, carry=carry))
    with record_gates(net) as recordings:
        net(torch.randn(2, 5, 3))
    assert list(recordings) == ["layer.steps.0", "layer.steps.1", "layer.steps.2"]
    for recording in recordings.values():
        assert [tuple(t.shape) for t in recording.transform_gates] == [(2, 6)] * 5
        assert [tuple(y.shape) for y in recording.outputs] == [(2, 6)] * 5
        assert all(((t > 0) & (t < 1)).all() for t in recording.transform_gates)


def test_a_highway_lstm_cell_worked_out_by_hand(same: Same) -> None:
    """All weights are zero, so the gates are their biases, and c = d c_below + i g."""
    layer = HighwayLstmLayer(1, 1, lowest=False, depth_bias=0.0).double()
    with torch.no_grad():
        layer.read.weight.zero_()
        layer.recur.weight.zero_()
        layer.depth_gate.map.weight.zero_()
        layer.read.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 20.0]))  # i, f, o are 1/2; g is 1
    h, c = layer(torch.ones(1, 2, 1).double(), torch.tensor([[[4.0], [-2.0]]]).double())
    # c_1 = 4/2 + 0 + 1/2 = 2.5, c_2 = -2/2 + 2.5/2 + 1/2 = 0.75, h = tanh(c) / 2
    same(c, torch.tensor([[[2.5], [0.75]]]).double())
    same(h, torch.tanh(torch.tensor([[[2.5], [0.75]]]).double()) / 2)


def test_highway_lstm_equals_its_equations(same: Same) -> None:
    """Three layers are compared with a loop over time and layers, one row at a time."""
    inputs, width, time = 3, 4, 5
    config = HighwayLstmConfig(inputs=(time, inputs), classes=2, width=width, depth=3, scaling="none")
    net = with_random_weights(HighwayLstm(config), 0.5)
    x = torch.randn(2, time, inputs, dtype=torch.float64)
    expected = np.zeros((2, 2))
    for row in range(2):
        h, c = np.zeros((3, width)), np.zeros((3, width))
        for t in range(time):
            read = x[row, t].numpy()
            for level, layer in enumerate(net.layers):
                (w, b), r = weights_of(layer.read), layer.recur.weight.detach().numpy()
                i, f, o, g = (
                    w[k * width : (k + 1) * width] @ read
                    + r[k * width : (k + 1) * width] @ h[level]
                    + b[k * width : (k + 1) * width]
                    for k in range(4)
                )
                cell = sigmoid(f) * c[level] + sigmoid(i) * np.tanh(g)
                if level > 0:
                    gate = layer.depth_gate
                    wd, bd = weights_of(gate.map)
                    peep = gate.time.detach().numpy() * c[level] + gate.depth.detach().numpy() * c[level - 1]
                    cell = cell + sigmoid(wd @ read + bd + peep) * c[level - 1]
                c[level] = cell
                h[level] = sigmoid(o) * np.tanh(cell)
                read = h[level]
        w, b = weights_of(net.out)
        expected[row] = w @ h[-1] + b
    same(net(x), torch.from_numpy(expected))


def test_the_lowest_highway_lstm_layer_is_a_plain_lstm(same: Same) -> None:
    """Without a layer below, PyTorch's LSTM with the same weights gives the same states."""
    layer = HighwayLstmLayer(3, 4, lowest=True).double()
    lstm = nn.LSTM(3, 4, batch_first=True).double()

    def i_f_g_o(x: Tensor) -> Tensor:
        i, f, o, g = x.chunk(4)
        return torch.cat([i, f, g, o])

    with torch.no_grad():
        lstm.weight_ih_l0.copy_(i_f_g_o(layer.read.weight))
        lstm.weight_hh_l0.copy_(i_f_g_o(layer.recur.weight))
        lstm.bias_ih_l0.copy_(i_f_g_o(layer.read.bias))
        lstm.bias_hh_l0.zero_()
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    same(layer(x)[0], lstm(x)[0])


def test_carried_shares_of_a_new_highway_lstm_sum_to_one() -> None:
    """With the default biases, f and d, the shares of the carried cells, sum to one."""
    layer = HighwayLstmLayer(3, 4, lowest=False)
    f, d = torch.sigmoid(layer.read.bias[4:8]), torch.sigmoid(layer.depth_gate.map.bias)
    torch.testing.assert_close(f + d, torch.ones(4))


NETS = [
    (Rhn, RhnConfig(inputs=(4, 3), classes=4, width=8, depth=2)),
    (HighwayLstm, HighwayLstmConfig(inputs=(4, 3), classes=4, width=8, depth=2)),
]


@pytest.mark.parametrize(("net", "config"), NETS)
def test_a_recurrent_network_can_be_trained(net: Any, config: Any) -> None:
    """A few steps reduce the loss, and every parameter has a gradient."""
    network = net(config)
    losses = losses_in_training(network, torch.randn(4, 4, 3), torch.arange(4))
    assert losses[-1] < losses[0] / 2
    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())


@pytest.mark.parametrize(("net", "config"), NETS)
def test_an_image_is_read_line_by_line(net: Any, config: Any, same: Same) -> None:
    """An image of one channel gives the logits of the sequence of its lines."""
    sequence = net(config).eval()
    image = net(config.for_data((1, 4, 3), 4)).eval()
    image.load_state_dict(sequence.state_dict())
    x = torch.randn(2, 4, 3)
    same(image(x.unsqueeze(1)), sequence(x))


@pytest.mark.parametrize(("net", "config"), NETS)
def test_logits_depend_on_the_order_of_steps(net: Any, config: Any) -> None:
    """They depend on the first step too."""
    network = net(config).eval()
    x = torch.randn(2, 4, 3)
    other = torch.cat([x[:, :1] + 1, x[:, 1:]], dim=1)
    assert (network(x) - network(other)).abs().max() > 1e-4
    assert (network(x) - network(x.flip(1))).abs().max() > 1e-4


@pytest.mark.parametrize(("net", "config"), NETS)
def test_a_recurrent_network_exports_with_any_batch(net: Any, config: Any, same: Same) -> None:
    """A graph traced with two rows gives the network's result for five."""
    network = net(config).eval()
    graph = torch.export.export(
        network, (torch.randn(2, 4, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    x = torch.randn(5, 4, 3)
    same(graph.module()(x), network(x))


@pytest.mark.parametrize("config", [RhnConfig, HighwayLstmConfig])
@pytest.mark.parametrize("wrong", [{"width": 0}, {"depth": 0}, {"inputs": (5,)}, {"classes": 0}])
def test_invalid_settings_are_refused(config: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}: expected"):
        config(**{"inputs": (5, 3), "classes": 4, **wrong})


def test_an_unknown_carry_is_refused() -> None:
    with pytest.raises(ConfigError, match="carry: expected one of coupled, independent, got 'loose'"):
        RhnConfig(inputs=(5, 3), classes=4, carry="loose")  # type: ignore[arg-type]


def test_layers_refuse_wrong_shapes() -> None:
    """A wrong size, a missing axis, no time steps, or a missing second input is a ShapeError."""
    rhn = RecurrentHighway(3, 4, 2)
    for shape in [(2, 5, 4), (2, 3), (2, 0, 3)]:
        with pytest.raises(ShapeError, match="RecurrentHighway"):
            rhn(torch.zeros(shape))
    with pytest.raises(ShapeError, match="expected 4 values"):
        rhn(torch.zeros(2, 5, 3), torch.zeros(2, 5))
    with pytest.raises(ShapeError, match="expected an input besides the state, got none"):
        RecurrentHighwayStep(3, 4)(torch.zeros(2, 4))
    with pytest.raises(ShapeError, match="expected no input besides the state"):
        RecurrentHighwayStep(0, 4)(torch.zeros(2, 4), torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="expected the cells of a layer below, got none"):
        HighwayLstmLayer(3, 4, lowest=False)(torch.zeros(2, 5, 3))
    with pytest.raises(ShapeError, match="expected no cells of a layer below"):
        HighwayLstmLayer(3, 4, lowest=True)(torch.zeros(2, 5, 3), torch.zeros(2, 5, 4))
    with pytest.raises(ShapeError, match="HighwayLstmLayer"):
        HighwayLstmLayer(3, 4, lowest=False)(torch.zeros(2, 5, 3), torch.zeros(2, 5, 5))


def test_a_layer_without_depth_is_refused() -> None:
    """A recurrent highway layer needs at least one highway step."""
    with pytest.raises(ConfigError, match="depth: expected 1 or more, got 0"):
        RecurrentHighway(3, 4, 0)
