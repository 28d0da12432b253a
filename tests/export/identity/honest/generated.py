"""Networks of three blocks that a seed draws from the tables; no two have the same structure."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.export.identity.honest.dense import ACTIVATIONS, GATES, NORMS, Gated
from tests.export.identity.honest.gates import EXPERTS, UNITS, parts
from tests.export.identity.honest.written import ROWS, Highway, Honest, Written, with_statistics

COUNT = 60
# batch and group norms take rows, not steps
NORMS_OF_STEPS = [name for name in NORMS if "Group" not in name and "Batch" not in name]
# units with six numbers for six
KEEPING = list(UNITS)[: list(UNITS).index("factorization machine")]
STEPS = "x:float32[batch,time,6]"


class Joined(nn.Module):
    """Three blocks: one after the other, or with sums, gates or a concatenation between them."""

    def __init__(self, blocks: list[nn.Module], way: str, head: str) -> None:
        super().__init__()
        self.blocks, self.way, self.head = nn.ModuleList(blocks), way, head
        self.gate, self.joint, self.out = nn.Linear(6, 6), nn.Linear(18, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        first, second, third = self.blocks
        if self.way == "in turn":
            y = third(second(first(x)))
        elif self.way == "with sums":
            for block in self.blocks:
                x = x + block(x)
            y = x
        elif self.way == "side by side":
            y = self.joint(torch.cat([block(x) for block in self.blocks], -1))
        else:
            gate = torch.sigmoid(self.gate(first(x)))
            y = gate * second(x) + (1 - gate) * third(x)
        if self.head == "log softmax":
            return torch.log_softmax(self.out(y), -1)
        if self.head == "attention":
            shares = torch.softmax(self.out(y)[..., :1], 1)
            return (shares * y).sum(1)
        return {"y": y, "classes": self.out(y).argmax(-1)} if self.head == "dictionary" else y


def draw_block(draw: random.Random, of_steps: bool) -> tuple[str, Callable[[], nn.Module]]:
    kind = draw.choice(("highway", "highway", "gate", "unit", "experts"))
    if kind == "highway":
        activation, norm = (
            draw.choice(list(ACTIVATIONS)),
            draw.choice(NORMS_OF_STEPS if of_steps else [*NORMS]),
        )
        return f"{activation} after {norm}", lambda: Highway(6, ACTIVATIONS[activation], NORMS[norm]())
    if kind == "gate":
        name = draw.choice(list(GATES))
        return f"gate {name}", lambda: Gated(GATES[name])
    table = UNITS if kind == "unit" else EXPERTS
    name = draw.choice(KEEPING if kind == "unit" else list(EXPERTS))
    return f"{kind} {name}", lambda: Written(table[name], **parts())


def generate(seed: int) -> tuple[str, Honest]:
    """The structure of a network in words, and the network."""
    draw = random.Random(seed)
    of_steps = draw.random() < 0.4
    blocks = [draw_block(draw, of_steps) for _ in range(3)]
    way = draw.choice(("in turn", "with sums", "side by side", "with a gate"))
    head = draw.choice(("no head", "log softmax", "dictionary", *(["attention"] if of_steps else [])))

    def make(makers: list[Callable[[], nn.Module]]) -> nn.Module:
        return with_statistics(Joined([maker() for maker in makers], way, head))

    name = f"{', '.join(name for name, _ in blocks)}: {way}, {head}{', steps' if of_steps else ''}"
    inputs = (STEPS if of_steps else ROWS,)
    return name, Honest(f"generated {seed}", partial(make, [maker for _, maker in blocks]), inputs)


GENERATED = [generate(seed) for seed in range(COUNT)]
if len({structure for structure, _ in GENERATED}) < COUNT:
    raise ValueError("expected networks of different structures")
NETWORKS = [honest for _, honest in GENERATED]
