"""Two Linears a layer, and every way to write the same equation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from highways.example import Example, called, kept, opened


class Layer(nn.Module):
    """One Linear for H, one for the gate; `join` writes the equation."""

    def __init__(
        self,
        size: int,
        join: Callable[[Tensor, Tensor, Tensor], Tensor],
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
    """Every H in one list and every gate in another, as the ports of QANet have it."""

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
    """Layers of Tacotron's CBHG on (batch, time, units), whose gates start at -1."""

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


class TwiceAsked(nn.Module):
    """Asks the gate for T, and once more for 1 - T."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.H = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.H(x)) * torch.sigmoid(self.gate(x)) + x * (1 - torch.sigmoid(self.gate(x)))


class Public(nn.Module):
    """Gives its gate and the block's output away beside what it answers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = Layer(size, lambda t, h, x: t * h + (1 - t) * x)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t = torch.sigmoid(self.layer.gate(x))
        y = t * torch.relu(self.layer.normal_layer(x)) + (1 - t) * x
        return y, t


class Complemented(nn.Module):
    """Adds a constant to the logit, and carries by a gate of its own name: T is computed nowhere."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.H = nn.Linear(size, size)
        self.carry = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.H(x))
        return h + torch.sigmoid(self.carry(x) + 2) * (x - h)


def stack(join: Callable[[Tensor, Tensor, Tensor], Tensor], **options: object) -> Callable[[], nn.Module]:
    """Two layers in a Sequential within a Sequential."""

    def make() -> nn.Module:
        layers = nn.Sequential(*(Layer(6, join, **options) for _ in range(2)))  # type: ignore[arg-type]
        return nn.Sequential(nn.Linear(4, 6), layers, nn.Linear(6, 3))

    return make


def twice(shape: tuple[int, ...] = (4,)) -> dict[str, object]:
    return {"shape": shape, "looked_at": called("gate"), "gates": opened}


def tanh_squash(z: Tensor) -> Tensor:
    return 0.5 * torch.tanh(0.5 * z) + 0.5


def addcmul(t: Tensor, h: Tensor, x: Tensor) -> Tensor:
    return torch.addcmul(x, t, h - x)


PLAIN = "coupled", "identity"

JOINS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "t*h + (1-t)*x": lambda t, h, x: t * h + (1 - t) * x,
    "x*(1-t) + h*t": lambda t, h, x: x * (1 - t) + h * t,
    "x + t*(h-x)": lambda t, h, x: x + t * (h - x),
    "(h-x)*t + x": lambda t, h, x: (h - x) * t + x,
    "x - t*x + t*h": lambda t, h, x: x - t * x + t * h,
    "t*h + (ones-t)*x": lambda t, h, x: t * h + (torch.ones_like(t) - t) * x,
    "t*h + (-t+1)*x": lambda t, h, x: t * h + (-t + 1) * x,
    "t*h - (t-1)*x": lambda t, h, x: t * h - (t - 1) * x,
    "sum of a stack": lambda t, h, x: torch.add(torch.mul(h, t), torch.mul(x, torch.sub(1, t))),
    "addcmul": addcmul,
    "lerp": lambda t, h, x: torch.lerp(x, h, t),
    "t*h + (1-t)*x + 0": lambda t, h, x: 0 + t * h + (1 - t) * x,
    "position added": lambda t, h, x: (t * h + (1 - t) * x) + 0.5 * h,
    "float64 and back": lambda t, h, x: (t.double() * h.double() + (1 - t.double()) * x.double()).float(),
}

EXAMPLES = [
    *(
        Example(name, stack(join), (4,), called("gate"), opened)  # the gates of both layers
        for name, join in JOINS.items()
    ),
    Example("h + c*(x-h)", stack(lambda c, h, x: h + c * (x - h)), (4,), called("gate"), kept),
    Example("c*x + (1-c)*h", stack(lambda c, h, x: c * x + (1 - c) * h), (4,), called("gate"), kept),
    Example("lerp to x", stack(lambda c, h, x: torch.lerp(h, x, c)), (4,), called("gate"), kept),
    Example("no bias", stack(JOINS["t*h + (1-t)*x"], bias=False), (4,), called("gate"), opened),
    Example("no bias in time", stack(JOINS["t*h + (1-t)*x"], bias=False), (5, 4), called("gate"), opened),
    Example(
        "tanh for a sigmoid", stack(JOINS["t*h + (1-t)*x"], squash=tanh_squash), (4,), called("gate"), opened
    ),
    Example(
        "sigmoid by hand",
        stack(JOINS["t*h + (1-t)*x"], squash=lambda z: 1 / (1 + torch.exp(-z))),
        (4,),
        called("gate"),
        opened,
    ),
    Example(
        "hard sigmoid",
        stack(JOINS["t*h + (1-t)*x"], squash=F.hardsigmoid),
        (4,),
        called("gate"),
        lambda logits: [F.hardsigmoid(logit) for logit in logits],
    ),
    Example(
        "clipped line",
        stack(JOINS["t*h + (1-t)*x"], squash=lambda z: torch.clamp(0.2 * z + 0.5, 0, 1)),
        (4,),
        called("gate"),
        lambda logits: [torch.clamp(0.2 * logit + 0.5, 0, 1) for logit in logits],
    ),
    Example(
        "colder sigmoid",
        stack(JOINS["t*h + (1-t)*x"], squash=lambda z: torch.sigmoid(z / 0.7)),
        (4,),
        called("gate"),
        lambda logits: [torch.sigmoid(logit / 0.7) for logit in logits],
    ),
    Example("qanet", lambda: Lists(3, 6), (6,), lambda net: net.gates, opened),
    Example("tacotron", lambda: nn.Sequential(*(Cbhg(6) for _ in range(4))), (7, 6), called("T"), opened, bias=-1.0),
    Example("asked twice", lambda: TwiceAsked(6), (6,), called("gate"), lambda seen: opened(seen[:1])),
    Example(
        "constant in the logit",
        lambda: Complemented(6),
        (6,),
        called("carry"),
        lambda logits: [1 - torch.sigmoid(logit + 2) for logit in logits],
    ),
]
