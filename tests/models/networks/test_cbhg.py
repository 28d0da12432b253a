"""The CBHG network of Tacotron: convolution bank, highway layers and a bidirectional GRU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.network_training import expect_glorot, expect_he, losses_in_training
from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.gate import record_gates
from turnpike.models.networks.cbhg import Cbhg, CbhgConfig, CbhgNet, ConvBank, NormedConv, PairMax

Same = Callable[[Tensor, Tensor], None]


def small(**changes: object) -> CbhgConfig:
    settings = {
        "inputs": (6, 3),
        "classes": 4,
        "bank": 4,
        "channels": 3,
        "projection": 5,
        "width": 7,
        **changes,
    }
    return CbhgConfig(**settings)  # type: ignore[arg-type]


def randomised(module: nn.Module) -> nn.Module:
    """The module in float64 and eval mode, with no parameter or statistic at zero or one."""
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn_like(buffer))
            if name.endswith("running_var"):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return module


def conv_by_loops(conv: NormedConv, x: Tensor) -> Tensor:
    """One sequence (time, inputs) -> (time, units), step by step, with zeros beyond the ends."""
    units, _, width = conv.convolve.weight.shape
    norm = conv.norm
    y = torch.zeros(len(x), units, dtype=x.dtype)
    for t in range(len(x)):
        for offset in range(width):
            at = t - (width - 1) // 2 + offset
            if 0 <= at < len(x):
                y[t] += conv.convolve.weight[:, :, offset] @ x[at]
        y[t] = (y[t] - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    return y


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("time", [1, 3, 9])
@torch.no_grad()
def test_convolution_keeps_the_length(width: int, time: int, same: Same) -> None:
    """For odd and even widths; even ones read one step further ahead."""
    conv = randomised(NormedConv(3, 4, width))
    x = torch.randn(2, 3, time, dtype=torch.float64)
    expected = torch.stack([conv_by_loops(conv, row.T) for row in x])
    same(conv(x).transpose(1, 2), expected)


def test_convolution_before_batch_norm_has_no_bias() -> None:
    """Batch norm would subtract it again."""
    assert NormedConv(3, 4, 2).convolve.bias is None


@torch.no_grad()
def test_bank_concatenates_every_width(same: Same) -> None:
    """Widths 1 to K follow each other, after a relu, each as long as the input."""
    bank = randomised(ConvBank(3, 5, 2))
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    got = bank(x)
    assert got.shape == (2, 5 * 2, 4)
    assert len(bank.convs) == 5
    for place, conv in enumerate(bank.convs):
        assert conv.convolve.kernel_size == (place + 1,)
        for row in range(2):
            expected = conv_by_loops(conv, x[row].T).clamp(min=0)
            same(got[row, 2 * place : 2 * place + 2].T, expected)


@pytest.mark.parametrize("time", [1, 2, 6])
def test_pair_max_equals_a_loop(time: int, same: Same) -> None:
    """Each step is the maximum of itself and the next, negative or not; the last has no next."""
    x = torch.randn(2, 3, time) - 2
    expected = x.clone()
    for t in range(time - 1):
        for row in range(2):
            for unit in range(3):
                expected[row, unit, t] = max(float(x[row, unit, t]), float(x[row, unit, t + 1]))
    same(PairMax()(x), expected)


def test_a_new_cbhg_has_weights_after_he_and_glorot() -> None:
    """Convolutions after He, the map before the highway layers after Glorot, highway layers as scaled."""
    cbhg = Cbhg(60, bank=2, channels=50, projection=70, width=90, highways=1)
    expect_he(cbhg.projections[0].convolve.weight, inputs=100 * 3)
    assert cbhg.resize is not None
    expect_glorot(cbhg.resize.weight, inputs=60, units=90)
    expect_he(cbhg.highways[0].normal_layer.weight, inputs=90)


def gru_by_loops(gru: nn.GRU, x: Tensor) -> Tensor:
    """One sequence (time, width) -> (time, 2 * width), forwards and backwards."""
    width = gru.hidden_size
    y = torch.zeros(len(x), 2 * width, dtype=x.dtype)
    for way, suffix in enumerate(("l0", "l0_reverse")):
        w, u = getattr(gru, f"weight_ih_{suffix}"), getattr(gru, f"weight_hh_{suffix}")
        b, d = getattr(gru, f"bias_ih_{suffix}"), getattr(gru, f"bias_hh_{suffix}")
        h = torch.zeros(width, dtype=x.dtype)
        for t in range(len(x)) if way == 0 else reversed(range(len(x))):
            x_r, x_z, x_n = (w @ x[t] + b).reshape(3, width)
            h_r, h_z, h_n = (u @ h + d).reshape(3, width)
            r, z = 1 / (1 + torch.exp(-x_r - h_r)), 1 / (1 + torch.exp(-x_z - h_z))
            h = (1 - z) * torch.tanh(x_n + r * h_n) + z * h
            y[t, way * width : (way + 1) * width] = h
    return y


@pytest.mark.parametrize("width", [3, 5])
@torch.no_grad()
def test_cbhg_equals_the_equation(width: int, same: Same) -> None:
    """Bank, pool, projections, sum with the input, highways and GRU, each step by step.

    The map before the highway layers is there only where the sizes differ.
    """
    cbhg = randomised(Cbhg(3, bank=3, channels=2, projection=4, width=width, highways=2))
    assert isinstance(cbhg, Cbhg)
    assert (cbhg.resize is None) == (width == 3)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    expected = []
    for row in x:
        p = torch.cat([conv_by_loops(conv, row).clamp(min=0) for conv in cbhg.bank.convs], dim=1)
        p = torch.stack([p[t : t + 2].amax(0) for t in range(5)])
        p = conv_by_loops(cbhg.projections[0], p).clamp(min=0)
        h = row + conv_by_loops(cbhg.projections[2], p)
        if cbhg.resize is not None:
            h = torch.stack([cbhg.resize.weight @ step + cbhg.resize.bias for step in h])
        for highway in cbhg.highways:
            t = 1 / (1 + torch.exp(-(h @ highway.gate.weight.T + highway.gate.bias)))
            transformed = (h @ highway.normal_layer.weight.T + highway.normal_layer.bias).clamp(min=0)
            h = transformed * t + h * (1 - t)
        expected.append(gru_by_loops(cbhg.gru, h))
    got = cbhg(x)
    assert got.shape == (2, 5, 2 * width)
    same(got, torch.stack(expected))


@torch.no_grad()
def test_network_averages_over_time(same: Same) -> None:
    """The logits are a linear map of the features' mean over time."""
    net = randomised(CbhgNet(small(scaling="none")))
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    features = net.cbhg(x)
    same(net(x), net.output(sum(features[:, t] for t in range(6)) / 6))


def test_image_is_read_line_by_line(same: Same) -> None:
    """A line of an image, with all its channels, is one time step."""
    net = CbhgNet(small(inputs=(2, 5, 4))).eval()
    x = torch.randn(3, 2, 5, 4)
    lines = torch.stack([x[:, :, line].reshape(3, 8) for line in range(5)], dim=1)
    same(net(x), net.output(net.cbhg(lines).mean(1)))


def test_sizes_are_those_of_the_config() -> None:
    cbhg = CbhgNet(small(highways=2)).cbhg
    assert [conv.convolve.weight.shape for conv in cbhg.bank.convs] == [(3, 3, k) for k in (1, 2, 3, 4)]
    assert cbhg.projections[0].convolve.weight.shape == (5, 4 * 3, 3)
    assert cbhg.projections[2].convolve.weight.shape == (3, 5, 3)
    assert len(cbhg.highways) == 2
    assert cbhg.gru.hidden_size == 7


def test_rows_of_another_shape_are_refused() -> None:
    """A sequence may have any length, an image has a fixed number of lines; features and axes are fixed."""
    net = CbhgNet(small()).eval()
    assert net(torch.randn(2, 7, 3)).shape == net(torch.randn(2, 1, 3)).shape
    with pytest.raises(ShapeError, match=r"\[batch, \*, 3\]"):
        net(torch.randn(2, 7, 4))
    with pytest.raises(ShapeError, match=r"\[batch, 1, 6, 3\]"):
        CbhgNet(small(inputs=(1, 6, 3))).eval()(torch.randn(2, 1, 7, 3))
    assert net.cbhg(torch.randn(2, 11, 3)).shape == (2, 11, 14)
    for shape in ((2, 6, 4), (6, 3), (1, 2, 6, 3)):
        with pytest.raises(ShapeError, match="Cbhg: expected"):
            net.cbhg(torch.zeros(shape))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("bank", 0),
        ("channels", 0),
        ("projection", 0),
        ("width", 0),
        ("highways", -1),
        ("dropout", 1.0),
        ("inputs", (5,)),
    ],
)
def test_invalid_settings_are_refused(setting: str, value: object) -> None:
    """The config and the layer name the wrong setting."""
    with pytest.raises(ConfigError, match=f"{setting}:"):
        small(**{setting: value})
    if setting not in ("dropout", "inputs"):
        with pytest.raises(ConfigError, match=f"{setting}:"):
            Cbhg(3, **{setting: value})  # type: ignore[arg-type]


def test_gates_are_recorded() -> None:
    """Four highway layers have four gates, one value per step and unit, as closed as their bias says."""
    net = CbhgNet(small(gate_bias=-9.0)).eval()
    with record_gates(net) as recordings:
        net(torch.randn(2, 6, 3))
    assert len(recordings) == 4
    for recording in recordings.values():
        assert recording.transform_gates[0].shape == recording.outputs[0].shape == (2, 6, 7)
        assert recording.transform_gates[0].mean() < 0.1


def test_gradient_reaches_every_parameter() -> None:
    net = CbhgNet(small())
    net(torch.randn(8, 6, 3)).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_rows_of_a_batch_are_independent(same: Same) -> None:
    """In eval mode, rows do not influence each other, not even by normalization."""
    net = CbhgNet(small())
    for _ in range(3):
        net(torch.randn(8, 6, 3) * 2 + 1)  # gives the batch norms their running statistics
    net.eval()
    x = torch.randn(5, 6, 3)
    same(net(x), torch.cat([net(row.unsqueeze(0)) for row in x]))


def test_training_reduces_the_loss() -> None:
    """A few steps on a tiny batch halve the loss."""
    net = CbhgNet(small())
    x, labels = torch.randn(8, 6, 3), torch.arange(8) % 4
    losses = losses_in_training(net, x, labels)
    assert losses[-1] < losses[0] / 2
