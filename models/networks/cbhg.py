"""CBHG, a part of Tacotron: a bank of convolutions, highway layers and a bidirectional GRU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnpike.models.checks import expect
from turnpike.models.layers.activation import initialize_weights
from turnpike.models.layers.highway import HighwayLayer
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.sequence import as_sequence, expect_sequence, sequence_shape


class NormedConv(nn.Module):
    """y = norm(W * x): a convolution that keeps the length, then batch normalization.

    W covers (width - 1) // 2 steps before and width // 2 steps after each position. It has no bias, because
    the normalization subtracts the mean and has a bias of its own. Weights are drawn after He et al. 2015.
    Shapes: (batch, inputs, time) -> (batch, units, time).
    """

    def __init__(self, inputs: int, units: int, width: int) -> None:
        super().__init__()
        self.padding = ((width - 1) // 2, width // 2)
        self.convolve = nn.Conv1d(inputs, units, width, bias=False)
        self.norm = nn.BatchNorm1d(units)
        initialize_weights(self.convolve, "relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.convolve(F.pad(x, self.padding)))


class ConvBank(nn.Module):
    """y = [relu(norm(W_1 * x)), ..., relu(norm(W_K * x))], where W_k has width k, like k-grams.

    Shapes: (batch, inputs, time) -> (batch, widths * channels, time).
    """

    def __init__(self, inputs: int, widths: int, channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(NormedConv(inputs, channels, width) for width in range(1, widths + 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat([conv(x) for conv in self.convs], dim=1))


class PairMax(nn.Module):
    """y_t = max(x_t, x_(t+1)), and y_t = x_t at the last step: a max pool that keeps the length.

    Shapes: (..., time) -> the same.
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.maximum(x, torch.cat((x[..., 1:], x[..., -1:]), dim=-1))


class Cbhg(nn.Module):
    """Convolution bank, highway layers and bidirectional GRU over a sequence.

        p = norm(W_2 * relu(norm(W_1 * pairmax(bank(x)))))             W_1 and W_2 have width 3
        y = bidirectional_gru(highway(... highway(W (x + p) + b)))     no W if inputs = width

    Wang et al. 2017, "Tacotron: Towards End-to-End Speech Synthesis". The convolutions are drawn after He,
    the map before the highway layers after Glorot, the highway layers with init="scaled"; the GRU keeps
    PyTorch's own initialization.
    Shapes: (batch, time, inputs) -> (batch, time, 2 * width).

    Args:
        inputs: Features of one time step.
        bank: The bank has convolutions of widths 1 to `bank`.
        channels: Channels of each convolution of the bank.
        projection: Channels between the two convolutions after the bank.
        width: Units of the highway layers, and of the GRU in each direction.
        highways: Number of highway layers.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
    """

    def __init__(
        self,
        inputs: int,
        *,
        bank: int = 16,
        channels: int = 128,
        projection: int = 128,
        width: int = 128,
        highways: int = 4,
        gate_bias: float | None = -2.0,
    ) -> None:
        super().__init__()
        sizes = {
            "inputs": inputs,
            "bank": bank,
            "channels": channels,
            "projection": projection,
            "width": width,
        }
        for name, size in sizes.items():
            expect(size > 0, f"{name}: expected 1 or more, got {size}")
        expect(highways >= 0, f"highways: expected 0 or more, got {highways}")
        self.inputs = inputs
        self.bank = ConvBank(inputs, bank, channels)
        self.pool = PairMax()
        self.projections = nn.Sequential(
            NormedConv(bank * channels, projection, 3), nn.ReLU(), NormedConv(projection, inputs, 3)
        )
        self.resize: nn.Linear | None = None
        if inputs != width:
            self.resize = nn.Linear(inputs, width)
            initialize_weights(self.resize, "tanh")
        self.highways = nn.ModuleList(
            HighwayLayer(width, gate_bias=gate_bias, init="scaled") for _ in range(highways)
        )
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        expect_sequence(self, x, self.inputs)
        p = self.projections(self.pool(self.bank(x.transpose(1, 2))))
        h = x + p.transpose(1, 2)
        if self.resize is not None:
            h = self.resize(h)
        for highway in self.highways:
            h = highway(h)
        y, _ = self.gru(h)
        return y

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class CbhgConfig(NetConfig):
    """A CBHG over a sequence, or over the lines of an image.

    Attributes:
        bank: The bank has convolutions of widths 1 to `bank`.
        channels: Channels of each convolution of the bank.
        projection: Channels between the two convolutions after the bank.
        width: Units of the highway layers, and of the GRU in each direction.
        highways: Number of highway layers.
        dropout: Dropout rate before the output layer.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
    """

    family: ClassVar[str] = "cbhg"

    bank: int = 8
    channels: int = 32
    projection: int = 64
    width: int = 64
    highways: int = 4
    dropout: float = 0.0
    gate_bias: float | None = -2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        sequence_shape(self.inputs)
        for name in ("bank", "channels", "projection", "width"):
            size = getattr(self, name)
            expect(size > 0, f"{name}: expected 1 or more, got {size}")
        expect(self.highways >= 0, f"highways: expected 0 or more, got {self.highways}")
        expect(0 <= self.dropout < 1, f"dropout: expected 0 or more and below 1, got {self.dropout}")


class CbhgNet(Net):
    """CBHG -> mean over time -> Linear.

    Sequences may have any length; images have a fixed number of lines.
    Shapes: (batch, time, features) or (batch, channels, height, width) -> (batch, classes).
    """

    def __init__(self, config: CbhgConfig) -> None:
        super().__init__(config)
        self.free_axes = (0,) if len(config.inputs) == 2 else ()
        _, features = sequence_shape(config.inputs)
        self.cbhg = Cbhg(
            features,
            bank=config.bank,
            channels=config.channels,
            projection=config.projection,
            width=config.width,
            highways=config.highways,
            gate_bias=config.gate_bias,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(2 * config.width, config.classes)
        initialize_weights(self.output, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(self.cbhg(as_sequence(x)).mean(dim=1)))
