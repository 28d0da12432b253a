"""Feed-forward networks, dense and convolutional, made of plain, residual or highway layers.

The kind of layer is a setting, so a highway network and its plain or residual counterpart differ in nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar, Literal, get_args

from torch import Tensor, nn

from turnpike.models.checks import expect, expect_choice
from turnpike.models.choices import LayerKind
from turnpike.models.layers.activation import initialize_weights, maxout_pieces
from turnpike.models.layers.gate import Carry
from turnpike.models.layers.highway import HighwayLayer, convolution_maps
from turnpike.models.layers.resize import SubSample, ZeroPad
from turnpike.models.layers.transform import DENSE, Init, MapKind, PlainLayer, ResidualLayer
from turnpike.models.networks.base import Net, NetConfig

EntryKind = Literal["plain", "pad", "subsample", "none"]


def matched_width(width: int) -> int:
    """The width at which a plain or residual layer has about as many parameters as a highway layer.

    A highway layer of `width` units has two maps, the others have one: hence a factor of sqrt(2).
    """
    return round(width * 2**0.5)


@dataclass(frozen=True, kw_only=True)
class StackConfig(NetConfig):
    """The settings that dense and convolutional networks share.

    Attributes:
        kind: The kind of layer: "plain", "residual" or "highway".
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
        carry: "coupled" (C = 1 - T) or "independent" (C is a gate of its own).
        activation: Name of an activation: relu, tanh or maxout(k).
        batch_norm: Normalize the layers' values over the batch.
        init: "scaled" draws weights that suit deep stacks; "torch" keeps PyTorch's own.
    """

    kind: LayerKind = "highway"
    gate_bias: float | None = -2.0
    carry: Carry = "coupled"
    activation: str = "relu"
    batch_norm: bool = False
    init: Init = "scaled"

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_choice("kind", self.kind, get_args(LayerKind))
        expect_choice("carry", self.carry, get_args(Carry))
        expect_choice("init", self.init, get_args(Init))
        expect(
            maxout_pieces(self.activation) == 1 or self.kind != "residual",
            f"activation: a residual net takes relu or tanh, which keep the size, got {self.activation!r}",
        )

    def layer_factory(
        self, map_kind: MapKind, depth: int, dropout: float = 0.0
    ) -> Callable[[int], nn.Module]:
        """Return a function that creates one layer of a given width; `depth` is the number of layers."""
        layer_types: dict[LayerKind, Callable[..., nn.Module]] = {
            "plain": PlainLayer,
            "residual": partial(ResidualLayer, depth=depth),
            "highway": partial(HighwayLayer, gate_bias=self.gate_bias, carry=self.carry),
        }
        return partial(
            layer_types[self.kind],
            map_kind=map_kind,
            activation=self.activation,
            dropout=dropout,
            batch_norm=self.batch_norm,
            init=self.init,
        )


@dataclass(frozen=True, kw_only=True)
class MlpConfig(StackConfig):
    """A dense network: an entry from a row to `width` values, then `layers` layers, then the output.

    Attributes:
        width: Units of each layer.
        layers: Number of layers after the entry.
        entry: How a row becomes `width` values: "plain" (a plain layer), "pad" (zero padding),
            "subsample", or "none" if rows have `width` values already.
        dropout: Probability of zeroing a value of H in each layer.
    """

    family: ClassVar[str] = "mlp"

    width: int
    layers: int
    entry: EntryKind = "plain"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        expect(self.layers > 0, f"layers: expected 1 or more, got {self.layers}")
        expect_choice("entry", self.entry, get_args(EntryKind))
        expect(0 <= self.dropout < 1, f"dropout: expected 0 or more and below 1, got {self.dropout}")
        values = prod(self.row_shape)
        expect(
            self.entry != "none" or values == self.width,
            f"entry: none needs rows of {self.width} values, got rows of {values}",
        )
        expect(
            self.entry != "pad" or values <= self.width,
            f"width: zero padding needs {values} or more, got {self.width}",
        )
        expect(
            self.entry != "subsample" or values >= self.width,
            f"width: sub-sampling needs {values} or fewer, got {self.width}",
        )


class Mlp(Net):
    """The network of an `MlpConfig`. Shapes: (batch, *inputs), flattened -> (batch, classes)."""

    def __init__(self, config: MlpConfig) -> None:
        super().__init__(config)
        values = prod(config.row_shape)
        entries: dict[EntryKind, Callable[[], nn.Module]] = {
            "plain": lambda: PlainLayer(
                values, config.width, activation=config.activation, dropout=config.dropout, init=config.init
            ),
            "pad": lambda: ZeroPad(values, config.width),
            "subsample": lambda: SubSample(values, config.width),
            "none": nn.Identity,
        }
        make_layer = config.layer_factory(DENSE, config.layers, config.dropout)
        self.entry = entries[config.entry]()
        self.layers = nn.ModuleList(make_layer(config.width) for _ in range(config.layers))
        self.output = nn.Linear(config.width, config.classes)
        if config.init == "scaled":
            initialize_weights(self.output, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        x = self.entry(x.flatten(1))
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


@dataclass(frozen=True, kw_only=True)
class ConvConfig(StackConfig):
    """A convolutional network in stages, each followed by a max pool of width 2.

    The first stage, and every stage whose number of channels differs from the one before, begins with a
    plain convolution.

    Attributes:
        stages: Pairs (channels, layers).
        kernel: Size of the convolutions, an odd number.
        average: Average the last stage over all its positions instead of pooling it.
        head: Channels of a 1-wide convolution before that average; 0 for none. Needs `average`.
        dropout: One rate for the input, then one after each stage; () for no dropout.
    """

    family: ClassVar[str] = "conv"

    stages: tuple[tuple[int, int], ...]
    kernel: int = 3
    average: bool = False
    head: int = 0
    dropout: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(
            len(self.inputs) in (2, 3),
            f"inputs: expected (channels, length) or (channels, height, width), got {self.inputs}",
        )
        expect(
            len(self.stages) > 0
            and all(len(stage) == 2 and stage[0] > 0 and stage[1] >= 0 for stage in self.stages),
            f"stages: expected pairs (channels, layers), got {self.stages}",
        )
        expect(
            len(self.dropout) in (0, len(self.stages) + 1),
            f"dropout: expected {len(self.stages) + 1} rates, the input's first, got {self.dropout}",
        )
        expect(
            all(0 <= rate < 1 for rate in self.dropout),
            f"dropout: expected rates of 0 or more and below 1, got {self.dropout}",
        )
        convolution_maps(len(self.inputs) - 1, self.kernel)  # raises if the kernel is invalid
        pools = len(self.stages) - self.average
        expect(
            min(self.inputs[1:]) >> pools > 0,
            f"stages: {pools} poolings by 2 leave nothing of rows of {self.inputs}",
        )
        expect(self.head >= 0, f"head: expected 0 or more channels, got {self.head}")
        expect(self.average or not self.head, "head: needs average=True")


class ConvNet(Net):
    """The network of a `ConvConfig`.

    Shapes: (batch, channels, length) or (batch, channels, height, width) -> (batch, classes).
    """

    def __init__(self, config: ConvConfig) -> None:
        super().__init__(config)
        dims = len(config.inputs) - 1
        map_kind = convolution_maps(dims, config.kernel)
        pool = (nn.MaxPool1d, nn.MaxPool2d)[dims - 1]
        make_layer = config.layer_factory(map_kind, sum(layers for _, layers in config.stages))
        rates = config.dropout or (0.0,) * (len(config.stages) + 1)

        def change_channels(inputs: int, units: int, map_kind: MapKind) -> PlainLayer:
            return PlainLayer(
                inputs,
                units,
                map_kind=map_kind,
                activation=config.activation,
                batch_norm=config.batch_norm,
                init=config.init,
            )

        body: list[nn.Module] = [nn.Dropout(rates[0])] if rates[0] else []
        current = config.inputs[0]  # channels of what goes into the next layer
        for stage, (channels, layers) in enumerate(config.stages):
            # a plain convolution, then the stage's layers
            if stage == 0 or channels != current:
                body.append(change_channels(current, channels, map_kind))
            body.extend(make_layer(channels) for _ in range(layers))
            current = channels
            # a pool, or before the average of the last stage an optional 1-wide convolution
            is_last = stage == len(config.stages) - 1
            if not (is_last and config.average):
                body.append(pool(2))
            elif config.head:
                body.append(change_channels(current, config.head, convolution_maps(dims, 1)))
                current = config.head
            if rates[stage + 1]:
                body.append(nn.Dropout(rates[stage + 1]))
        self.body = nn.Sequential(*body)
        self.average = config.average
        positions = 1 if config.average else prod(size >> len(config.stages) for size in config.inputs[1:])
        self.output = nn.Linear(current * positions, config.classes)
        if config.init == "scaled":
            initialize_weights(self.output, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        x = self.body(x).flatten(2)
        return self.output(x.mean(2) if self.average else x.flatten(1))
