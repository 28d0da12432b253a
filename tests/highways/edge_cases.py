"""Networks in which something about a gate cannot be known, or must not be changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fusion(nn.Module):
    """Two branches, neither of which is computed from the other: the carry cannot be known."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.a, self.b, self.gate = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.sigmoid(self.gate(x))
        return z * torch.tanh(self.a(x)) + (1 - z) * torch.tanh(self.b(x))


class SharedBias(nn.Module):
    """The gates of two layers, and another output, share one bias."""

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
    """A gate whose logit includes a stream that H and the carry use too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.h, self.gate = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        stream = self.a(x) + self.b(x)
        t = torch.sigmoid(self.gate(x) + stream)
        return t * torch.tanh(self.h(stream)) + (1 - t) * stream


class TanhGate(nn.Module):
    """The gate is (1 + tanh(z)) / 2, which is sigmoid(2 z)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.h = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        t = (1 + torch.tanh(self.gate(x))) / 2
        return t * torch.relu(self.h(x)) + (1 - t) * x


class SharedLogit(nn.Module):
    """The logit of the gate is the input of H, too."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.both(x)
        t = torch.sigmoid(z)
        return t * torch.tanh(z) + (1 - t) * x


class SharedGate(nn.Module):
    """One gate without a bias in two gated sums."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4, bias=False)
        self.h = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        y = t * torch.tanh(self.h(x)) + (1 - t) * x
        return t * torch.relu(self.h(y)) + (1 - t) * y


class Public(nn.Module):
    """Returns its gate as a second output, and uses it in two gated sums; names collide with ours."""

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
