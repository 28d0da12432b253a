"""Random spellings of highway layers: the same equation, as many authors and exporters write it.

A spelling is drawn from a seed. Each part of a layer is chosen from one of the tables below: how the logit of
the gate is computed, how it becomes a gate, how the gate becomes its complement, how the products are added,
and what else uses them. `Spelled` is a network of such layers. It knows its own transform gates, and can
compute its output with one of its layers closed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

UNITS = 6
Unary = Callable[[Tensor], Tensor]


class TwoLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h, self.g = nn.Linear(UNITS, UNITS), nn.Linear(UNITS, UNITS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.h(x), self.g(x)


class NoBias(TwoLinears):
    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Linear(UNITS, UNITS, bias=False)


class Matrices(TwoLinears):
    """Without nn.Linear: weights on the right, biases added by hand."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ self.h.weight + self.h.bias, torch.matmul(x, self.g.weight) + self.g.bias


class Einsums(TwoLinears):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.h(x), torch.einsum("...i,oi->...o", x, self.g.weight) + self.g.bias


class Fused(nn.Module):
    """One Linear for both, cut in two."""

    def __init__(self, cut: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.both = nn.Linear(UNITS, 2 * UNITS)
        self.cut = cut

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.cut(self.both(x))


class Interleaved(nn.Module):
    """One Linear whose outputs belong to H and to the gate in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(UNITS, 2 * UNITS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h, g = self.both(x).unflatten(-1, (UNITS, 2)).unbind(-1)
        return h, g


def chunked(both: Tensor) -> tuple[Tensor, Tensor]:
    h, g = both.chunk(2, -1)
    return h, g


MAPS: dict[str, Callable[[], nn.Module]] = {
    "two linears": TwoLinears,
    "no bias": NoBias,
    "matrices": Matrices,
    "einsum": Einsums,
    "chunk": lambda: Fused(chunked),
    "chunk, gate first": lambda: Fused(lambda both: chunked(both)[::-1]),
    "slices": lambda: Fused(lambda both: (both[..., UNITS:], both[..., :UNITS])),
    "interleaved": Interleaved,
}
ACTIVATIONS: dict[str, Unary] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "silu": F.silu,
    "none": lambda h: h,
}
# each is the sigmoid of its argument, or of twice its argument
SQUASHES: dict[str, Unary] = {
    "sigmoid": torch.sigmoid,
    "tanh": lambda z: 0.5 * (1 + torch.tanh(z / 2)),
    "half tanh": lambda z: torch.tanh(0.5 * z) * 0.5 + 0.5,
    "reciprocal": lambda z: 1 / (1 + torch.exp(-z)),
    "log sigmoid": lambda z: F.logsigmoid(z).exp(),
    "softplus": lambda z: 1 - torch.exp(-F.softplus(z)),
    "softplus of minus": lambda z: torch.exp(-F.softplus(-z)),
    "softmax": lambda z: torch.softmax(torch.stack([z, torch.zeros_like(z)]), 0)[0],
    "reversed": lambda z: 1 - torch.sigmoid(-z),
    "twice": lambda z: torch.sigmoid(2 * z),
    "double": lambda z: torch.sigmoid(z.double()).float(),
    "clamp": lambda z: torch.clamp(0.2 * z + 0.5, 0, 1),
    "hard": F.hardsigmoid,
}
COMPLEMENTS: dict[str, Unary] = {
    "1 - g": lambda g: 1 - g,
    "-(g - 1)": lambda g: -(g - 1),
    "-g + 1": lambda g: -g + 1,
    "ones_like": lambda g: torch.ones_like(g) - g,
    "full": lambda g: torch.full_like(g, 1.0).sub(g),
    "1 + g * -1": lambda g: 1 + g * -1,
    "rsub": lambda g: torch.rsub(g, 1),
    "two halves": lambda g: (2 - 2 * g) / 2,
}


@dataclass(frozen=True)
class Mixed:
    """The output of a layer, and the values on the way to it that something else may use."""

    y: Tensor
    products: tuple[Tensor, ...] = ()


def products(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = t * h, c * x
    return Mixed(a + b, (a, b))


def reversed_products(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = h * t, x * c
    return Mixed(b + a, (b, a))


def subtracted(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = t * h, -c * x
    return Mixed(a - b, (a, b))


def added_product(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    b = c * x
    return Mixed(torch.addcmul(b, t, h), (b,))


def in_place(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    y = h * t
    y += x * c
    return Mixed(y)


def scaled(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = 0.5 * t * h, c * (x / 2)
    return Mixed(2 * (a + b), (a, b))


def in_double(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = t.double() * h.double(), c.double() * x.double()
    return Mixed((a + b).float())


def transposed(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = t.transpose(-1, -2) * h.transpose(-1, -2), c.transpose(-1, -2) * x.transpose(-1, -2)
    return Mixed((a + b).transpose(-1, -2), (a, b))


def products_transposed_back(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = (t.transpose(-1, -2) * h.transpose(-1, -2)).transpose(-1, -2), c * x
    return Mixed(a + b, (a, b))


def stack_sum(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    p = torch.stack([h, x]) * torch.stack([t, c])
    return Mixed(p.sum(0), (p,))


def stack_sum_last(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    p = torch.stack([x, h], -1) * torch.stack([c, t], -1)
    return Mixed(p.sum(-1), (p,))


def stack_products_sum(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    return Mixed(torch.stack([t * h, c * x], 1).sum(1))


def stack_mean(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    return Mixed(2 * torch.stack([t * h, c * x]).mean(0))


def stack_einsum(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    return Mixed(torch.einsum("k...,k...->...", torch.stack([h, x]), torch.stack([t, c])))


def stack_matmul(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    gates, values = torch.stack([t, c], -1).unsqueeze(-2), torch.stack([h, x], -1).unsqueeze(-1)
    return Mixed((gates @ values).squeeze(-1).squeeze(-1))


def halves_chunk(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = (torch.cat([h, x], -1) * torch.cat([t, c], -1)).chunk(2, -1)
    return Mixed(a + b, (a, b))


def halves_view(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    p = torch.cat([h, x], -1) * torch.cat([t, c], -1)
    return Mixed(p.unflatten(-1, (2, UNITS)).sum(-2), (p,))


def delta(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    d = h - x
    p = t * d
    return Mixed(x + p, (d, p))


def reversed_delta(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    d = x - h
    p = d * t
    return Mixed(x - p, (d, p))


def carried_delta(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    d = x - h
    p = c * d
    return Mixed(h + p, (d, p))


def lerp(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    return Mixed(torch.lerp(x, h, t))


def expanded(t: Tensor, h: Tensor, c: Tensor, x: Tensor) -> Mixed:
    a, b = h * t, x * t
    return Mixed(a + x - b, (a, b))


# these hold for any two gates
MIXES = {
    function.__name__: function
    for function in (
        products,
        reversed_products,
        subtracted,
        added_product,
        in_place,
        scaled,
        in_double,
        transposed,
        products_transposed_back,
        stack_sum,
        stack_sum_last,
        stack_products_sum,
        stack_mean,
        stack_einsum,
        stack_matmul,
        halves_chunk,
        halves_view,
    )
}
# these only if C = 1 - T
COUPLED_MIXES = MIXES | {
    function.__name__: function for function in (delta, reversed_delta, carried_delta, lerp, expanded)
}
# formulas with the parts of a highway that are none: what T takes from x is not what C leaves of it
NEAR_MISSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Mixed]] = {
    "no input": lambda t, h, c, x: Mixed(t * h + c),
    "nothing carried": lambda t, h, c, x: Mixed(t * h),
    "gated residual": lambda t, h, c, x: Mixed(x + t * h),
    "attended residual": lambda t, h, c, x: Mixed(x + t * x),
    "sum in place of difference": lambda t, h, c, x: Mixed(x + t * (h + x)),
    "difference alone": lambda t, h, c, x: Mixed(t * (h - x)),
    "carries too much": lambda t, h, c, x: Mixed(t * h + (1 + t) * x),
    "carries too little": lambda t, h, c, x: Mixed(t * h + (0.9 - t) * x),
    "carries the square": lambda t, h, c, x: Mixed(t * h + c * c * x),
    "the same gate twice": lambda t, h, c, x: Mixed(t * h + t * x),
    "a mask": lambda t, h, c, x: Mixed((t > 0.5).float() * h + (t <= 0.5).float() * x),
    "stacked with one gate": lambda t, h, c, x: Mixed((torch.stack([h, x]) * t).sum(0)),
    "stacked without a sum": lambda t, h, c, x: Mixed(
        (torch.stack([h, x]) * torch.stack([t, c]))[0] + torch.tanh(x)
    ),
    "stacked crosswise": lambda t, h, c, x: Mixed((torch.cat([h, x], -1) * torch.cat([t, t], -1))[..., 3:9]),
}
# what else uses the values of a layer: an auxiliary output of the network
SHARED = ("nothing", "nothing", "first product", "last product", "gates", "output")
BETWEEN: dict[str, Callable[[], nn.Module]] = {
    "nothing": nn.Identity,
    "layer norm": lambda: nn.LayerNorm(UNITS),
    "dropout": lambda: nn.Dropout(0.1),
    "linear": lambda: nn.Linear(UNITS, UNITS),
}


@dataclass(frozen=True)
class Spelling:
    """The choices of one layer, by their names in the tables."""

    kind: str
    gate: str
    map: str
    activation: str
    squash: str
    complement: str
    mix: str
    shared: str
    between: str

    @classmethod
    def draw(cls, random_choice: random.Random, *, near_miss: bool = False) -> Spelling:
        def choose(table: Iterable[str]) -> str:
            return random_choice.choice(list(table))

        kind = choose(["coupled", "coupled", "coupled", "independent"])
        return cls(
            kind=kind,
            # which of the two gates is computed first: the other one is its complement, or its own gate
            gate=choose("TC"),
            map=choose(MAPS),
            activation=choose(ACTIVATIONS),
            squash=choose(SQUASHES),
            complement=choose(COMPLEMENTS),
            mix=choose(NEAR_MISSES if near_miss else COUPLED_MIXES if kind == "coupled" else MIXES),
            shared=choose(SHARED),
            between=choose(BETWEEN),
        )

    def __str__(self) -> str:
        return ", ".join(astuple(self))


class SpelledLayer(nn.Module):
    """One highway layer in this spelling."""

    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        self.spelling = spelling
        self.map = MAPS[spelling.map]()
        self.other_gate = nn.Linear(UNITS, UNITS) if spelling.kind == "independent" else None
        self.between = BETWEEN[spelling.between]()

    def forward(self, x: Tensor, closed: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """The output, the transform gate, and a value for something else to use."""
        spelling = self.spelling
        h, z = self.map(x)
        h = ACTIVATIONS[spelling.activation](h)
        gate = SQUASHES[spelling.squash](z)
        complement = COMPLEMENTS[spelling.complement]
        other = complement(gate if self.other_gate is None else torch.sigmoid(self.other_gate(x)))
        t, c = (gate, other) if spelling.gate == "T" else (other, gate)
        if closed:
            t, c = torch.zeros_like(t), torch.ones_like(c)
        mixed = (COUPLED_MIXES | NEAR_MISSES)[spelling.mix](t, h, c, x)
        shared = {
            "nothing": x,
            "first product": mixed.products[0] if mixed.products else t,
            "last product": mixed.products[-1] if mixed.products else c,
            "gates": t * 2 - c,
            "output": mixed.y,
        }[spelling.shared]
        return self.between(mixed.y), t, shared


class Spelled(nn.Module):
    """A network of highway layers, each spelled in its own way, between two Linears."""

    def __init__(self, seed: int, *, near_misses: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        draw = random.Random(seed)
        self.first = nn.Linear(UNITS, UNITS)
        self.layers = nn.ModuleList(
            SpelledLayer(Spelling.draw(draw, near_miss=near_misses)) for _ in range(draw.randint(1, 4))
        )
        self.last = nn.Linear(UNITS, 3)

    def run(self, x: Tensor, closed: int | None = None) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The output, the auxiliary output, and the transform gates, with one layer closed if asked for."""
        x = self.first(x)
        gates, auxiliary = [], torch.zeros(())
        for number, layer in enumerate(self.layers):
            x, gate, shared = layer(x, closed=number == closed)
            gates.append(gate)
            if layer.spelling.shared != "nothing":
                auxiliary = auxiliary + shared.abs().sum()
        return self.last(x), auxiliary, gates

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, auxiliary, _ = self.run(x)
        return y, auxiliary

    def __str__(self) -> str:
        """The spelling of each layer, for messages."""
        return "\n".join(str(layer.spelling) for layer in self.layers)
