"""Layers with one Linear for H and one for the gate, and every way to write the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.highways.example import Example, gates_of_carry_logits, gates_of_logits, modules_named

Join = Callable[[Tensor, Tensor, Tensor], Tensor]


class Layer(nn.Module):
    """One Linear for H and one for the gate; `join` is the formula, `squash` the sigmoid."""

    def __init__(
        self,
        size: int,
        join: Join = lambda t, h, x: t * h + (1 - t) * x,
        *,
        bias: bool = True,
        squash: Callable[[Tensor], Tensor] = torch.sigmoid,
    ) -> None:
        super().__init__()
        self.normal_layer = nn.Linear(size, size)
        self.gate = nn.Linear(size, size, bias=bias)
        self.join = join
        self.squash = squash

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.normal_layer(x))
        return self.join(self.squash(self.gate(x)), h, x)


class Lists(nn.Module):
    """All H in one list and all gates in another, as in ports of QANet."""

    def __init__(self, layers: int, size: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for linear, gate in zip(self.linear, self.gates, strict=True):
            g = torch.sigmoid(gate(x))
            h = F.dropout(linear(x), p=0.1, training=self.training)
            x = g * h + (1 - g) * x
        return x


class Cbhg(nn.Module):
    """A layer of Tacotron's CBHG on (batch, time, units), with a gate bias of -1."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.H = nn.Linear(size, size)
        self.H.bias.data.zero_()
        self.T = nn.Linear(size, size)
        self.T.bias.data.fill_(-1)
        self.relu = nn.ReLU()
        self.sigmoid = nn.Sigmoid()

    def forward(self, inputs: Tensor) -> Tensor:
        h = self.relu(self.H(inputs))
        t = self.sigmoid(self.T(inputs))
        return h * t + inputs * (1.0 - t)


class GateTwice(nn.Module):
    """Computes the gate twice, for T and for 1 - T."""

    def __init__(self, size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.H = nn.Linear(size, size)
        self.gate = nn.Linear(size, size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.H(x)) * torch.sigmoid(self.gate(x)) + x * (1 - torch.sigmoid(self.gate(x)))


class CarryOnly(nn.Module):
    """A carry gate with a constant added to its logit: neither T nor 1 - C is computed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.H = nn.Linear(size, size)
        self.carry = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.H(x))
        return h + torch.sigmoid(self.carry(x) + 2) * (x - h)


# every way to write y = t h + (1 - t) x
JOINS: dict[str, Join] = {
    "t*h + (1-t)*x": lambda t, h, x: t * h + (1 - t) * x,
    "x*(1-t) + h*t": lambda t, h, x: x * (1 - t) + h * t,
    "x + t*(h-x)": lambda t, h, x: x + t * (h - x),
    "(h-x)*t + x": lambda t, h, x: (h - x) * t + x,
    "x - t*x + t*h": lambda t, h, x: x - t * x + t * h,
    "t*h + (ones-t)*x": lambda t, h, x: t * h + (torch.ones_like(t) - t) * x,
    "t*h + (-t+1)*x": lambda t, h, x: t * h + (-t + 1) * x,
    "t*h - (t-1)*x": lambda t, h, x: t * h - (t - 1) * x,
    "t*h + (new(1)-t)*x": lambda t, h, x: t * h + (t.new_tensor([1]) - t) * x,
    "x + h*t - x*t": lambda t, h, x: x + h * t - x * t,
    "t*h + 1.0*(1-t)*x": lambda t, h, x: t * h + 1.0 * (1 - t) * x,
    "x + t*h - 2*t*x/2": lambda t, h, x: x + t * h - 2 * t * x / 2,
    "addcmul": lambda t, h, x: torch.addcmul(x, t, h - x),
    "lerp": lambda t, h, x: torch.lerp(x, h, t),
    "0 + t*h + (1-t)*x": lambda t, h, x: 0 + t * h + (1 - t) * x,
    "t*h + (1-t)*x + h/2": lambda t, h, x: (t * h + (1 - t) * x) + 0.5 * h,
    "t*h + (1-t)*x + x": lambda t, h, x: x + (t * h + (1 - t) * x),
    "in float64": lambda t, h, x: (t.double() * h.double() + (1 - t.double()) * x.double()).float(),
}
# the same for a carry gate: y = c x + (1 - c) h
CARRY_JOINS: dict[str, Join] = {
    "h + c*(x-h)": lambda c, h, x: h + c * (x - h),
    "c*x + (1-c)*h": lambda c, h, x: c * x + (1 - c) * h,
    "lerp": lambda c, h, x: torch.lerp(h, x, c),
}
SIGMOIDS: list[Callable[[Tensor], Tensor]] = [
    lambda z: 0.5 * torch.tanh(0.5 * z) + 0.5,
    lambda z: (torch.tanh(z / 2) + 1) / 2,
    lambda z: 1 / (1 + torch.exp(-z)),
    F.hardsigmoid,
    lambda z: torch.clamp(0.2 * z + 0.5, 0, 1),
    lambda z: F.relu6(z + 3) / 6,
    lambda z: torch.sigmoid(z / 0.7),
    lambda z: 1 - torch.sigmoid(-z),
    lambda z: F.logsigmoid(z).exp(),
]


def gates_of_sigmoids(logits: list[Tensor]) -> list[Tensor]:
    return [squash(logit) for squash, logit in zip(SIGMOIDS, logits, strict=True)]


ROWS = [
    Example(
        "joins",
        lambda: nn.Sequential(*(Layer(6, join) for join in JOINS.values())),
        (6,),
        modules_named("gate"),
        gates_of_logits,
    ),
    Example(
        "carry gates",
        lambda: nn.Sequential(*(Layer(6, join) for join in CARRY_JOINS.values())),
        (6,),
        modules_named("gate"),
        gates_of_carry_logits,
    ),
    Example(
        "sigmoids",
        lambda: nn.Sequential(*(Layer(6, squash=squash) for squash in SIGMOIDS)),
        (6,),
        modules_named("gate"),
        gates_of_sigmoids,
    ),
    Example(
        "both sides of one logit",
        lambda: Layer(6, lambda z, h, x: torch.sigmoid(z) * h + torch.sigmoid(-z) * x, squash=lambda z: z),
        (6,),
        modules_named("gate"),
        gates_of_logits,
    ),
    Example(
        "nested, without bias",
        lambda: nn.Sequential(nn.Linear(6, 6), nn.Sequential(Layer(6, bias=False), Layer(6, bias=False))),
        (6,),
        modules_named("gate"),
        gates_of_logits,
    ),
    Example(
        "qanet", lambda: Lists(3, 6), (6,), lambda net: cast("nn.ModuleList", net.gates), gates_of_logits
    ),
    Example(
        "gate twice",
        lambda: GateTwice(6),
        (6,),
        modules_named("gate"),
        lambda outputs: gates_of_logits(outputs[:1]),
    ),
    Example(
        "constant in the logit",
        lambda: CarryOnly(6),
        (6,),
        modules_named("carry"),
        lambda logits: [1 - torch.sigmoid(logit + 2) for logit in logits],
    ),
]
TIMES = [
    Example(
        "without bias, in time", lambda: Layer(6, bias=False), (5, 6), modules_named("gate"), gates_of_logits
    ),
    Example(
        "tacotron",
        lambda: nn.Sequential(*(Cbhg(6) for _ in range(4))),
        (7, 6),
        modules_named("T"),
        gates_of_logits,
        bias=-1.0,
    ),
]
