"""Presets: depth, size and gradients of their networks."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from turnpike.models.choices import DEFAULT_PRESET, PRESET_SUMMARIES, LayerKind
from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import NetConfig, parameter_count
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import Mlp, MlpConfig, StackConfig
from turnpike.models.training.presets import PRESETS, figure_1_config, find_preset

every_preset = pytest.mark.parametrize("name", PRESETS)


def rows_for(config: NetConfig, batch: int) -> Tensor:
    if isinstance(config, CharacterCnnConfig):
        return torch.randint(1, config.alphabet, (batch, *config.inputs))
    return torch.randn(batch, *config.inputs)


@every_preset
def test_a_preset_has_finite_logits_and_gradients(name: str) -> None:
    """A batch of its rows gives finite logits, and a gradient reaches every parameter."""
    config = find_preset(name).config
    net = build_network(config)
    logits = net(rows_for(config, 4))
    assert logits.shape == (4, config.classes)
    F.cross_entropy(logits, torch.arange(4) % config.classes).backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.count_nonzero() > 0, parameter_name


@every_preset
def test_a_row_does_not_depend_on_its_batch(name: str) -> None:
    """In eval mode, a row has the same logits alone, among others, and in another order."""
    config = find_preset(name).config
    net = build_network(config).eval()
    x = rows_for(config, 3)
    with torch.inference_mode():
        together = net(x)
        torch.testing.assert_close(torch.cat([net(row[None]) for row in x]), together, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(net(x.flip(0)).flip(0), together, rtol=1e-4, atol=1e-4)
    assert not torch.equal(together[0], together[1])


def test_an_unknown_preset_lists_the_known_ones() -> None:
    """The error lists every preset."""
    with pytest.raises(ConfigError) as caught:
        find_preset("digits-11")
    assert (
        str(caught.value)
        == f"preset: expected one of {', '.join(PRESETS)}, got 'digits-11'. Did you mean 'digits-10'?"
    )


def test_the_default_preset_exists() -> None:
    """It is found by its name, and its data needs no download."""
    assert find_preset(DEFAULT_PRESET) is PRESETS[DEFAULT_PRESET]
    assert find_preset(DEFAULT_PRESET).data == "drawn-digits"


def test_the_list_of_presets_describes_their_networks() -> None:
    """`turnpike train --list` builds no network: its numbers of parameters are those of the networks."""
    assert list(PRESET_SUMMARIES) == list(PRESETS)
    assert len({summary.description for summary in PRESET_SUMMARIES.values()}) == len(PRESETS)
    with torch.device("meta"):
        sizes = {name: parameter_count(build_network(preset.config)) for name, preset in PRESETS.items()}
    assert {name: summary.parameters for name, summary in PRESET_SUMMARIES.items()} == sizes


@pytest.mark.parametrize("kind", get_args(LayerKind))
@pytest.mark.parametrize(("depth", "bias"), [(2, -2.0), (10, -2.0), (20, -2.0), (21, -4.0), (100, -4.0)])
def test_figure_1_networks_have_their_depth(kind: LayerKind, depth: int, bias: float) -> None:
    """One plain layer and depth - 1 of their kind, of 50 or 71 units; gates of deeper networks start further
    closed.
    """
    config = figure_1_config(kind, depth)
    assert config == MlpConfig(
        inputs=(1, 28, 28),
        classes=10,
        kind=kind,
        width=50 if kind == "highway" else 71,
        layers=depth - 1,
        entry="plain",
        gate_bias=bias,
    )
    with torch.device("meta"):
        assert len(Mlp(config).layers) == depth - 1


@pytest.mark.parametrize(("kind", "width"), [("highway", 20), ("plain", 28), ("residual", 28)])
def test_figure_1_networks_may_have_another_width(kind: LayerKind, width: int) -> None:
    """The width is that of highway layers; the other kinds get the matching one."""
    assert figure_1_config(kind, 10, width=20).width == width


@pytest.mark.parametrize("depth", [-1, 0, 1])
def test_figure_1_networks_have_at_least_two_layers(depth: int) -> None:
    """The first layer is plain, and there is at least one of the network's kind."""
    with pytest.raises(ConfigError, match=f"^depths: expected 2 or more, .* got {depth}$"):
        figure_1_config("highway", depth)


@pytest.mark.parametrize("depth", [10, 20, 50, 100])
@pytest.mark.parametrize(
    ("suffix", "kind"), [("", "highway"), ("-plain", "plain"), ("-residual", "residual")]
)
def test_figure_1_networks_are_presets(depth: int, suffix: str, kind: LayerKind) -> None:
    """Each depth has three networks, all with one recipe."""
    preset = find_preset(f"fig1-{depth}{suffix}")
    assert preset.config == figure_1_config(kind, depth)
    assert preset.recipe == find_preset("fig1-10").recipe


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("deck-20", 24_625_450),  # 20 * 2 * (784 * 784 + 784) + 784 * 10 + 10
        ("fig1-10", 85_660),  # 784 * 50 + 50 + 9 * 2 * (50 * 50 + 50) + 50 * 10 + 10
        ("fig1-10-plain", 102_463),  # 784 * 71 + 71 + 9 * (71 * 71 + 71) + 71 * 10 + 10
        ("conv-16", 38_730),
        ("conv-32", 151_178),
        ("fitnet-a", 236_714),
        ("fitnet-b", 2_256_838),
        ("fitnet-c", 1_255_270),
    ],
)
def test_networks_have_the_published_number_of_parameters(preset: str, count: int) -> None:
    """They are counted without allocating them."""
    with torch.device("meta"):
        assert parameter_count(build_network(find_preset(preset).config)) == count


@pytest.mark.parametrize(
    ("name", "layers"), [("conv-16", 9), ("conv-32", 9), ("fitnet-a", 11), ("fitnet-b", 19), ("fitnet-c", 32)]
)
def test_convolutional_presets_have_the_layers_of_the_papers_tables(name: str, layers: int) -> None:
    """Convolutions of gates do not count. In FitNets the output counts too."""
    with torch.device("meta"):
        names = build_network(find_preset(name).config).state_dict()
    convolutions = sum(key.endswith("normal_layer.weight") for key in names)
    assert convolutions + name.startswith("fitnet") == layers


def test_transformer_presets_have_equal_size() -> None:
    """The residual network has the parameters of the highway network, within 1 %."""
    sizes = [
        parameter_count(build_network(find_preset(f"transformer{end}").config)) for end in ("", "-residual")
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)


def test_gates_of_feed_forward_presets_start_closed_or_even() -> None:
    """The biases are the published ones: 0 in the lecture's network, -1 in Table 1, negative elsewhere."""
    biases = {
        name: preset.config.gate_bias
        for name, preset in PRESETS.items()
        if isinstance(preset.config, StackConfig) and preset.config.kind == "highway"
    }
    assert biases.pop("deck-20") == 0.0
    assert biases["conv-16"] == biases["conv-32"] == -1.0
    assert all(bias is not None and bias < 0 for bias in biases.values())
