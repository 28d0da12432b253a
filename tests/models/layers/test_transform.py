"""The transform H; plain and residual layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.transform import PlainLayer, ResidualLayer, RowNorm

Same = Callable[[Tensor, Tensor], None]


def filled(layer: Any, weight: list[list[float]], bias: list[float]) -> Any:
    """The layer in float64 with the given map."""
    layer.double()
    with torch.no_grad():
        layer.normal_layer.weight.copy_(torch.tensor(weight))
        layer.normal_layer.bias.copy_(torch.tensor(bias))
    return layer


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_plain_layer_equals_its_equation(shape: tuple[int, ...], activation: str, same: Same) -> None:
    """y = activation(W x + b), from 3 values to 2."""
    layer = filled(PlainLayer(3, 2, activation=activation), [[1, -2, 3], [0.5, 0, -1]], [0.25, -0.5])
    x = torch.randn(shape, dtype=torch.float64)
    a, b, c = x.unbind(-1)
    z = torch.stack([a - 2 * b + 3 * c + 0.25, 0.5 * a - c - 0.5], dim=-1)
    same(layer(x), torch.tanh(z) if activation == "tanh" else z.clamp(min=0))


def test_a_plain_layer_keeps_the_size_by_default() -> None:
    assert PlainLayer(4)(torch.randn(2, 4)).shape == (2, 4)


def test_the_weights_are_pytorchs_unless_scaled() -> None:
    """init="torch" keeps the weights of nn.Linear, init="scaled" draws after He with a zero bias."""
    torch.manual_seed(2)
    expected = nn.Linear(400, 300).state_dict()
    torch.manual_seed(2)
    layer = PlainLayer(400, 300)
    assert torch.equal(layer.normal_layer.weight, expected["weight"])
    assert torch.equal(layer.normal_layer.bias, expected["bias"])
    scaled = PlainLayer(400, 300, init="scaled")
    assert scaled.normal_layer.weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert torch.count_nonzero(scaled.normal_layer.bias) == 0


@pytest.mark.parametrize("kind", [PlainLayer, ResidualLayer])
def test_dropout_affects_only_the_transform(kind: type[nn.Module], same: Same) -> None:
    """In training, units are dropped or doubled at a rate of 1/2, in eval mode none are; a residual layer's x
    never is.
    """
    layer = kind(300, dropout=0.5).double()
    x = torch.rand(1, 300, dtype=torch.float64)
    carried = x if kind is ResidualLayer else torch.zeros_like(x)
    h = layer.eval()(x) - carried
    without = F.linear(x, layer.normal_layer.weight, layer.normal_layer.bias)  # x > 0, so relu(x) is x
    same(h, without if kind is ResidualLayer else torch.relu(without))
    y = layer.train()(x)
    dropped = (y - carried).abs() < 1e-12
    live = h != 0
    assert 0.3 < (dropped & live).sum() / live.sum() < 0.7
    same(y, torch.where(dropped, carried, carried + 2 * h))


@pytest.mark.parametrize("shape", [(6, 3), (2, 5, 3), (2, 2, 4, 3)])
def test_row_norm_is_over_every_leading_axis(shape: tuple[int, ...], same: Same) -> None:
    """Each unit has mean 0 and deviation 1 over all rows; eval mode uses the running statistics."""
    norm = RowNorm(3).double()
    x = torch.randn(shape, dtype=torch.float64) * 4 + 1
    rows = x.reshape(-1, 3)
    mean, variance = rows.mean(0), rows.var(0, correction=0)
    y = norm(x)
    assert y.shape == x.shape
    same(y, (x - mean) / torch.sqrt(variance + 1e-5))
    statistics = 0.1 * mean, 0.9 + 0.1 * rows.var(0)
    same(norm.eval()(rows[0]), (rows[0] - statistics[0]) / torch.sqrt(statistics[1] + 1e-5))


def test_batch_norm_is_before_the_activation(same: Same) -> None:
    """A plain layer's output is the relu of standardized units, so each unit is zero somewhere."""
    layer = PlainLayer(3, 4, batch_norm=True).double()
    x = torch.randn(50, 3, dtype=torch.float64)
    z = layer.normal_layer(x)
    same(layer(x), torch.relu((z - z.mean(0)) / torch.sqrt(z.var(0, correction=0) + 1e-5)))


def test_a_residual_layer_worked_out_by_hand() -> None:
    """y = x + W relu(x) + b: the activation comes before the map, and x itself is not activated."""
    layer = filled(ResidualLayer(2), [[1, 10], [100, 1000]], [0.5, -0.5])
    # relu(x) = (0, 2), so y = (-3 + 20 + 0.5, 2 + 2000 - 0.5)
    assert layer(torch.tensor([-3.0, 2.0]).double()).tolist() == [17.5, 2001.5]


@pytest.mark.parametrize("shape", [(9, 3), (2, 5, 3)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_residual_layer_normalizes_first(shape: tuple[int, ...], activation: str, same: Same) -> None:
    """y = x + W a(norm(x)) + b for any leading dimensions."""
    layer = ResidualLayer(3, activation=activation, batch_norm=True).double()
    x = torch.randn(shape, dtype=torch.float64) * 3 + 2
    rows = x.reshape(-1, 3)
    z = (x - rows.mean(0)) / torch.sqrt(rows.var(0, correction=0) + 1e-5)
    a = torch.tanh(z) if activation == "tanh" else z.clamp(min=0)
    same(layer(x), x + a @ layer.normal_layer.weight.T + layer.normal_layer.bias)


@pytest.mark.parametrize("depth", [1, 10, 100])
def test_scaled_branches_keep_the_scale_of_the_signal(depth: int) -> None:
    """Each layer adds 1/depth of the variance, so the deviation grows by sqrt(e) at most."""
    layers = nn.Sequential(*(ResidualLayer(128, init="scaled", depth=depth) for _ in range(depth)))
    with torch.no_grad():
        y = layers(torch.randn(256, 128))
    expected = (1 + 1 / depth) ** (depth / 2)
    assert y.std().item() == pytest.approx(expected, rel=0.15)


def test_scaled_branches_are_initialized_after_he_and_reduced() -> None:
    """W has a variance of 2 / dim / depth, and a zero bias."""
    layer = ResidualLayer(300, init="scaled", depth=25)
    assert layer.normal_layer.weight.std().item() == pytest.approx((2 / 300 / 25) ** 0.5, rel=0.02)
    assert torch.count_nonzero(layer.normal_layer.bias) == 0


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PlainLayer(0), "units"),
        (lambda: PlainLayer(3, 0), "units"),
        (lambda: PlainLayer(3, dropout=1.0), "dropout"),
        (lambda: PlainLayer(3, activation="selu"), "activation"),
        (lambda: PlainLayer(3, init="he"), "init"),  # type: ignore[arg-type]
        (lambda: ResidualLayer(0), "dim"),
        (lambda: ResidualLayer(3, dropout=1.0), "dropout"),
        (lambda: ResidualLayer(3, dropout=-0.5), "dropout"),
        (lambda: ResidualLayer(3, activation="maxout(2)"), "activation"),
        (lambda: ResidualLayer(3, init="he"), "init"),  # type: ignore[arg-type]
        (lambda: ResidualLayer(3, init="scaled", depth=0), "depth"),
    ],
)
def test_an_invalid_setting_is_refused(make: Callable[[], nn.Module], field: str) -> None:
    """The message begins with the setting's name."""
    with pytest.raises(ConfigError, match=f"^{field}: "):
        make()


@pytest.mark.parametrize("shape", [(), (4,), (3, 2)])
@pytest.mark.parametrize("kind", [PlainLayer, ResidualLayer])
def test_rows_of_another_size_are_refused(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    sizes = ", ".join(map(str, shape))
    with pytest.raises(ShapeError) as caught:
        kind(3)(torch.zeros(shape))
    assert str(caught.value) == f"{kind.__name__}: expected 3 values along axis -1, got shape [{sizes}]"
