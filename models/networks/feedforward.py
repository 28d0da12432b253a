"""Whole feed-forward nets and their twins: plain, residual or highway, dense or convolutional."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar, Literal, get_args

from torch import Tensor, nn

from models.checks import expect, expect_choice
from models.layers.activation import initialize_weights, maxout_pieces
from models.layers.gate import Carry
from models.layers.highway import HighwayLayer, convolution_maps
from models.layers.resize import SubSample, ZeroPad
from models.layers.transform import DENSE, Init, MapKind, PlainLayer, ResidualLayer
from models.networks.base import Net, NetConfig

LayerKind = Literal["plain", "residual", "highway"]
EntryKind = Literal["plain", "pad", "subsample", "none"]


def matched_width(width: int) -> int:
    """The width at which a layer with one map has about the parameters of a highway layer, which has two."""
    return round(width * 2**0.5)


@dataclass(frozen=True, kw_only=True)
class StackConfig(NetConfig):
    """What dense and convolutional stacks share: which kind of layer they are made of, and how it is set."""

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

    def layer_maker(self, medium: MapKind, depth: int, dropout: float = 0.0) -> Callable[[int], nn.Module]:
        """Makes one layer of this kind of a given width; `depth` is how many stand on each other."""
        kinds: dict[LayerKind, Callable[..., nn.Module]] = {
            "plain": PlainLayer,
            "residual": partial(ResidualLayer, depth=depth),
            "highway": partial(HighwayLayer, gate_bias=self.gate_bias, carry=self.carry),
        }
        return partial(
            kinds[self.kind],
            map_kind=medium,
            activation=self.activation,
            dropout=dropout,
            batch_norm=self.batch_norm,
            init=self.init,
        )


@dataclass(frozen=True, kw_only=True)
class MlpConfig(StackConfig):
    """A dense net: an entry that makes `width` values of a row, then `layers` layers, then the output.

    `entry` is a plain layer, zero padding, sub-sampling, or none where a row has `width` values already.
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
        values = prod(self.inputs)
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
    """Shapes: (batch, *inputs), flattened -> (batch, classes)."""

    def __init__(self, config: MlpConfig) -> None:
        super().__init__(config)
        values = prod(config.inputs)
        entries: dict[EntryKind, Callable[[], nn.Module]] = {
            "plain": lambda: PlainLayer(
                values, config.width, activation=config.activation, dropout=config.dropout, init=config.init
            ),
            "pad": lambda: ZeroPad(values, config.width),
            "subsample": lambda: SubSample(values, config.width),
            "none": nn.Identity,
        }
        make_layer = config.layer_maker(DENSE, config.layers, config.dropout)
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
    """A convolutional net in stages of (channels, layers).

    A stage whose channels differ from what comes in begins with a plain convolution, the first always
    does. A 2 wide max pool stands after every stage; with `average`, the last one is instead averaged
    over its whole plane, after a 1 wide convolution to `head` channels where that is given.
    `dropout` has one rate for the input and one after each stage.
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
        convolution_maps(len(self.inputs) - 1, self.kernel)
        pools = len(self.stages) - self.average
        expect(
            min(self.inputs[1:]) >> pools > 0,
            f"stages: {pools} poolings by 2 leave nothing of rows of {self.inputs}",
        )
        expect(self.head >= 0, f"head: expected 0 or more channels, got {self.head}")
        expect(self.average or not self.head, "head: needs average=True")


class ConvNet(Net):
    """Shapes: (batch, channels, length) or (batch, channels, height, width) -> (batch, classes)."""

    def __init__(self, config: ConvConfig) -> None:
        super().__init__(config)
        dims = len(config.inputs) - 1
        medium = convolution_maps(dims, config.kernel)
        pool = (nn.MaxPool1d, nn.MaxPool2d)[dims - 1]
        make_layer = config.layer_maker(medium, sum(layers for _, layers in config.stages))
        rates = config.dropout or (0.0,) * (len(config.stages) + 1)

        def change(inputs: int, units: int, medium: MapKind) -> PlainLayer:
            return PlainLayer(
                inputs,
                units,
                map_kind=medium,
                activation=config.activation,
                batch_norm=config.batch_norm,
                init=config.init,
            )

        body: list[nn.Module] = [nn.Dropout(rates[0])] if rates[0] else []
        before = config.inputs[0]
        for place, (channels, layers) in enumerate(config.stages):
            last = place == len(config.stages) - 1
            if place == 0 or channels != before:
                body.append(change(before, channels, medium))
            body.extend(make_layer(channels) for _ in range(layers))
            before = channels
            if not (last and config.average):
                body.append(pool(2))
            elif config.head:
                body.append(change(before, config.head, convolution_maps(dims, 1)))
                before = config.head
            if rates[place + 1]:
                body.append(nn.Dropout(rates[place + 1]))
        self.body = nn.Sequential(*body)
        self.average = config.average
        left = 1 if config.average else prod(size >> len(config.stages) for size in config.inputs[1:])
        self.output = nn.Linear(before * left, config.classes)
        if config.init == "scaled":
            initialize_weights(self.output, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        x = self.body(x).flatten(2)
        return self.output(x.mean(2) if self.average else x.flatten(1))
