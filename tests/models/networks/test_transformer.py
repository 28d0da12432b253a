"""Attention, residual and highway joins, and the Transformer."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.network_training import expect_glorot, expect_he, losses_in_training
from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.gate import record_gates
from turnpike.models.networks.base import parameter_count
from turnpike.models.networks.transformer import (
    EncoderLayer,
    HighwayJoin,
    MultiHeadAttention,
    ResidualJoin,
    SinusoidalPositions,
    Transformer,
    TransformerConfig,
)

Same = Callable[[Tensor, Tensor], None]


def small(**changes: object) -> TransformerConfig:
    settings = {"inputs": (6, 3), "classes": 4, "width": 8, "heads": 2, "feedforward": 10, **changes}
    return TransformerConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [1, 7, 8])
def test_positions_follow_the_formula(width: int, same: Same) -> None:
    """Even columns are sines and odd ones cosines of t / 10000^(2i/width), also for an odd width."""
    time = 2500
    got = SinusoidalPositions(width)(torch.zeros(2, time, width, dtype=torch.float64))
    for t in (0, 1, 2, 17, time - 1):
        for column in range(width):
            angle = t / 10000 ** ((column - column % 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert got[1, t, column].item() == pytest.approx(expected, abs=1e-11)
    same(got[0], got[1])


def test_positions_are_added_without_state(same: Same) -> None:
    """The result is the input plus the positions, and the module has no state to save."""
    positions = SinusoidalPositions(6)
    x = torch.randn(2, 5, 6)
    same(positions(x) - positions(torch.zeros_like(x)), x)
    assert not positions.state_dict()


def test_half_precision_distinguishes_distant_positions() -> None:
    """Above 2048, where half precision cannot represent all integers, neighbors still differ."""
    half = SinusoidalPositions(4)(torch.zeros(1, 3002, 4, dtype=torch.float16))
    exact = SinusoidalPositions(4)(torch.zeros(1, 3002, 4, dtype=torch.float64))
    torch.testing.assert_close(half.double(), exact, rtol=0, atol=2e-3)


def attention_by_loops(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    """One sequence (time, width), head by head and position by position."""
    time, width = x.shape
    size = width // attention.heads
    weight, bias = attention.queries_keys_values.weight, attention.queries_keys_values.bias
    together = torch.zeros_like(x)
    for head in range(attention.heads):
        query, key, value = (
            slice(part * width + head * size, part * width + (head + 1) * size) for part in range(3)
        )
        for t in range(time):
            q = weight[query] @ x[t] + bias[query]
            scores = [float(q @ (weight[key] @ x[s] + bias[key])) / math.sqrt(size) for s in range(time)]
            total = sum(math.exp(score) for score in scores)
            for s in range(time):
                share = math.exp(scores[s]) / total
                together[t, head * size : (head + 1) * size] += share * (weight[value] @ x[s] + bias[value])
    return together @ attention.output.weight.T + attention.output.bias


@torch.no_grad()
def test_attention_equals_the_equation(same: Same) -> None:
    """Each head averages its values by a softmax of scaled dot products, for any leading axes."""
    attention = MultiHeadAttention(6, 3).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 2, 5, 6, dtype=torch.float64)
    expected = torch.stack([attention_by_loops(attention, row) for row in x.flatten(0, 1)])
    same(attention(x).flatten(0, 1), expected)


@torch.no_grad()
def test_attention_ignores_order_until_positions_are_added(same: Same) -> None:
    """Reversing a sequence reverses the output, unless positions are added."""
    attention, positions = MultiHeadAttention(6, 2).double(), SinusoidalPositions(6)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    same(attention(x.flip(1)), attention(x).flip(1))
    assert not torch.allclose(attention(positions(x.flip(1))), attention(positions(x)).flip(1))


def test_attention_dropout_is_active_only_in_training(same: Same) -> None:
    """Dropout of the attention weights changes the output in training mode only."""
    attention = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(2, 5, 8)
    assert not torch.allclose(attention(x), attention(x))
    attention.eval()
    same(attention(x), attention(x))


@pytest.mark.parametrize("carry", ["coupled", "independent"])
@torch.no_grad()
def test_highway_join_equals_the_equation(carry: str, same: Same) -> None:
    """y = norm(h T(x) + x C(x)), where the gates read the sublayer's input alone."""
    join = HighwayJoin(5, carry=carry).double()  # type: ignore[arg-type]
    for parameter in join.parameters():
        nn.init.normal_(parameter)
    h, x = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = torch.empty_like(h)
    for row in range(3):
        t = 1 / (1 + torch.exp(-(join.gate.weight @ x[row] + join.gate.bias)))
        c = 1 - t
        if join.carry_gate is not None:
            c = 1 / (1 + torch.exp(-(join.carry_gate.weight @ x[row] + join.carry_gate.bias)))
        mixed = h[row] * t + x[row] * c
        spread = ((mixed - mixed.mean()) ** 2).mean() + join.norm.eps
        expected[row] = (mixed - mixed.mean()) / spread.sqrt() * join.norm.weight + join.norm.bias
    same(join(h, x), expected)


@torch.no_grad()
def test_a_closed_join_carries_its_input(same: Same) -> None:
    """With a closed gate, the result is the normalized input."""
    join = HighwayJoin(5, gate_bias=-1000.0)
    h, x = torch.randn(2, 3, 5)
    same(join(h, x), join.norm(x))


@pytest.mark.parametrize(("join", "kind"), [("residual", ResidualJoin), ("highway", HighwayJoin)])
@torch.no_grad()
def test_encoder_layer_is_two_joined_sublayers(join: str, kind: type, same: Same) -> None:
    """Attention joined with the input, then the feed-forward pair joined with that."""
    layer = EncoderLayer(6, 2, 9, join=join).double()  # type: ignore[arg-type]
    assert isinstance(layer.attention_join, kind)
    assert isinstance(layer.feedforward_join, kind)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    a = torch.stack([attention_by_loops(layer.attention, row) for row in x])
    a = layer.attention_join.norm(a + x) if join == "residual" else layer.attention_join(a, x)
    w1, _, _, w2 = layer.feedforward
    h = torch.einsum("oi,bti->bto", w1.weight, a) + w1.bias
    h = torch.einsum("oi,bti->bto", w2.weight, h * (h > 0)) + w2.bias
    expected = layer.feedforward_join.norm(h + a) if join == "residual" else layer.feedforward_join(h, a)
    same(layer(x), expected)


@torch.no_grad()
def test_transformer_equals_its_parts_in_order(same: Same) -> None:
    """Projection, scaling by sqrt(width), positions, encoder layers, mean over time, linear output."""
    net = Transformer(small(scaling="none")).double().eval()
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    h = torch.stack([net.project(x[:, t]) * 8**0.5 for t in range(6)], dim=1)
    h = h + SinusoidalPositions(8)(torch.zeros_like(h))
    for layer in net.layers:
        h = layer(h)
    same(net(x), net.output(sum(h[:, t] for t in range(6)) / 6))


@torch.no_grad()
def test_projected_rows_have_the_scale_of_positions() -> None:
    """A projected and scaled row of standard normal numbers has a deviation near 1 for all sizes."""
    net = Transformer(small(inputs=(6, 50), width=256))
    x = net.project(torch.randn(200, 50)) * net.gain
    assert 0.9 < x.std().item() < 1.1


def test_a_new_encoder_layer_has_weights_after_glorot_and_he() -> None:
    """W1 after He, because of the relu behind it. All other maps and the gates after Glorot."""
    layer = EncoderLayer(100, 4, 160, carry="independent")
    expect_glorot(layer.attention.queries_keys_values.weight, inputs=100, units=300)
    expect_glorot(layer.attention.output.weight, inputs=100, units=100)
    expect_he(layer.feedforward[0].weight, inputs=100)
    expect_glorot(layer.feedforward[3].weight, inputs=160, units=100)
    for join in (layer.attention_join, layer.feedforward_join):
        expect_glorot(join.gate.weight, inputs=100, units=100)
        expect_glorot(join.carry_gate.weight, inputs=100, units=100)


def test_image_is_read_line_by_line() -> None:
    """A line of an image, with all its channels, is one time step."""
    net = Transformer(small(inputs=(2, 5, 4))).eval()
    assert net.project.in_features == 8
    assert net(torch.randn(3, 2, 5, 4)).shape == (3, 4)
    with pytest.raises(ShapeError, match=r"\[batch, 2, 5, 4\]"):
        net(torch.randn(3, 2, 6, 4))


def test_sequences_may_have_other_lengths() -> None:
    """The length may differ from the config's; the features may not."""
    net = Transformer(small()).eval()
    assert net(torch.randn(2, 11, 3)).shape == (2, 4)
    with pytest.raises(ShapeError, match=r"\[batch, \*, 3\]"):
        net(torch.randn(2, 6, 5))


@pytest.mark.parametrize("layer", [SinusoidalPositions(8), MultiHeadAttention(8, 2), EncoderLayer(8, 2, 4)])
def test_wrong_shapes_are_refused(layer: nn.Module) -> None:
    """A wrong width or a missing time axis is a ShapeError."""
    for shape in ((2, 3, 7), (8,)):
        with pytest.raises(ShapeError, match="expected"):
            layer(torch.zeros(shape))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("heads", 3),
        ("heads", 0),
        ("width", 0),
        ("layers", 0),
        ("feedforward", 0),
        ("join", "sum"),
        ("carry", "none"),
        ("dropout", 1.0),
        ("inputs", (5,)),
    ],
)
def test_invalid_settings_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{setting}:"):
        small(**{setting: value})


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="heads: expected a divisor of 8, got 3"):
        MultiHeadAttention(8, 3)


@pytest.mark.parametrize(("join", "gates"), [("residual", 0), ("highway", 4)])
def test_gates_are_recorded(join: str, gates: int) -> None:
    """A highway join has a gate and an output, two per layer in order of depth; a residual join has none."""
    net = Transformer(small(join=join, gate_bias=-5.0)).eval()
    with record_gates(net) as recordings:
        net(torch.randn(3, 6, 3))
    assert len(recordings) == gates
    if gates:
        assert list(recordings)[:2] == ["layers.0.attention_join", "layers.0.feedforward_join"]
    for recording in recordings.values():
        assert recording.transform_gates[0].shape == recording.outputs[0].shape == (3, 6, 8)
        assert recording.transform_gates[0].mean() < 0.1  # the bias says so


@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_carry_is_that_of_the_config(carry: str) -> None:
    """Depending on the config, every join has a carry gate or none."""
    net = Transformer(small(carry=carry, layers=3))
    joins = [module for module in net.modules() if isinstance(module, HighwayJoin)]
    assert len(joins) == 6
    assert all((join.carry_gate is not None) == (carry == "independent") for join in joins)


def test_widths_can_be_matched() -> None:
    """A residual network with a larger feed-forward has the parameters of the highway network, within 1 %."""
    highway = Transformer(small(width=32, feedforward=64))
    residual = Transformer(small(width=32, feedforward=64 + 32, join="residual"))
    assert parameter_count(residual) == pytest.approx(parameter_count(highway), rel=0.01)


@pytest.mark.parametrize("carry", ["coupled", "independent"])
@pytest.mark.parametrize("join", ["residual", "highway"])
def test_gradient_reaches_every_parameter(join: str, carry: str) -> None:
    net = Transformer(small(join=join, carry=carry))
    net(torch.randn(4, 6, 3)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_rows_of_a_batch_are_independent(same: Same) -> None:
    """In eval mode, rows do not influence each other."""
    net = Transformer(small()).eval()
    x = torch.randn(5, 6, 3)
    same(net(x), torch.cat([net(row.unsqueeze(0)) for row in x]))


@pytest.mark.parametrize("join", ["residual", "highway"])
def test_training_reduces_the_loss(join: str) -> None:
    """A few steps on a tiny batch halve the loss."""
    net = Transformer(small(join=join, dropout=0.0))
    x, labels = torch.randn(8, 6, 3), torch.arange(8) % 4
    losses = losses_in_training(net, x, labels, lr=0.01)
    assert losses[-1] < losses[0] / 2
