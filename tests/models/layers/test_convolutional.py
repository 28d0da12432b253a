"""Convolutional layers against loops over places, maps and the taps of their kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.errors import ConfigError, ShapeError
from models.layers.convolutional import ConvHighwayLayer, convolution
from models.layers.gate import Carry
from models.layers.transform import PlainLayer, ResidualLayer

Same = Callable[[Tensor, Tensor], None]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def sizes_of(dims: int) -> tuple[int, ...]:
    return (5, 4)[:dims]


def convolved(maps: nn.Module | None, x: Numbers) -> Numbers:
    """W * x + b of one row (channels, ...), what lies outside of it being zero."""
    assert maps is not None
    w, b = maps.weight.detach().numpy(), maps.bias.detach().numpy()
    kernel = w.shape[2:]
    y = np.zeros((len(w), *x.shape[1:]))
    for place in itertools.product(*map(range, x.shape[1:])):
        for unit in range(len(w)):
            y[(unit, *place)] = b[unit]
            for tap in itertools.product(*map(range, kernel)):
                seen = tuple(p + k - size // 2 for p, k, size in zip(place, tap, kernel, strict=True))
                if all(0 <= s < size for s, size in zip(seen, x.shape[1:], strict=True)):
                    for channel in range(len(x)):
                        y[(unit, *place)] += w[(unit, channel, *tap)] * x[(channel, *seen)]
    return y


def sigmoid(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_a_convolutional_highway_is_its_equation(dims: int, kernel: int, carry: Carry, same: Same) -> None:
    """H, T and C at a place all come from the same neighbourhood of it, zeros beyond the edges."""
    layer = ConvHighwayLayer(2, kernel=kernel, dims=dims, gate_bias=0.5, carry=carry).double()
    x = torch.randn(2, 2, *sizes_of(dims), dtype=torch.float64)
    expected = []
    for row in x.numpy():
        h = np.maximum(convolved(layer.normal_layer, row), 0)
        t = sigmoid(convolved(layer.gate, row))
        c = 1 - t if carry == "coupled" else sigmoid(convolved(layer.carry_gate, row))
        expected.append(h * t + row * c)
    same(layer(x), torch.from_numpy(np.stack(expected)))


@pytest.mark.parametrize("dims", [1, 2])
def test_h_and_t_have_one_kernel(dims: int) -> None:
    """The gate has the kernel size of the transform, and the default layer the two maps' names alone."""
    layer = ConvHighwayLayer(3, kernel=5, dims=dims)
    assert layer.gate.weight.shape == layer.normal_layer.weight.shape == (3, 3, *[5] * dims)
    names = {"normal_layer.weight", "normal_layer.bias", "gate.weight", "gate.bias"}
    assert layer.state_dict().keys() == names
    default = ConvHighwayLayer(3)
    assert default.gate.weight.shape == (3, 3, 3, 3)
    assert default.gate.bias.tolist() == [-2.0] * 3


def test_a_line_of_one_channel_worked_out_by_hand() -> None:
    """A kernel that adds both neighbours finds zeros beyond the ends."""
    layer = ConvHighwayLayer(1, dims=1).double()
    with torch.no_grad():
        layer.normal_layer.weight.copy_(torch.tensor([[[1.0, 0.0, 10.0]]]))
        layer.normal_layer.bias.zero_()
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(math.log(3))
    # h = (0 + 10 * 2, 1 + 10 * 3, 2 + 0), t = 3/4: y = 3/4 h + 1/4 x
    y = layer(torch.tensor([[[1.0, 2.0, 3.0]]], dtype=torch.float64))
    assert y.flatten().tolist() == pytest.approx([15.25, 23.75, 2.25], rel=1e-12)


@pytest.mark.parametrize("dims", [1, 2])
def test_plain_and_residual_layers_are_made_of_the_same_maps(dims: int, same: Same) -> None:
    """y = relu(W * x + b), which may change the channels, and y = x + W * relu(x) + b."""
    x = torch.randn(1, 2, *sizes_of(dims), dtype=torch.float64)
    plain = PlainLayer(2, 3, medium=convolution(dims)).double()
    same(plain(x)[0], torch.from_numpy(np.maximum(convolved(plain.normal_layer, x[0].numpy()), 0)))
    residual = ResidualLayer(2, medium=convolution(dims)).double()
    h = convolved(residual.normal_layer, np.maximum(x[0].numpy(), 0))
    same(residual(x)[0], x[0] + torch.from_numpy(h))


@pytest.mark.parametrize("dims", [1, 2])
def test_batch_norm_is_over_rows_and_places(dims: int, same: Same) -> None:
    """Each channel of Wh * x + bh is standardised over everything but channels."""
    layer = ConvHighwayLayer(2, dims=dims, batch_norm=True).double()
    x = torch.randn(3, 2, *sizes_of(dims), dtype=torch.float64)
    z = layer.normal_layer(x).transpose(0, 1).flatten(1)
    z = (z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, correction=0, keepdim=True) + 1e-5)
    h = torch.relu(z).reshape(2, 3, *sizes_of(dims)).transpose(0, 1)
    t = layer.gate(x)
    same(layer(x), h * t + x * (1 - t))


def test_settings_reach_the_layer() -> None:
    """Bias, activation, dropout and init are those that were asked for."""
    layer = ConvHighwayLayer(2, gate_bias=-7.0, activation="maxout(2)", dropout=0.25, init="scaled")
    assert layer.gate.bias.tolist() == [-7.0] * 2
    assert layer.normal_layer.weight.shape == (4, 2, 3, 3)
    assert layer.normal_layer.bias.tolist() == [0.0] * 4
    assert layer(torch.randn(3, 2, 4, 4)).shape == (3, 2, 4, 4)
    assert layer.dropout is not None
    assert layer.dropout.p == 0.25


@pytest.mark.parametrize("kernel", [-1, 0, 2, 4])
@pytest.mark.parametrize("dims", [1, 2])
def test_kernels_that_cannot_be_centred_are_refused(dims: int, kernel: int) -> None:
    """The message names the kernel and its size."""
    with pytest.raises(
        ConfigError, match=f"^kernel: expected an odd size, which can be centred, got {kernel}$"
    ):
        ConvHighwayLayer(2, kernel=kernel, dims=dims)


@pytest.mark.parametrize("dims", [0, 3])
def test_other_dimensions_are_refused(dims: int) -> None:
    """There are convolutions over a line and over a plane."""
    with pytest.raises(ConfigError, match=f"^dims: expected 1 or 2, got {dims}$"):
        convolution(dims)


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (1, (3, 2)),
        (1, (3, 5, 2)),
        (1, (3, 2, 5, 5)),
        (2, (2,)),
        (2, (3, 2, 5)),
        (2, (3, 5, 5, 2)),
        (2, (1, 3, 2, 5, 5)),
    ],
)
@pytest.mark.parametrize("kind", [PlainLayer, ResidualLayer, ConvHighwayLayer])
def test_rows_of_another_shape_are_refused(kind: type[nn.Module], dims: int, shape: tuple[int, ...]) -> None:
    """Channels stand on axis 1 of 3 or 4 axes, and PyTorch's own rows without a batch are not taken."""
    layer = ConvHighwayLayer(2, dims=dims) if kind is ConvHighwayLayer else kind(2, medium=convolution(dims))
    sizes = ", ".join(map(str, shape))
    with pytest.raises(ShapeError) as caught:
        layer(torch.zeros(shape))
    assert str(caught.value) == (
        f"{kind.__name__}: expected 2 values along axis 1 of {dims + 2} axes, got shape [{sizes}]"
    )
