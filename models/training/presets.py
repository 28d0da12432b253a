"""Presets: named networks, each with its config, the data set it was made for, and a recipe.

"Figure 1", "Table 1" and "Table 2" refer to Srivastava, Greff and Schmidhuber 2015, "Training Very Deep
Networks".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnpike.common.similar_names import similar_name
from turnpike.models.choices import DEFAULT_PRESET, PRESET_SUMMARIES, LayerKind
from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import NetConfig
from turnpike.models.networks.cbhg import CbhgConfig
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.feedforward import ConvConfig, MlpConfig, matched_width
from turnpike.models.networks.grid_lstm import GridLstmConfig
from turnpike.models.networks.recurrent import HighwayLstmConfig, RhnConfig
from turnpike.models.networks.transformer import TransformerConfig
from turnpike.models.training.recipe import FIGURE_1_RECIPE, Recipe

# shapes of one row
DIGIT = (1, 8, 8)
MNIST = (1, 28, 28)
CIFAR = (3, 32, 32)


@dataclass(frozen=True)
class Preset:
    """A named network, with the data and the recipe that `turnpike train` uses by default."""

    data: str
    config: NetConfig
    recipe: Recipe


def find_preset(name: str) -> Preset:
    """Return the preset with this name; otherwise raise a ConfigError that lists all names."""
    if name not in PRESETS:
        similar = similar_name(name, list(PRESETS))
        question = f". Did you mean {similar!r}?" if similar else ""
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}, got {name!r}{question}")
    return PRESETS[name]


def figure_1_config(kind: LayerKind, depth: int, *, width: int | None = None) -> MlpConfig:
    """Return the config of a network of the paper's Figure 1, with about equal parameters for every kind.

    Gates of deeper networks start further closed; the paper searched biases from -1 to -10. With a bias of
    -2, 100 layers overflow in their first steps; with -4 they train.

    Args:
        kind: "plain", "residual" or "highway".
        depth: Number of layers, the first of which is always plain.
        width: Units of a highway layer, 50 by default; the other kinds are wider, to match its parameters.
    """
    if depth < 2:
        raise ConfigError(f"depths: expected 2 or more, because the first layer is plain, got {depth}")
    width = 50 if width is None else width
    return MlpConfig(
        inputs=MNIST,
        classes=10,
        kind=kind,
        width=width if kind == "highway" else matched_width(width),
        layers=depth - 1,
        gate_bias=-2.0 if depth <= 20 else -4.0,
    )


_KIND_SUFFIXES: tuple[tuple[LayerKind, str], ...] = (
    ("highway", ""),
    ("plain", "-plain"),
    ("residual", "-residual"),
)
_DIGITS_10 = MlpConfig(inputs=DIGIT, classes=10, width=64, layers=10)
_DECK = MlpConfig(inputs=MNIST, classes=10, width=784, layers=20, entry="none", gate_bias=0.0, scaling="unit")
_CONV = ConvConfig(inputs=MNIST, classes=10, stages=((16, 2), (16, 3), (16, 3)), gate_bias=-1.0)
_CONV_16 = replace(_CONV, dropout=(0.0, 0.1, 0.1, 0.2))
_CONV_RECIPE = Recipe(
    epochs=15,
    batch=128,
    lr=3e-3,
    schedule="onecycle",
    weight_decay=1e-3,
    clip=1.0,
    shift=2,
    threads=0,
)
_FITNET = ConvConfig(
    inputs=CIFAR,
    classes=10,
    stages=((16, 2), (32, 3), (64, 2)),
    average=True,
    dropout=(0.0, 0.2, 0.2, 0.2),
)
_FITNET_RECIPE = Recipe(
    epochs=100, batch=128, lr=2e-3, schedule="onecycle", weight_decay=5e-4, shift=4, threads=0
)
_SEQUENCE_RECIPE = Recipe(epochs=40, batch=64, lr=3e-3, schedule="cosine", clip=1.0)

_NETWORKS: dict[str, tuple[NetConfig, Recipe]] = {
    DEFAULT_PRESET: (
        _DIGITS_10,
        # distorted and thickened, because the page lets people draw digits, which vary more than the data
        Recipe(epochs=45, batch=64, lr=3e-3, schedule="onecycle", distort=0.2, thickness=0.2),
    ),
    "deck-20": (
        _DECK,
        Recipe(epochs=50, batch=1000, lr=1e-3, test_fraction=0.25, threads=0),
    ),
    **{
        f"fig1-{depth}{suffix}": (
            figure_1_config(kind, depth),
            FIGURE_1_RECIPE,
        )
        for depth in (10, 20, 50, 100)
        for kind, suffix in _KIND_SUFFIXES
    },
    "conv-16": (
        _CONV_16,
        _CONV_RECIPE,
    ),
    **{
        f"conv-16{suffix}": (
            replace(
                _CONV_16,
                kind=kind,
                stages=tuple((matched_width(maps), layers) for maps, layers in _CONV_16.stages),
            ),
            _CONV_RECIPE,
        )
        for kind, suffix in _KIND_SUFFIXES[1:]
    },
    "conv-32": (
        replace(_CONV, stages=((32, 2), (32, 3), (32, 3)), dropout=(0.0, 0.2, 0.2, 0.4)),
        _CONV_RECIPE,
    ),
    "fitnet-a": (
        _FITNET,
        _FITNET_RECIPE,
    ),
    "fitnet-b": (
        replace(_FITNET, stages=((32, 4), (80, 5), (128, 5)), head=100),
        _FITNET_RECIPE,
    ),
    "fitnet-c": (
        replace(_FITNET, stages=((32, 9), (48, 9), (64, 9)), head=100),
        _FITNET_RECIPE,
    ),
    "charcnn": (
        CharacterCnnConfig(inputs=(8, 12), classes=11, alphabet=38),
        Recipe(epochs=15, batch=64, lr=3e-3, schedule="cosine", clip=1.0),
    ),
    "cbhg": (
        CbhgConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "rhn": (
        RhnConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "highway-lstm": (
        HighwayLstmConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "grid-lstm": (
        GridLstmConfig(inputs=(24,), classes=2, width=32, depth=1, forget_bias=8.0, gain=1.5),
        # with a learning rate that starts at its maximum, or a gain of 2, some seeds stay at 50 % accuracy
        Recipe(epochs=30, batch=100, lr=1e-2, schedule="onecycle"),
    ),
    "grid-lstm-1d": (
        GridLstmConfig(inputs=DIGIT, classes=10, dimensions=1, width=64, depth=6),
        _SEQUENCE_RECIPE,
    ),
    "grid-lstm-3d": (
        GridLstmConfig(inputs=DIGIT, classes=10, dimensions=3, patch=2, width=32, depth=2),
        _SEQUENCE_RECIPE,
    ),
    "transformer": (
        TransformerConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "transformer-residual": (
        TransformerConfig(inputs=DIGIT, classes=10, join="residual", feedforward=193),
        _SEQUENCE_RECIPE,
    ),
}

PRESETS = {
    name: Preset(PRESET_SUMMARIES[name].data, config, recipe) for name, (config, recipe) in _NETWORKS.items()
}
