"""Gates, the gated join, and the recording of gates."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.gate import (
    Carry,
    ConvGate1d,
    ConvGate2d,
    DenseGate,
    GatedJoin,
    record_gates,
    set_gate_bias,
)
from turnpike.models.layers.highway import ConvHighwayLayer, HighwayLayer
from turnpike.models.networks.recurrent import Rhn, RhnConfig

Same = Callable[[Tensor, Tensor], None]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def join_of(gate_weight: float, gate_bias: float, carry: Carry, carry_weight: float = 0.0) -> GatedJoin:
    """A join of one unit in float64, with the given weights of its gates."""
    join = GatedJoin(lambda: DenseGate(1, 1), gate_bias=gate_bias, carry=carry).double()
    nn.init.constant_(join.gate.weight, gate_weight)
    if join.carry_gate is not None:
        nn.init.constant_(join.carry_gate.weight, carry_weight)
    return join


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def test_gates_are_sigmoids_of_their_maps(same: Same) -> None:
    """T is the sigmoid of an ordinary layer with the same weights."""
    dense = DenseGate(3, 2)
    x = torch.randn(4, 3)
    same(dense(x), 1 / (1 + torch.exp(-F.linear(x, dense.weight, dense.bias))))
    line = ConvGate1d(3, 2, 3, padding=1)
    x = torch.randn(4, 3, 5)
    same(line(x), 1 / (1 + torch.exp(-F.conv1d(x, line.weight, line.bias, padding=1))))
    plane = ConvGate2d(3, 2, 3, padding=1)
    x = torch.randn(4, 3, 5, 6)
    same(plane(x), 1 / (1 + torch.exp(-F.conv2d(x, plane.weight, plane.bias, padding=1))))


def test_weights_are_pytorchs_own_unless_scaled() -> None:
    """After the same seed, a gate by itself has the same weights."""
    torch.manual_seed(3)
    expected = DenseGate(5, 4).weight
    for scaled_init, own in (({}, True), ({"scaled_init": True}, False)):
        torch.manual_seed(3)
        join = GatedJoin(lambda: DenseGate(5, 4), **scaled_init)
        assert torch.equal(join.gate.weight, expected) == own


def test_a_coupled_join_worked_out_by_hand() -> None:
    # t = sigmoid(2 * 0.5 - 1) = sigmoid(0) = 1/2, y = 3 * 1/2 + 0.5 * 1/2
    assert join_of(2.0, -1.0, "coupled").join(number(3.0), number(0.5)).item() == pytest.approx(1.75)
    # t = sigmoid(ln 3) = 3/4, y = 8 * 3/4 + 4 * 1/4
    assert join_of(0.0, math.log(3), "coupled").join(number(8.0), number(4.0)).item() == pytest.approx(7.0)


def test_an_independent_join_worked_out_by_hand() -> None:
    """C is a gate with its own weights; its bias starts at the opposite of T's."""
    join = join_of(2.0, -1.0, "independent", carry_weight=-4.0)
    # t = sigmoid(2 * 0.5 - 1) = 1/2, c = sigmoid(-4 * 0.5 + 1) = sigmoid(-1)
    assert join.join(number(3.0), number(0.5)).item() == pytest.approx(1.5 + 0.5 * sigmoid(-1), rel=1e-12)


@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_gates_may_read_another_input_than_x(carry: Carry) -> None:
    """With `gate_input`, both gates read it, and x is still what is carried."""
    join = join_of(1.0, 0.0, carry, carry_weight=-1.0)
    t = sigmoid(0.7)  # and sigmoid(-0.7) = 1 - t: both kinds agree here
    got = join.join(number(3.0), number(-2.0), gate_input=number(0.7))
    assert got.item() == pytest.approx(3 * t - 2 * (1 - t), rel=1e-12)


def test_an_independent_carry_has_its_own_gate() -> None:
    """One gate is created for a coupled carry, two for an independent one; the default bias is -2."""
    gates: list[DenseGate] = []

    def make() -> DenseGate:
        gates.append(DenseGate(2, 2))
        return gates[-1]

    coupled = GatedJoin(make)
    assert (coupled.gate, coupled.carry_gate, len(gates)) == (gates[0], None, 1)
    assert coupled.gate.bias.tolist() == [-2.0, -2.0]
    independent = GatedJoin(make, carry="independent")
    assert (independent.gate, independent.carry_gate, len(gates)) == (gates[1], gates[2], 3)


@pytest.mark.parametrize("bias", [-2.0, 0.0, 1.5])
def test_gate_bias_sets_the_biases_of_t_and_c(bias: float) -> None:
    """C's bias is the opposite of T's, so that C = 1 - T while the weights are zero."""
    join = GatedJoin(lambda: DenseGate(3, 4), gate_bias=bias, carry="independent")
    assert join.gate.bias.tolist() == [bias] * 4
    assert join.carry_gate is not None
    assert join.carry_gate.bias.tolist() == [-bias] * 4


def test_set_gate_bias_none_keeps_pytorchs_biases() -> None:
    """With a bias of None, both gates keep the biases that nn.Linear draws from the same generator."""
    torch.manual_seed(5)
    expected = [nn.Linear(3, 4).bias.tolist() for _ in range(2)]
    torch.manual_seed(5)
    join = GatedJoin(lambda: DenseGate(3, 4), gate_bias=None, carry="independent")
    assert join.carry_gate is not None
    assert [join.gate.bias.tolist(), join.carry_gate.bias.tolist()] == expected
    without = DenseGate(3, 4, bias=False)
    set_gate_bias(without, -2.0)
    assert without.bias is None


@pytest.mark.parametrize("scaled", [False, True])
def test_gate_bias_none_keeps_pytorchs_bias(scaled: bool) -> None:
    """With a bias of None, a gate has the bias of a plain nn.Linear, with or without scaled weights."""
    torch.manual_seed(3)
    own = torch.nn.Linear(6, 4).bias
    torch.manual_seed(3)
    join = GatedJoin(lambda: DenseGate(6, 4), gate_bias=None, scaled_init=scaled)
    assert torch.equal(join.gate.bias, own)


def test_scaled_gates_are_initialized_after_glorot() -> None:
    """Both gates have a variance of 2 / (inputs + units), not PyTorch's 1 / (3 inputs)."""
    join = GatedJoin(lambda: DenseGate(300, 200), carry="independent", scaled_init=True)
    for gate in (join.gate, join.carry_gate):
        assert gate is not None
        assert gate.weight.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.02)


def test_an_unknown_carry_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^carry: expected one of coupled, independent, got 'both'$"):
        GatedJoin(lambda: DenseGate(1, 1), carry="both")  # type: ignore[arg-type]


def test_recordings_have_t_and_y_of_each_layer(same: Same) -> None:
    """Layers are recorded in order of depth by name, with T and y of the call, without gradients."""
    net = nn.Sequential(HighwayLayer(4), nn.Tanh(), HighwayLayer(4, carry="independent"))
    net.add_module("deep", nn.ModuleDict({"inner": HighwayLayer(4, gate_bias=1.0)}))
    x = torch.randn(3, 4)
    with record_gates(net) as recordings:
        first = net[0](x)
        second = net[2](torch.tanh(first))
        third = net.deep["inner"](second)
    assert list(recordings) == ["0", "2", "deep.inner"]
    for recording, layer, read, y in zip(
        recordings.values(),
        (net[0], net[2], net.deep["inner"]),
        (x, torch.tanh(first), second),
        (first, second, third),
        strict=True,
    ):
        assert len(recording.transform_gates) == len(recording.outputs) == 1
        same(recording.transform_gates[0], torch.sigmoid(F.linear(read, layer.gate.weight, layer.gate.bias)))
        assert torch.equal(recording.outputs[0], y)
        assert not recording.transform_gates[0].requires_grad
        assert not recording.outputs[0].requires_grad


def test_every_call_is_recorded_in_order(same: Same) -> None:
    """A layer that is called at every time step has one T and one y per time step."""
    net = Rhn(RhnConfig(inputs=(5, 3), classes=2, width=4, depth=2))
    x = torch.randn(2, 5, 3)
    with record_gates(net) as recordings:
        net(x)
    assert list(recordings) == ["layer.steps.0", "layer.steps.1"]
    lower, upper = recordings.values()
    assert [len(lower.transform_gates), len(upper.transform_gates)] == [5, 5]
    states = net.layer(x)
    same(torch.stack(upper.outputs, dim=1), states)
    for time in range(5):
        before = states[:, time - 1] if time else torch.zeros(2, 4)
        same(lower.transform_gates[time], net.layer.steps[0].gate(torch.cat([x[:, time], before], dim=1)))
        same(upper.transform_gates[time], net.layer.steps[1].gate(lower.outputs[time]))


@pytest.mark.parametrize("fails", [False, True])
def test_recording_ends_with_its_block(fails: bool) -> None:
    """The hooks are removed when the block ends, also by an error, and the recording stays unchanged."""
    net = nn.Sequential(HighwayLayer(2), ConvHighwayLayer(2, dims=1))
    x = torch.randn(3, 2)
    with suppress(ShapeError), record_gates(net) as recordings:
        net[0](x)
        if fails:
            net[0](x[:, :1])
    net[0](x)
    assert len(recordings["0"].transform_gates) == len(recordings["0"].outputs) == 1
    assert recordings["1"].transform_gates == []
    assert all(not module._forward_hooks for module in net.modules())


def test_a_network_without_gates_has_no_recordings() -> None:
    """Without a gated layer there is no recording; a gated layer itself has the name ''."""
    with record_gates(nn.Linear(2, 2)) as recordings:
        pass
    assert recordings == {}
    with record_gates(HighwayLayer(2)) as recordings:
        pass
    assert list(recordings) == [""]
