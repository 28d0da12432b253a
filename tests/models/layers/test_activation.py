"""Activations and weight initialization."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from turnpike.models.errors import ConfigError
from turnpike.models.layers.activation import Maxout, initialize_weights, make_activation, maxout_pieces
from turnpike.models.layers.highway import convolution_maps
from turnpike.models.layers.transform import PlainLayer

Same = Callable[[Tensor, Tensor], None]


def test_maxout_takes_the_largest_of_adjacent_values() -> None:
    """The k values of a unit are adjacent: the first k belong to the first unit, on either axis."""
    row = torch.tensor([1.0, 9.0, 2.0, -5.0, -3.0, -4.0])
    assert Maxout(3, -1)(row).tolist() == [9.0, -3.0]
    assert Maxout(2, -1)(row).tolist() == [9.0, 2.0, -3.0]
    maps = torch.tensor([[[1.0, 8.0], [2.0, 7.0], [-3.0, 0.0], [-4.0, 5.0]]])  # (1, 4 maps, length 2)
    assert Maxout(2, 1)(maps).tolist() == [[[2.0, 8.0], [-3.0, 5.0]]]


@pytest.mark.parametrize("pieces", [2, 3])
def test_dense_maxout_equals_its_equation(pieces: int, same: Same) -> None:
    """h_i = max_j (x W_ij + b_ij), where W_ij is row i k + j of the map."""
    layer = PlainLayer(3, 4, activation=f"maxout({pieces})").double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    w, b = layer.normal_layer.weight.tolist(), layer.normal_layer.bias.tolist()
    expected = [
        [
            [
                max(
                    sum(value * weight for value, weight in zip(row, w[i * pieces + j], strict=True))
                    + b[i * pieces + j]
                    for j in range(pieces)
                )
                for i in range(4)
            ]
            for row in rows
        ]
        for rows in x.tolist()
    ]
    same(layer(x), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("dims", [1, 2])
def test_convolutional_maxout_equals_its_equation(dims: int, same: Same) -> None:
    """Output channel i is, at every position, the maximum of channels i k to i k + k - 1 of the filters."""
    layer = PlainLayer(2, 3, map_kind=convolution_maps(dims, 1), activation="maxout(2)").double()
    x = torch.randn(4, 2, *(5, 6)[:dims], dtype=torch.float64)
    w, b = layer.normal_layer.weight.flatten(1).tolist(), layer.normal_layer.bias.tolist()
    y = layer(x)
    assert y.shape == (4, 3, *x.shape[2:])
    for image, maps in zip(x, y, strict=True):
        for i in range(3):
            for place, got in zip(image.flatten(1).T.tolist(), maps[i].flatten().tolist(), strict=True):
                pair = [
                    sum(v * u for v, u in zip(place, w[row], strict=True)) + b[row]
                    for row in (2 * i, 2 * i + 1)
                ]
                assert got == pytest.approx(max(pair), rel=1e-12, abs=1e-12)


def test_relu_and_tanh_are_available_by_name() -> None:
    x = torch.tensor([-1.5, 0.0, 2.0])
    assert torch.equal(make_activation("relu")(x), torch.tensor([0.0, 0.0, 2.0]))
    assert torch.equal(make_activation("tanh")(x), torch.tanh(x))
    assert [maxout_pieces(name) for name in ("relu", "tanh", "maxout(2)", "maxout(12)")] == [1, 1, 2, 12]


@pytest.mark.parametrize(
    "name", ["", "gelu", "ReLU", "maxout", "maxout()", "maxout(0)", "maxout(1)", "maxout(-2)", "maxout(2) "]
)
def test_unknown_activations_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_activation(name)
    assert str(caught.value) == (
        f"activation: expected relu, tanh or maxout(k) with k of 2 or more, got {name!r}"
    )


@pytest.mark.parametrize(
    ("linear", "fan_in", "fan_out"),
    [
        (nn.Linear(300, 200), 300, 200),
        (nn.Conv1d(100, 80, 5), 500, 400),
        (nn.Conv2d(40, 60, 3), 360, 540),
    ],
)
@pytest.mark.parametrize("activation", ["relu", "maxout(2)", "tanh"])
def test_weights_are_initialized_after_he_or_glorot(
    linear: nn.Linear | nn.Conv1d | nn.Conv2d, fan_in: int, fan_out: int, activation: str
) -> None:
    """The variance is 2 / fan_in for relu and maxout, else 2 / (fan_in + fan_out); the bias is zero."""
    initialize_weights(linear, activation)
    variance = 2 / (fan_in + fan_out) if activation == "tanh" else 2 / fan_in
    assert linear.weight.std().item() == pytest.approx(variance**0.5, rel=0.02)
    assert abs(linear.weight.mean().item()) < 0.02 * variance**0.5
    assert linear.bias is not None
    assert torch.count_nonzero(linear.bias) == 0


def test_a_map_without_a_bias_is_initialized() -> None:
    linear = nn.Linear(4, 3, bias=False)
    before = linear.weight.clone()
    initialize_weights(linear, "relu")
    assert not torch.equal(linear.weight, before)
