"""Dense and convolutional networks of plain, residual and highway layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.models.errors import ConfigError
from turnpike.models.layers.highway import HighwayLayer
from turnpike.models.layers.transform import Init, PlainLayer, ResidualLayer
from turnpike.models.networks.base import Net, parameter_count
from turnpike.models.networks.feedforward import (
    ConvConfig,
    ConvNet,
    EntryKind,
    LayerKind,
    Mlp,
    MlpConfig,
    matched_width,
)

Same = Callable[[Tensor, Tensor], None]
LAYERS: dict[str, type[nn.Module]] = {
    "plain": PlainLayer,
    "residual": ResidualLayer,
    "highway": HighwayLayer,
}


def mlp(**settings: Any) -> Mlp:
    return Mlp(MlpConfig(**{"inputs": (1, 2, 3), "classes": 4, "width": 5, "layers": 2, **settings}))


def conv(**settings: Any) -> ConvNet:
    return ConvNet(ConvConfig(**{"inputs": (2, 8, 8), "classes": 4, "stages": ((4, 1), (6, 2)), **settings}))


def every(net: nn.Module, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> list[Any]:
    return [module for module in net.modules() if isinstance(module, kind)]


@pytest.mark.parametrize("width", [50, 64, 128, 784])
@pytest.mark.parametrize("kind", ["plain", "residual"])
def test_matched_layers_have_the_same_number_of_parameters(width: int, kind: LayerKind) -> None:
    """A matched layer has within 3 % of a highway layer's parameters; the width in Figure 1 is 71."""
    assert matched_width(50) == 71
    sizes = {
        kind: parameter_count(mlp(kind=kind, width=size).layers[0])
        for kind, size in (("highway", width), (kind, matched_width(width)))
    }
    assert sizes[kind] == pytest.approx(sizes["highway"], rel=0.03)


@pytest.mark.parametrize("kind", get_args(LayerKind))
def test_a_dense_network_equals_its_parts_in_order(kind: LayerKind, same: Same) -> None:
    """Flattened rows go through the entry, every layer, and a linear output."""
    net = mlp(kind=kind, layers=3)
    assert [type(layer) for layer in net.layers] == [LAYERS[kind]] * 3
    x = torch.randn(7, 1, 2, 3)
    h = torch.relu(F.linear(x.reshape(7, 6), net.entry.normal_layer.weight, net.entry.normal_layer.bias))
    for layer in net.layers:
        z = torch.relu(h) if kind == "residual" else h
        z = F.linear(z, layer.normal_layer.weight, layer.normal_layer.bias)
        if kind == "residual":
            h = h + z
        elif kind == "plain":
            h = torch.relu(z)
        else:
            t = torch.sigmoid(F.linear(h, layer.gate.weight, layer.gate.bias))
            h = torch.relu(z) * t + h * (1 - t)
    same(net(x), F.linear(h, net.output.weight, net.output.bias))


@pytest.mark.parametrize(("entry", "width"), [("plain", 4), ("pad", 8), ("subsample", 4), ("none", 6)])
@pytest.mark.parametrize("kind", get_args(LayerKind))
def test_every_entry_changes_rows_to_the_width(entry: EntryKind, width: int, kind: LayerKind) -> None:
    """The entry is a plain layer, zero padding, sub-sampling, or the row itself."""
    net = mlp(entry=entry, width=width, kind=kind)
    x = torch.randn(3, 1, 2, 3)
    row = x.reshape(3, 6)
    expected = {
        "plain": lambda: net.entry(row),
        "pad": lambda: torch.cat([row, torch.zeros(3, 2)], dim=1),
        "subsample": lambda: row[:, [0, 1, 3, 4]],
        "none": lambda: row,
    }[entry]()
    read: list[Tensor] = []
    net.layers[0].register_forward_pre_hook(lambda module, args: read.append(args[0]))
    assert net(x).shape == (3, 4)
    assert torch.equal(read[0], expected)
    assert isinstance(net.entry, PlainLayer) == (entry == "plain")


@pytest.mark.parametrize("make", [mlp, conv])
@pytest.mark.parametrize("kind", get_args(LayerKind))
@pytest.mark.parametrize("init", ["torch", "scaled"])
def test_settings_reach_every_layer(make: Callable[..., Any], kind: LayerKind, init: Init) -> None:
    """Activation and batch norm reach each layer, and init each map."""
    net = make(kind=kind, activation="tanh", batch_norm=True, init=init)
    layers = list(net.layers) if make is mlp else every(net.body, tuple(LAYERS.values()))
    assert sum(isinstance(layer, LAYERS[kind]) for layer in layers) >= 2
    assert all(isinstance(layer.activation, nn.Tanh) for layer in every(net, tuple(LAYERS.values())))
    assert all(layer.norm is not None for layer in layers)
    maps = [layer.normal_layer for layer in every(net, tuple(LAYERS.values()))] + [net.output]
    assert all((linear.bias.count_nonzero() == 0) == (init == "scaled") for linear in maps)


@pytest.mark.parametrize("make", [mlp, conv])
def test_settings_reach_every_gate(make: Callable[..., Net]) -> None:
    """Bias and carry reach each highway layer, and maxout its transform."""
    layers = every(make(gate_bias=-3.5, carry="independent", activation="maxout(2)"), HighwayLayer)
    assert len(layers) in (2, 3)
    for layer in layers:
        assert layer.gate.bias.unique().tolist() == [-3.5]
        assert layer.carry_gate.bias.unique().tolist() == [3.5]
        assert layer.activation.pieces == 2


def test_dropout_reaches_the_entry_and_the_layers() -> None:
    for kind in get_args(LayerKind):
        assert [dropout.p for dropout in every(mlp(kind=kind, dropout=0.3), nn.Dropout)] == [0.3] * 3
    assert every(mlp(), nn.Dropout) == []


@pytest.mark.parametrize(("make", "layers"), [(mlp, 8), (conv, 3)])
def test_residual_weights_shrink_with_the_depth(make: Callable[..., Net], layers: int) -> None:
    """Scaled weights are smaller by the root of the depth, counted over all stages."""
    wide = {"width": 200, "layers": 8} if make is mlp else {"stages": ((40, 1), (40, 2))}
    residual = every(make(kind="residual", **wide), ResidualLayer)
    assert len(residual) == layers
    for layer in residual:
        fan_in = layer.normal_layer.weight[0].numel()
        deviation = layer.normal_layer.weight.std().item()
        assert deviation == pytest.approx((2 / fan_in / layers) ** 0.5, rel=0.04)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("average", [False, True])
def test_a_convolutional_network_equals_its_parts_in_order(dims: int, average: bool, same: Same) -> None:
    """Stages change the channels if they differ, pools halve, and the last stage may be averaged."""
    head = 3 if average else 0
    net = conv(inputs=(2, 8, 8)[: dims + 1], stages=((4, 1), (6, 2), (6, 1)), average=average, head=head)
    sizes = [tuple(layer.normal_layer.weight.shape[:2]) for layer in every(net, PlainLayer)]
    assert sizes == [(4, 2), (6, 4)] + [(3, 6)] * average
    pool = F.max_pool1d if dims == 1 else F.max_pool2d
    x = torch.randn(5, *(2, 8, 8)[: dims + 1])
    layers = iter(every(net, (PlainLayer, HighwayLayer)))
    h = x
    for stage, count in enumerate((2, 3, 1)):
        for _ in range(count):
            h = next(layers)(h)
        if stage < 2 or not average:
            h = pool(h, 2)
    if average:
        h = next(layers)(h).flatten(2).mean(2)
    assert next(layers, None) is None
    same(net(x), net.output(h.flatten(1)))


def test_only_the_head_has_a_kernel_of_one() -> None:
    """Every convolution but the head's has the config's kernel."""
    net = conv(kernel=5, average=True, head=3)
    kernels = [layer.weight.shape[2:] for layer in every(net.body, nn.Conv2d)]
    assert kernels == [(5, 5)] * 8 + [(1, 1)]


def test_the_first_stage_begins_with_a_plain_layer() -> None:
    """A later stage with the same channels does not."""
    names = [type(part).__name__ for part in conv(stages=((2, 1), (2, 1))).body]
    assert names == ["PlainLayer", "HighwayLayer", "MaxPool2d", "HighwayLayer", "MaxPool2d"]


def test_dropout_is_at_the_input_and_after_stages() -> None:
    """One rate for the input and one per stage, after its pool; a rate of zero adds no module."""
    modules = [(type(part).__name__, getattr(part, "p", None)) for part in conv(dropout=(0.1, 0.0, 0.3)).body]
    layers = [("PlainLayer", None), ("HighwayLayer", None), ("MaxPool2d", None)]
    more = [("PlainLayer", None), ("HighwayLayer", None), ("HighwayLayer", None), ("MaxPool2d", None)]
    assert modules == [("Dropout", 0.1), *layers, *more, ("Dropout", 0.3)]


@pytest.mark.parametrize("kind", get_args(LayerKind))
@pytest.mark.parametrize("inputs", [(2, 8), (2, 9), (2, 8, 8), (2, 9, 5)])
def test_convolutional_networks_read_lines_and_planes(inputs: tuple[int, ...], kind: LayerKind) -> None:
    """Pools drop a remainder of the size, and every parameter has a gradient."""
    net = conv(inputs=inputs, kind=kind)
    y = net(torch.randn(3, *inputs))
    assert y.shape == (3, 4)
    y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (mlp, {"kind": "dense"}, "kind: expected one of plain, residual, highway, got 'dense'"),
        (mlp, {"carry": "none"}, "carry: expected one of coupled, independent, got 'none'"),
        (mlp, {"init": "he"}, "init: expected one of torch, scaled, got 'he'"),
        (mlp, {"activation": "gelu"}, "activation: expected relu, tanh or maxout"),
        (
            mlp,
            {"activation": "maxout(2)", "kind": "residual"},
            "activation: a residual net takes relu or tanh",
        ),
        (mlp, {"width": 0}, "width: expected 1 or more, got 0"),
        (mlp, {"layers": 0}, "layers: expected 1 or more, got 0"),
        (mlp, {"dropout": 1.0}, "dropout: expected 0 or more and below 1, got 1.0"),
        (mlp, {"entry": "crop"}, "entry: expected one of plain, pad, subsample, none, got 'crop'"),
        (mlp, {"entry": "none"}, "entry: none needs rows of 5 values, got rows of 6"),
        (mlp, {"entry": "pad"}, "width: zero padding needs 6 or more, got 5"),
        (mlp, {"entry": "subsample", "width": 7}, "width: sub-sampling needs 6 or fewer, got 7"),
        (mlp, {"classes": 0}, "classes: expected 1 or more, got 0"),
        (
            conv,
            {"inputs": (8,)},
            "inputs: expected (channels, length) or (channels, height, width), got (8,)",
        ),
        (conv, {"stages": ()}, "stages: expected pairs (channels, layers), got ()"),
        (conv, {"stages": ((4, 1, 1),)}, "stages: expected pairs"),
        (conv, {"stages": ((0, 1),)}, "stages: expected pairs"),
        (conv, {"stages": ((4, -1),)}, "stages: expected pairs"),
        (conv, {"stages": ((4, 1),) * 4}, "stages: 4 poolings by 2 leave nothing of rows of (2, 8, 8)"),
        (conv, {"dropout": (0.1, 0.1)}, "dropout: expected 3 rates, the input's first, got (0.1, 0.1)"),
        (conv, {"dropout": (0.1, 0.1, 1.0)}, "dropout: expected rates of 0 or more and below 1"),
        (conv, {"kernel": 2}, "kernel: expected an odd size, which can be centred, got 2"),
        (conv, {"head": 8}, "head: needs average=True"),
        (conv, {"head": -1, "average": True}, "head: expected 0 or more channels, got -1"),
        (conv, {"kind": "dense"}, "kind: expected one of"),
    ],
)
def test_an_invalid_config_is_refused(
    make: Callable[..., Net], settings: dict[str, Any], message: str
) -> None:
    """The message names the field and its value."""
    with pytest.raises(ConfigError) as caught:
        make(**settings)
    assert str(caught.value).startswith(message)
    assert "__post_init__" in {entry.name for entry in caught.traceback}


def test_the_number_of_poolings_is_limited_by_the_rows() -> None:
    """An averaged stage is not pooled, so there may be one more of them."""
    assert conv(stages=((4, 1),) * 3)(torch.randn(1, 2, 8, 8)).shape == (1, 4)
    assert conv(stages=((4, 1),) * 4, average=True)(torch.randn(1, 2, 8, 8)).shape == (1, 4)
