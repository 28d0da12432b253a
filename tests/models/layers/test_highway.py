"""Dense and convolutional highway layers, compared with loops and cases worked out by hand."""

from __future__ import annotations

import importlib.util
import itertools
import math
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.models.errors import ConfigError, ShapeError
from turnpike.models.layers.gate import Carry
from turnpike.models.layers.highway import ConvHighwayLayer, HighwayLayer, convolution_maps
from turnpike.models.layers.transform import PlainLayer, ResidualLayer

Same = Callable[[Tensor, Tensor], None]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def units_of(linear: nn.Module | None, row: list[float]) -> list[float]:
    """W x + b, one unit at a time."""
    assert isinstance(linear, nn.Linear)
    pairs = zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
    return [sum(w * v for w, v in zip(weights, row, strict=True)) + bias for weights, bias in pairs]


def highway_by_loops(layer: HighwayLayer, row: list[float], pieces: int) -> list[float]:
    """One row through the layer's equation, in plain floats."""
    units = units_of(layer.normal_layer, row)
    if pieces > 1:
        h = [max(units[unit * pieces : (unit + 1) * pieces]) for unit in range(len(row))]
    else:
        h = [
            math.tanh(value) if isinstance(layer.activation, nn.Tanh) else max(0.0, value) for value in units
        ]
    t = [sigmoid(value) for value in units_of(layer.gate, row)]
    if layer.carry_gate is None:
        c = [1 - value for value in t]
    else:
        c = [sigmoid(value) for value in units_of(layer.carry_gate, row)]
    return [h[i] * t[i] + row[i] * c[i] for i in range(len(row))]


def test_a_layer_of_two_units_worked_out_by_hand() -> None:
    """y = relu(Wh x + bh) * T + x * (1 - T)."""
    layer = HighwayLayer(2).double()
    with torch.no_grad():
        layer.normal_layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, -1.0]]))
        layer.normal_layer.bias.copy_(torch.tensor([0.5, -10.0]))
        layer.gate.weight.copy_(torch.tensor([[1.0, -1.0], [0.0, 1.0]]))
        layer.gate.bias.copy_(torch.tensor([1.0, math.log(3) - 2.0], dtype=torch.float64))
    # h = relu(1 + 4 + 0.5, 3 - 2 - 10) = (5.5, 0), t = sigmoid(1 - 2 + 1, 2 + ln 3 - 2) = (1/2, 3/4)
    # y = (5.5 * 1/2 + 1 * 1/2, 0 * 3/4 + 2 * 1/4)
    assert layer(torch.tensor([1.0, 2.0]).double()).tolist() == pytest.approx([3.25, 0.5], rel=1e-12)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4)])
@pytest.mark.parametrize("carry", ["coupled", "independent"])
@pytest.mark.parametrize(("activation", "pieces"), [("relu", 1), ("tanh", 1), ("maxout(3)", 3)])
def test_a_highway_layer_equals_its_equation(
    shape: tuple[int, ...], carry: Carry, activation: str, pieces: int, same: Same
) -> None:
    """Compared with a loop over the units, for any leading dimensions."""
    layer = HighwayLayer(4, gate_bias=None, carry=carry, activation=activation).double()
    x = torch.randn(shape, dtype=torch.float64)
    expected = [highway_by_loops(layer, row, pieces) for row in x.reshape(-1, 4).tolist()]
    same(layer(x), torch.tensor(expected, dtype=torch.float64).reshape(shape))


@pytest.mark.parametrize(
    ("settings", "bias"), [({}, -2.0), ({"gate_bias": 0.0}, 0.0), ({"gate_bias": -7.5}, -7.5)]
)
@pytest.mark.parametrize("init", ["torch", "scaled"])
def test_the_gate_starts_at_its_bias(settings: dict[str, Any], bias: float, init: Any) -> None:
    """The default bias is -2, in every unit, however the weights are drawn."""
    layer = HighwayLayer(3, init=init, **settings)
    assert layer.gate.bias.tolist() == [bias] * 3
    nn.init.zeros_(layer.gate.weight)
    x = torch.randn(5, 3)
    t = sigmoid(bias)
    torch.testing.assert_close(layer(x), layer.transform(x) * t + x * (1 - t))


def test_without_a_gate_bias_the_gate_keeps_pytorchs_bias() -> None:
    """After the same seed, an nn.Linear has the same bias as the gate."""
    torch.manual_seed(3)
    expected = nn.Linear(6, 6).bias
    torch.manual_seed(3)
    assert torch.equal(HighwayLayer(6, gate_bias=None).gate.bias, expected)


def test_both_kinds_of_carry_start_with_the_same_function(same: Same) -> None:
    """While the gates' weights are zero, an independent carry is 1 - T."""
    coupled, independent = (
        HighwayLayer(5, gate_bias=-1.5),
        HighwayLayer(5, gate_bias=-1.5, carry="independent"),
    )
    independent.load_state_dict(coupled.state_dict(), strict=False)
    assert independent.carry_gate is not None
    for gate in (coupled.gate, independent.gate, independent.carry_gate):
        nn.init.zeros_(gate.weight)
    x = torch.randn(7, 5)
    same(independent(x), coupled(x))


def test_scaled_weights_are_initialized_after_he_and_glorot() -> None:
    """H has a variance of 2 / dim, T and C of 1 / dim, and H's bias is zero."""
    layer = HighwayLayer(300, init="scaled", carry="independent")
    assert layer.normal_layer.weight.std().item() == pytest.approx((2 / 300) ** 0.5, rel=0.02)
    assert layer.carry_gate is not None
    for gate in (layer.gate, layer.carry_gate):
        assert gate.weight.std().item() == pytest.approx((1 / 300) ** 0.5, rel=0.02)
    assert torch.count_nonzero(layer.normal_layer.bias) == 0


@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_without_scaling_the_weights_are_pytorchs_own(carry: Carry) -> None:
    """After the same seed, maps of PyTorch have the same weights as T, C and H, in this order."""
    torch.manual_seed(3)
    expected = [nn.Linear(6, 6).weight for _ in range(3 if carry == "independent" else 2)]
    torch.manual_seed(3)
    layer = HighwayLayer(6, carry=carry)
    gates = [layer.gate] if layer.carry_gate is None else [layer.gate, layer.carry_gate]
    actual = [*(gate.weight for gate in gates), layer.normal_layer.weight]
    assert all(map(torch.equal, actual, expected))


def test_dropout_affects_only_h_and_only_in_training(same: Same) -> None:
    """In training, half of the units of H are dropped and the others doubled; x is unchanged."""
    layer = HighwayLayer(200, dropout=0.5, gate_bias=0.0).double()
    nn.init.ones_(layer.normal_layer.bias)
    x = torch.rand(1, 200, dtype=torch.float64)
    h = torch.relu(F.linear(x, layer.normal_layer.weight, layer.normal_layer.bias))
    t = layer.gate(x)
    whole = h * t + x * (1 - t)
    dropped, doubled = x * (1 - t), 2 * h * t + x * (1 - t)
    y = layer(x)
    of_dropped = (y - dropped).abs() < 1e-12
    assert 60 < of_dropped.sum() < 140
    same(y, torch.where(of_dropped, dropped, doubled))
    same(layer.eval()(x), whole)


@pytest.mark.parametrize("shape", [(6, 3), (2, 5, 3), (2, 2, 4, 3)])
def test_batch_norm_is_before_the_activation_of_h(shape: tuple[int, ...], same: Same) -> None:
    """Each unit of Wh x + bh is standardized over all rows and leading dimensions; T is not."""
    layer = HighwayLayer(3, batch_norm=True).double()
    assert layer.norm is not None
    nn.init.normal_(layer.norm.weight)
    nn.init.normal_(layer.norm.bias)
    x = torch.randn(shape, dtype=torch.float64)
    z = layer.normal_layer(x)
    over = tuple(range(x.dim() - 1))
    variance, mean = torch.var_mean(z, over, correction=0)
    h = torch.relu((z - mean) / torch.sqrt(variance + 1e-5) * layer.norm.weight + layer.norm.bias)
    t = torch.sigmoid(F.linear(x, layer.gate.weight, layer.gate.bias))
    same(layer(x), h * t + x * (1 - t))
    rows = layer.eval()(x.reshape(-1, 3))
    same(torch.stack([layer(row) for row in x.reshape(-1, 3)]), rows)


def test_a_state_dict_of_two_linear_maps_can_be_loaded(same: Same) -> None:
    """The default layer has the parameters of `normal_layer` and `gate` and no others."""
    state = {
        "normal_layer.weight": torch.randn(4, 4),
        "normal_layer.bias": torch.randn(4),
        "gate.weight": torch.randn(4, 4),
        "gate.bias": torch.randn(4),
    }
    layer = HighwayLayer(4)
    assert layer.state_dict().keys() == state.keys()
    layer.load_state_dict(state, strict=True)
    x = torch.randn(3, 4)
    h = F.relu(F.linear(x, state["normal_layer.weight"], state["normal_layer.bias"]))
    t = torch.sigmoid(F.linear(x, state["gate.weight"], state["gate.bias"]))
    same(layer(x), h * t + x * (1 - t))


@pytest.mark.parametrize(
    ("dim", "settings", "field"),
    [
        (0, {}, "dim"),
        (3, {"carry": "none"}, "carry"),
        (3, {"activation": "gelu"}, "activation"),
        (3, {"dropout": 1.0}, "dropout"),
        (3, {"dropout": -0.1}, "dropout"),
        (3, {"init": "he"}, "init"),
    ],
)
def test_an_invalid_setting_is_refused(dim: int, settings: dict[str, Any], field: str) -> None:
    """The message begins with the setting's name."""
    with pytest.raises(ConfigError, match=f"^{field}: expected"):
        HighwayLayer(dim, **settings)


@pytest.mark.parametrize("shape", [(), (4,), (3, 4), (3, 1)])
def test_rows_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError) as caught:
        HighwayLayer(3)(torch.zeros(shape))
    sizes = ", ".join(map(str, shape))
    assert str(caught.value) == f"HighwayLayer: expected 3 values along axis -1, got shape [{sizes}]"


@pytest.mark.slow
def test_the_layer_of_zetascale_gives_the_same_bits(tmp_path: Path) -> None:
    """The layer of zetascale 2.8.8 and ours, with its state dict, agree on every row to the last bit."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--retries=1", "--no-deps"]
    command = [*pip, "--only-binary=:all:", f"--dest={tmp_path}", "zetascale==2.8.8"]
    got = subprocess.run(command, check=False, capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"pip could not download zetascale 2.8.8: {got.stderr.strip()[-300:]}")
    (wheel,) = tmp_path.glob("zetascale-2.8.8-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        source = Path(archive.extract("zeta/nn/modules/highway_layer.py", tmp_path))
    spec = importlib.util.spec_from_file_location("zetas_highway_layer", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    theirs, ours = module.HighwayLayer(64), HighwayLayer(64)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    for shape in ((64,), (50, 64), (3, 7, 64)):
        x = torch.randn(shape)
        assert torch.equal(ours(x), theirs(x))


Numbers = np.ndarray[Any, np.dtype[np.float64]]


def sizes_of(dims: int) -> tuple[int, ...]:
    return (5, 4)[:dims]


def convolved(maps: nn.Module | None, x: Numbers) -> Numbers:
    """W * x + b of one row (channels, ...), with zeros outside of it."""
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


def sigmoid_array(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("carry", ["coupled", "independent"])
def test_a_convolutional_highway_equals_its_equation(
    dims: int, kernel: int, carry: Carry, same: Same
) -> None:
    """H, T and C at a position read the same neighborhood, with zeros beyond the edges."""
    layer = ConvHighwayLayer(2, kernel=kernel, dims=dims, gate_bias=0.5, carry=carry).double()
    x = torch.randn(2, 2, *sizes_of(dims), dtype=torch.float64)
    expected = []
    for row in x.numpy():
        h = np.maximum(convolved(layer.normal_layer, row), 0)
        t = sigmoid_array(convolved(layer.gate, row))
        c = 1 - t if carry == "coupled" else sigmoid_array(convolved(layer.carry_gate, row))
        expected.append(h * t + row * c)
    same(layer(x), torch.from_numpy(np.stack(expected)))


@pytest.mark.parametrize("dims", [1, 2])
def test_h_and_t_have_the_same_kernel_size(dims: int) -> None:
    """The gate has the kernel size of the transform, and the default layer has only these two maps."""
    layer = ConvHighwayLayer(3, kernel=5, dims=dims)
    assert layer.gate.weight.shape == layer.normal_layer.weight.shape == (3, 3, *[5] * dims)
    names = {"normal_layer.weight", "normal_layer.bias", "gate.weight", "gate.bias"}
    assert layer.state_dict().keys() == names
    default = ConvHighwayLayer(3)
    assert default.gate.weight.shape == (3, 3, 3, 3)
    assert default.gate.bias.tolist() == [-2.0] * 3


def test_a_line_of_one_channel_worked_out_by_hand() -> None:
    """A kernel that adds both neighbors reads zeros beyond the ends."""
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
def test_plain_and_residual_layers_have_the_same_maps(dims: int, same: Same) -> None:
    """y = relu(W * x + b), which may change the channels, and y = x + W * relu(x) + b."""
    x = torch.randn(1, 2, *sizes_of(dims), dtype=torch.float64)
    plain = PlainLayer(2, 3, map_kind=convolution_maps(dims)).double()
    same(plain(x)[0], torch.from_numpy(np.maximum(convolved(plain.normal_layer, x[0].numpy()), 0)))
    residual = ResidualLayer(2, map_kind=convolution_maps(dims)).double()
    h = convolved(residual.normal_layer, np.maximum(x[0].numpy(), 0))
    same(residual(x)[0], x[0] + torch.from_numpy(h))


@pytest.mark.parametrize("dims", [1, 2])
def test_batch_norm_is_over_rows_and_positions(dims: int, same: Same) -> None:
    """Each channel of Wh * x + bh is standardized over rows and positions."""
    layer = ConvHighwayLayer(2, dims=dims, batch_norm=True).double()
    x = torch.randn(3, 2, *sizes_of(dims), dtype=torch.float64)
    z = layer.normal_layer(x).transpose(0, 1).flatten(1)
    z = (z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, correction=0, keepdim=True) + 1e-5)
    h = torch.relu(z).reshape(2, 3, *sizes_of(dims)).transpose(0, 1)
    t = layer.gate(x)
    same(layer(x), h * t + x * (1 - t))


def test_settings_reach_the_layer() -> None:
    layer = ConvHighwayLayer(2, gate_bias=-7.0, activation="maxout(2)", dropout=0.25, init="scaled")
    assert layer.gate.bias.tolist() == [-7.0] * 2
    assert layer.normal_layer.weight.shape == (4, 2, 3, 3)
    assert layer.normal_layer.bias.tolist() == [0.0] * 4
    assert layer(torch.randn(3, 2, 4, 4)).shape == (3, 2, 4, 4)
    assert layer.dropout is not None
    assert layer.dropout.p == 0.25


@pytest.mark.parametrize("kernel", [-1, 0, 2, 4])
@pytest.mark.parametrize("dims", [1, 2])
def test_even_kernels_are_refused(dims: int, kernel: int) -> None:
    with pytest.raises(
        ConfigError, match=f"^kernel: expected an odd size, which can be centred, got {kernel}$"
    ):
        ConvHighwayLayer(2, kernel=kernel, dims=dims)


@pytest.mark.parametrize("dims", [0, 3])
def test_other_numbers_of_dimensions_are_refused(dims: int) -> None:
    """Convolutions are over a line or a plane."""
    with pytest.raises(ConfigError, match=f"^dims: expected 1 or 2, got {dims}$"):
        convolution_maps(dims)


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
    """Channels are axis 1 of 3 or 4 axes; rows without a batch axis are refused, unlike in PyTorch."""
    layer = (
        ConvHighwayLayer(2, dims=dims)
        if kind is ConvHighwayLayer
        else kind(2, map_kind=convolution_maps(dims))
    )
    sizes = ", ".join(map(str, shape))
    with pytest.raises(ShapeError) as caught:
        layer(torch.zeros(shape))
    assert str(caught.value) == (
        f"{kind.__name__}: expected 2 values along axis 1 of {dims + 2} axes, got shape [{sizes}]"
    )
