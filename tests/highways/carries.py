"""Layers whose carry is not 1 - T times the input: own gates, softmaxes, linear maps and projections."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.highways.example import Example, gates_of_logits, modules_named


class Bilinear(nn.Module):
    """H is a product of two linear maps, or a linear map of it, and another linear map is carried."""

    def __init__(self, size: int, *, mapped: bool) -> None:
        super().__init__()
        self.a, self.b, self.c, self.gate = (nn.Linear(size, size) for _ in range(4))
        self.last = nn.Linear(size, size) if mapped else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return (1 - t) * self.c(x) + t * self.last(self.a(x) * self.b(x))


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
    """[H | T | C] of one Linear."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.all = nn.Linear(size, 3 * size)

    def forward(self, x: Tensor) -> Tensor:
        h, t, c = self.all(x).chunk(3, dim=-1)
        return torch.sigmoid(c) * x + torch.sigmoid(t) * torch.tanh(h)


class Softmax(nn.Module):
    """T and C are the softmax of a pair of logits for each unit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(size, size)
        self.t = nn.Linear(size, size)
        self.c = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        pair = torch.softmax(torch.stack([self.t(x), self.c(x)], dim=-1), dim=-1)
        return pair[..., 0] * torch.relu(self.h(x)) + pair[..., 1] * x


class SoftmaxFused(nn.Module):
    """One Linear computes the logits of both, first all of T, then all of C."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(size, size)
        self.pair = nn.Linear(size, 2 * size)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        t, c = self.pair(x).unflatten(-1, (2, self.size)).softmax(-2).unbind(-2)
        return t * torch.tanh(self.h(x)) + c * x


class LearnedCarry(nn.Module):
    """The carried branch goes through a Linear of its own, and optionally a normalization."""

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
    """The carried branch is padded with zeros, as the layer is wider than its input."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(inputs, size)
        self.gate = nn.Linear(inputs, size)
        self.more = size - inputs

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.h(x)) + (1 - t) * F.pad(x, (0, self.more))


class Projected(nn.Module):
    """The input is resized before the layer, which then carries its input unchanged."""

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
    """The carried branch is multiplied by a constant, to correct the variance."""

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
    """H normalizes its input first, and one gate serves all units of a row."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.h = nn.Linear(size, size)
        self.gate = nn.Linear(size, 1)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * self.h(self.norm(x)) + (1 - t) * x


def gates_of_pair(outputs: list[Tensor]) -> list[Tensor]:
    t, c = outputs
    return [torch.sigmoid(t - c)]


def gates_of_sum(outputs: list[Tensor]) -> list[Tensor]:
    return [torch.sigmoid(outputs[0] + outputs[1])]


def gates_of_pair_halves(outputs: list[Tensor]) -> list[Tensor]:
    t, c = outputs[0].chunk(2, dim=-1)
    return [torch.sigmoid(t - c)]


ROWS = [
    Example(
        "independent",
        lambda: Independent(6),
        (6,),
        modules_named("t"),
        gates_of_logits,
        (("independent", "identity"),),
    ),
    Example(
        "softmax",
        lambda: Softmax(6),
        (6,),
        modules_named("t", "c"),
        gates_of_pair,
        (("softmax", "identity"),),
    ),
    Example(
        "softmax pairs",
        lambda: SoftmaxFused(6),
        (6,),
        modules_named("pair"),
        gates_of_pair_halves,
        (("softmax", "identity"),),
    ),
    Example(
        "learned",
        lambda: LearnedCarry(6, 6),
        (6,),
        modules_named("gate"),
        gates_of_logits,
        (("coupled", "projected"),),
    ),
    Example(
        "normed",
        lambda: LearnedCarry(6, 6, norm=True),
        (6,),
        modules_named("gate"),
        gates_of_logits,
        (("coupled", "projected"),),
    ),
    *(
        Example(
            f"bilinear, mapped: {mapped}",
            partial(Bilinear, 6, mapped=mapped),
            (6,),
            modules_named("gate"),
            gates_of_logits,
            (("coupled", "projected"),),
        )
        for mapped in (False, True)
    ),
    *(
        Example(
            f"scaled by {times}",
            partial(Scaled, 6, times),
            (6,),
            modules_named("gate", "h"),
            gates_of_sum,
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
        modules_named("all"),
        lambda outputs: [torch.sigmoid(outputs[0][..., 6:12])],
        (("independent", "identity"),),
    ),
    Example(
        "one gate per row",
        lambda: nn.Sequential(Normed(6), Normed(6)),
        (5, 6),
        modules_named("gate"),
        gates_of_logits,
    ),
]
EXAMPLES = [
    Example(
        "widened",
        lambda: LearnedCarry(4, 6),
        (4,),
        modules_named("gate"),
        gates_of_logits,
        (("coupled", "projected"),),
    ),
    Example(
        "padded",
        lambda: Padded(4, 6),
        (4,),
        modules_named("gate"),
        gates_of_logits,
        (("coupled", "projected"),),
    ),
    Example("projected before", lambda: Projected(4, 6), (4,), modules_named("gate"), gates_of_logits),
]
