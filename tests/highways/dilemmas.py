"""Networks about which something cannot be told, or not be done."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fusion(nn.Module):
    """Two streams, neither of which is made of the other."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.a, self.b, self.gate = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.sigmoid(self.gate(x))
        return z * torch.tanh(self.a(x)) + (1 - z) * torch.tanh(self.b(x))


class SharedBias(nn.Module):
    """The gates of two layers, and an output beside them, have one bias."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.t = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.t[1].bias = self.t[0].bias

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for h, t in zip(self.h, self.t, strict=True):
            gate = torch.sigmoid(t(x))
            x = gate * torch.relu(h(x)) + (1 - gate) * x
        return x, x * self.t[0].bias


class Stream(nn.Module):
    """A gate whose logit takes in a stream that goes on beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.h, self.gate = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        stream = self.a(x) + self.b(x)
        t = torch.sigmoid(self.gate(x) + stream)
        return t * torch.tanh(self.h(stream)) + (1 - t) * stream


class SharedLogit(nn.Module):
    """What is squashed into a gate is what H is made of, too."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.both(x)
        t = torch.sigmoid(z)
        return t * torch.tanh(z) + (1 - t) * x


class Public(nn.Module):
    """Gives its gate away beside what it answers, and uses it a second time, for another block."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.Linear(4, 4)
        self.layer00 = nn.Linear(4, 4)
        self.layer00.output = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t = torch.sigmoid(self.layer00(x))
        y = t * torch.tanh(self.h(x)) + (1 - t) * x
        y = y + t * (torch.relu(self.h(y)) - y)
        return y * self.layer00.output, t
