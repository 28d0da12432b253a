"""Layers with one fused Linear for H and the gate, cut in two."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.highways.example import Example, modules_named


class CarryLast(nn.Module):
    """[H | c] with a carry gate whose bias is 1, as in AllenNLP and CharacterBERT."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(layers))
        for layer in self.layers:
            layer.bias.data[size:].fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            h, gate = layer(x).chunk(2, dim=-1)
            gate = torch.sigmoid(gate)
            x = gate * x + (1 - gate) * torch.relu(h)
        return x


class GateFirst(nn.Module):
    """[t | H] cut by slices, after the sigmoid was applied to both halves."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.both = nn.Linear(size, 2 * size)

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        t = torch.sigmoid(both)[..., : self.size]
        return t * torch.tanh(both[..., self.size :]) + (1 - t) * x


class Unflattened(nn.Module):
    """(2, units) of one Linear without a bias; the input is transposed twice."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.both = nn.Linear(size, 2 * size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x).unflatten(-1, (2, self.size))
        t = torch.sigmoid(both.select(-2, 1))
        return x.mT.mT + t * (both.select(-2, 0).relu() - x.mT.mT)


def gates_of_last_carry(outputs: list[Tensor]) -> list[Tensor]:
    return [1 - torch.sigmoid(both[..., 6:]) for both in outputs]


def gates_of_last_half(outputs: list[Tensor]) -> list[Tensor]:
    return [torch.sigmoid(both[..., 6:]) for both in outputs]


ROWS = [
    Example(
        "allennlp", lambda: CarryLast(6, 2), (6,), lambda net: net.layers, gates_of_last_carry, bias=-1.0
    ),
    Example("unflattened", lambda: Unflattened(6), (6,), modules_named("both"), gates_of_last_half),
]
TIMES = [
    Example(
        "allennlp", lambda: CarryLast(6, 2), (5, 6), lambda net: net.layers, gates_of_last_carry, bias=-1.0
    ),
    Example(
        "gate first",
        lambda: GateFirst(6),
        (5, 6),
        modules_named("both"),
        lambda outputs: [torch.sigmoid(both[..., :6]) for both in outputs],
    ),
    Example("unflattened", lambda: Unflattened(6), (5, 6), modules_named("both"), gates_of_last_half),
]
