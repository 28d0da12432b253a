"""Convolutional highways, on sequences and images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.highways.example import Example, gates_of_carry_logits, gates_of_logits, modules_named


class Conv2dHighway(nn.Module):
    """Two convolutions that keep the size of the image."""

    def __init__(self, maps: int, *, bias: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(maps, maps, 3, padding=1)
        self.gate = nn.Conv2d(maps, maps, 3, padding=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.conv(x)) + (1 - t) * x


class Halved(nn.Module):
    """Convolutions with a stride of 2; the carried branch is max-pooled."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(maps, maps, 2, stride=2)
        self.gate = nn.Conv2d(maps, maps, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.conv(x)) + (1 - t) * F.max_pool2d(x, 2)


class OneMap(nn.Module):
    """One gate for all channels of a pixel, with a constant added to its logit."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(maps, maps, 3, padding=1)
        self.gate = nn.Conv2d(maps, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(-1 + self.gate(x))
        return t * torch.relu(self.conv(x)) + (1 - t) * x


class Conv1dFused(nn.Module):
    """One fused convolution [c | H], as in text-to-speech networks."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = nn.Conv1d(size, 2 * size, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        c, h = self.gate(x).chunk(2, dim=1)
        c = torch.sigmoid(c)
        return (1 - c) * h + c * x


class ChannelsLast(nn.Module):
    """Convolutions on (batch, length, channels), transposed before and after each."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(size, size, 3, padding=1)
        self.gate = nn.Conv1d(size, size, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x.transpose(1, 2)).transpose(1, 2))
        return x + t * (torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2) - x)


EXAMPLES = [
    Example(
        "conv2d",
        lambda: nn.Sequential(nn.Conv2d(1, 3, 3), Conv2dHighway(3), nn.MaxPool2d(2), Conv2dHighway(3)),
        (1, 8, 8),
        modules_named("gate"),
        gates_of_logits,
        unit_axis=-3,
    ),
    Example(
        "one map",
        lambda: OneMap(3),
        (3, 6, 6),
        modules_named("gate"),
        lambda outputs: [torch.sigmoid(logit - 1) for logit in outputs],
        unit_axis=-3,
    ),
    Example(
        "halved",
        lambda: Halved(3),
        (3, 6, 6),
        modules_named("gate"),
        gates_of_logits,
        (("coupled", "projected"),),
        unit_axis=-3,
    ),
    Example(
        "conv2d without bias",
        lambda: Conv2dHighway(3, bias=False),
        (3, 6, 6),
        modules_named("gate"),
        gates_of_logits,
        unit_axis=-3,
    ),
    Example(
        "conv1d fused",
        lambda: nn.Sequential(Conv1dFused(3), Conv1dFused(3)),
        (3, 8),
        modules_named("gate"),
        lambda outputs: gates_of_carry_logits([both[:, :3] for both in outputs]),
        unit_axis=-2,
    ),
    Example(
        "channels last",
        lambda: ChannelsLast(3),
        (8, 3),
        modules_named("gate"),
        lambda outputs: [torch.sigmoid(logit.transpose(1, 2)) for logit in outputs],
    ),
]
