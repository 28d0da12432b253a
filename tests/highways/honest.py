"""Random highway networks of many kinds, depths, widths and sizes of weights, each chosen by a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

KINDS = ("plain", "LayerNorm", "BatchNorm", "conv", "recurrent", "softmax")
# positions of a convolution
POSITIONS = 6
CLASSES = 5


class RandomHighway(nn.Module):
    """A highway network; `str` of it says what the seed chose."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.seed = seed
        self.kind = KINDS[seed % len(KINDS)]
        self.depth = draw.randint(1, 20)
        self.width = round(8 * 16 ** draw.random())
        self.factor = 0.5 * 60 ** draw.random()
        if self.kind in ("conv", "recurrent"):
            self.depth, self.width = math.ceil(self.depth / 2), min(self.width, 48)
        self.activation = draw.choice((torch.relu, torch.tanh))
        self.shape: tuple[int, ...] = (self.width,)
        if self.kind == "conv":
            self.shape = (self.width, POSITIONS)
        elif self.kind == "recurrent":
            self.shape = (self.depth, self.width)
        layers = 1 if self.kind == "recurrent" else self.depth
        self.layers = nn.ModuleList(Layer(self.kind, self.width, self.activation) for _ in range(layers))
        self.output = nn.Linear(self.width, CLASSES)
        with torch.no_grad():
            for part in self.modules():
                if isinstance(part, nn.Linear | nn.Conv1d):
                    part.weight.mul_(self.factor)
                    part.bias.mul_(self.factor)
            for layer in self.layers:
                layer.gate.bias.sub_(draw.choice((0.0, 1.0, 3.0)))
        for buffer in self.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5)
        self.eval()

    def __str__(self) -> str:
        size = f"depth {self.depth}, width {self.width}, weights x{self.factor:.1f}"
        return f"seed {self.seed}: {self.kind}, {size}"

    @property
    def spec(self) -> str:
        """The input, as `turnpike export` takes it."""
        return f"x:float32[batch,{','.join(map(str, self.shape))}]"

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "recurrent":
            hidden = torch.zeros_like(x[:, 0])
            for step in range(self.depth):
                hidden = self.layers[0](x[:, step], hidden)
            return self.output(hidden)
        for layer in self.layers:
            x = layer(x)
        logits = self.output(x.mean(-1) if self.kind == "conv" else x)
        return torch.softmax(logits, -1) if self.kind == "softmax" else logits


class Layer(nn.Module):
    """y = T(x) * H(x) + (1 - T(x)) * x; a recurrent one has a state in place of x, and x beside it."""

    def __init__(self, kind: str, width: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.kind = kind
        self.activation = activation
        self.norm: nn.Module = nn.Identity()
        if kind == "LayerNorm":
            self.norm = nn.LayerNorm(width)
        elif kind == "BatchNorm":
            self.norm = nn.BatchNorm1d(width)
        if kind == "conv":
            self.gate: nn.Module = nn.Conv1d(width, width, 3, padding=1)
            self.transform: nn.Module = nn.Conv1d(width, width, 3, padding=1)
        else:
            self.gate, self.transform = nn.Linear(width, width), nn.Linear(width, width)
        if kind == "recurrent":
            self.gate_input, self.transform_input = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        if state is not None:
            gate = torch.sigmoid(self.gate_input(x) + self.gate(state))
            return gate * torch.tanh(self.transform_input(x) + self.transform(state)) + (1 - gate) * state
        normal = self.norm(x)
        gate = torch.sigmoid(self.gate(normal))
        return gate * self.activation(self.transform(normal)) + (1 - gate) * x
