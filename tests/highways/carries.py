"""Carries that are more than 1 - T times the input: gates of their own, softmaxes, maps and projections."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.highways.example import Example, called, opened


class Independent(nn.Module):
    """y = T H + C x, with no relation between T and C."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(size, size)
        self.t = nn.Linear(size, size)
        self.c = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.h(x)) * torch.sigmoid(self.t(x)) + x * torch.sigmoid(self.c(x))


class IndependentFused(nn.Module):
    """[H | T | C] of one Linear, where H is a sigmoid as well."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.all = nn.Linear(size, 3 * size)

    def forward(self, x: Tensor) -> Tensor:
        h, t, c = self.all(x).chunk(3, dim=-1)
        return torch.sigmoid(c) * x + torch.sigmoid(t) * torch.tanh(h)


class Softmax(nn.Module):
    """T and C are a softmax over a pair of logits for every unit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(size, size)
        self.t = nn.Linear(size, size)
        self.c = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        pair = torch.softmax(torch.stack([self.t(x), self.c(x)], dim=-1), dim=-1)
        return pair[..., 0] * torch.relu(self.h(x)) + pair[..., 1] * x


class SoftmaxFused(nn.Module):
    """The pairs of logits come out of one Linear, pair after pair."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(size, size)
        self.pair = nn.Linear(size, 2 * size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        t, c = self.pair(x).unflatten(-1, (2, self.size)).softmax(-2).unbind(-2)
        return t * torch.tanh(self.h(x)) + c * x


class LearnedCarry(nn.Module):
    """What is carried goes through a Linear of its own, and a normalisation."""

    def __init__(self, inputs: int, size: int, *, norm: bool = False) -> None:
        super().__init__()
        self.h = nn.Linear(inputs, size)
        self.gate = nn.Linear(inputs, size)
        self.carried = nn.Linear(inputs, size)
        self.norm = nn.LayerNorm(size) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return torch.relu(self.h(x)) * t + self.norm(self.carried(x)) * (1 - t)


class Padded(nn.Module):
    """What is carried is padded with zeros, as the layer is wider than its input."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(inputs, size)
        self.gate = nn.Linear(inputs, size)
        self.more = size - inputs

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.h(x)) + (1 - t) * F.pad(x, (0, self.more))


class Projected(nn.Module):
    """Made the right size before all layers, so that each carries its very input."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.resize = nn.Linear(inputs, size, bias=False)
        self.h = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.resize(x)
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.h(x)) + (1 - t) * x


class Scaled(nn.Module):
    """A carry that is counted more than once, or less, as a correction of the variance."""

    def __init__(self, size: int, times: float) -> None:
        super().__init__()
        self.times = times
        self.gate = nn.Linear(size, size)
        self.h = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.h(x)
        r = torch.sigmoid(self.gate(x) + y)
        return self.times * (1.0 - r) * x + r * y


class Normed(nn.Module):
    """A gated join about a part that normalises its input first, and one gate for a whole row."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.h = nn.Linear(size, size)
        self.gate = nn.Linear(size, 1)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * self.h(self.norm(x)) + (1 - t) * x


def softmaxed(seen: list[Tensor]) -> list[Tensor]:
    t, c = seen
    return [torch.sigmoid(t - c)]


def summed(seen: list[Tensor]) -> list[Tensor]:
    return [torch.sigmoid(seen[0] + seen[1])]


def halves(seen: list[Tensor]) -> list[Tensor]:
    t, c = seen[0].chunk(2, dim=-1)
    return [torch.sigmoid(t - c)]


ROWS = [
    Example("independent", lambda: Independent(6), (6,), called("t"), opened, (("independent", "identity"),)),
    Example("softmax", lambda: Softmax(6), (6,), called("t", "c"), softmaxed, (("softmax", "identity"),)),
    Example(
        "softmax pairs", lambda: SoftmaxFused(6), (6,), called("pair"), halves, (("softmax", "identity"),)
    ),
    Example("learned", lambda: LearnedCarry(6, 6), (6,), called("gate"), opened, (("coupled", "projected"),)),
    Example(
        "normed",
        lambda: LearnedCarry(6, 6, norm=True),
        (6,),
        called("gate"),
        opened,
        (("coupled", "projected"),),
    ),
    *(
        Example(
            f"scaled by {times}",
            lambda times=times: Scaled(6, times),
            (6,),
            called("gate", "h"),
            summed,
            (("coupled", "projected"),),
        )
        for times in (1.732, 0.5)
    ),
]
TIMES = [
    Example(
        "independent, fused",
        lambda: IndependentFused(6),
        (5, 6),
        called("all"),
        lambda seen: [torch.sigmoid(seen[0][..., 6:12])],
        (("independent", "identity"),),
    ),
    Example("gate of a row", lambda: nn.Sequential(Normed(6), Normed(6)), (5, 6), called("gate"), opened),
]
EXAMPLES = [
    Example("widened", lambda: LearnedCarry(4, 6), (4,), called("gate"), opened, (("coupled", "projected"),)),
    Example("padded", lambda: Padded(4, 6), (4,), called("gate"), opened, (("coupled", "projected"),)),
    Example("projected before", lambda: Projected(4, 6), (4,), called("gate"), opened),
]
