"""Networks by name: a config, the data it was made for, and a recipe that trains it.

Figures and tables are those of Srivastava, Greff and Schmidhuber 2015, "Training Very Deep Networks".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.errors import ConfigError
from models.networks.base import NetConfig
from models.networks.cbhg import CbhgConfig
from models.networks.character_cnn import CharacterCnnConfig
from models.networks.feedforward import ConvConfig, LayerKind, MlpConfig, matched_width
from models.networks.grid_lstm import GridLstmConfig
from models.networks.recurrent import HighwayLstmConfig, RhnConfig
from models.networks.transformer import TransformerConfig
from models.training.recipe import Recipe

DEFAULT_PRESET = "digits-10"

DIGIT = (1, 8, 8)
MNIST = (1, 28, 28)
CIFAR = (3, 32, 32)


@dataclass(frozen=True)
class Preset:
    """A named network and how it is trained unless told otherwise."""

    about: str
    data: str
    config: NetConfig
    recipe: Recipe


def find_preset(name: str) -> Preset:
    """The preset of a name, or a ConfigError that lists them all."""
    if name not in PRESETS:
        raise ConfigError(f"preset: expected one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]


def figure_1_config(kind: LayerKind, depth: int, *, width: int | None = None) -> MlpConfig:
    """A net of the paper's Figure 1: `depth` layers in all, the first plain; twins match by the layer.

    The deeper the net, the more its gates start closed, as in the paper's search from -1 to -10: 100
    layers that begin at -2 overflow in their first steps, and train at -4.
    """
    if depth < 2:
        raise ConfigError(f"depths: expected 2 or more, the first layer being plain, got {depth}")
    highway = 50 if width is None else width
    return MlpConfig(
        inputs=MNIST,
        classes=10,
        kind=kind,
        width=highway if kind == "highway" else matched_width(highway),
        layers=depth - 1,
        gate_bias=-2.0 if depth <= 20 else -4.0,
    )


FIGURE_1_RECIPE = Recipe(epochs=10, batch=100, lr=1e-3, clip=1.0)

_TWINS: tuple[tuple[LayerKind, str], ...] = (("highway", ""), ("plain", "-plain"), ("residual", "-residual"))
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

PRESETS: dict[str, Preset] = {
    DEFAULT_PRESET: Preset(
        "the default: 10 highways of 64",
        "digits",
        _DIGITS_10,
        Recipe(epochs=40, batch=64, lr=1e-3),
    ),
    "deck-20": Preset(
        "20 highways as wide as the image",
        "mnist",
        _DECK,
        Recipe(epochs=50, batch=1000, lr=1e-3, test_fraction=0.25, threads=0),
    ),
    **{
        f"fig1-{depth}{suffix}": Preset(
            f"Figure 1: {depth} layers, {kind}",
            "mnist",
            figure_1_config(kind, depth),
            FIGURE_1_RECIPE,
        )
        for depth in (10, 20, 50, 100)
        for kind, suffix in _TWINS
    },
    "conv-16": Preset(
        "Table 1: 9 layers of 16 maps",
        "mnist",
        _CONV_16,
        _CONV_RECIPE,
    ),
    **{
        f"conv-16{suffix}": Preset(
            f"Table 1: the {kind} twin of conv-16",
            "mnist",
            replace(
                _CONV_16,
                kind=kind,
                stages=tuple((matched_width(maps), layers) for maps, layers in _CONV_16.stages),
            ),
            _CONV_RECIPE,
        )
        for kind, suffix in _TWINS[1:]
    },
    "conv-32": Preset(
        "Table 1: 9 layers of 32 maps",
        "mnist",
        replace(_CONV, stages=((32, 2), (32, 3), (32, 3)), dropout=(0.0, 0.2, 0.2, 0.4)),
        _CONV_RECIPE,
    ),
    "fitnet-a": Preset(
        "Table 2: 11 layers as in FitNet 1",
        "cifar10",
        _FITNET,
        _FITNET_RECIPE,
    ),
    "fitnet-b": Preset(
        "Table 2: 19 layers as in FitNet 4",
        "cifar10",
        replace(_FITNET, stages=((32, 4), (80, 5), (128, 5)), head=100),
        _FITNET_RECIPE,
    ),
    "fitnet-c": Preset(
        "Table 2: 32 thin layers",
        "cifar10",
        replace(_FITNET, stages=((32, 9), (48, 9), (64, 9)), head=100),
        _FITNET_RECIPE,
    ),
    "charcnn": Preset(
        "character CNN with 2 highways",
        "names",
        CharacterCnnConfig(inputs=(8, 12), classes=11, alphabet=38),
        Recipe(epochs=15, batch=64, lr=3e-3, schedule="cosine", clip=1.0),
    ),
    "cbhg": Preset(
        "Tacotron's CBHG, 4 highways",
        "digits",
        CbhgConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "rhn": Preset(
        "recurrent highway, depth 3",
        "digits",
        RhnConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "highway-lstm": Preset(
        "3 LSTM layers with depth gates",
        "digits",
        HighwayLstmConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "grid-lstm": Preset(
        "Grid LSTM, learns 24 bits' parity",
        "parity-24",
        GridLstmConfig(inputs=(24,), classes=2, width=32, depth=1, forget_bias=8.0, gain=1.5),
        # a rate that begins at its height, or a gain of 2, leaves some seeds at 50 % for good
        Recipe(epochs=30, batch=100, lr=1e-2, schedule="onecycle"),
    ),
    "grid-lstm-1d": Preset(
        "1-D Grid LSTM, along depth alone",
        "digits",
        GridLstmConfig(inputs=DIGIT, classes=10, dimensions=1, width=64, depth=6),
        _SEQUENCE_RECIPE,
    ),
    "grid-lstm-3d": Preset(
        "3-D Grid LSTM over patches",
        "digits",
        GridLstmConfig(inputs=DIGIT, classes=10, dimensions=3, patch=2, width=32, depth=2),
        _SEQUENCE_RECIPE,
    ),
    "transformer": Preset(
        "Transformer with gated joins",
        "digits",
        TransformerConfig(inputs=DIGIT, classes=10),
        _SEQUENCE_RECIPE,
    ),
    "transformer-residual": Preset(
        "its twin with add-and-norm",
        "digits",
        TransformerConfig(inputs=DIGIT, classes=10, join="residual", feedforward=193),
        _SEQUENCE_RECIPE,
    ),
}
