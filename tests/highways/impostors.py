"""Sigmoids and sums without a highway."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Impostor(nn.Module):
    """Two Linears of one size, and what is said to be made of them."""

    def __init__(self, make: Callable[[nn.Linear, nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)
        self.make = make

    def forward(self, x: Tensor) -> Tensor:
        return self.make(self.a, self.b, x)


class Average(nn.Module):
    """A learnt share of each of two, the same for all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.alpha = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.alpha)
        return share * torch.relu(self.a(x)) + (1 - share) * x


class Squeezed(nn.Module):
    """A squeeze-and-excitation block about a residual one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.down = nn.Linear(3, 2)
        self.up = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        s = torch.sigmoid(self.up(torch.relu(self.down(y.mean((2, 3))))))
        return torch.relu(y * s[:, :, None, None] + x)


class Masked(nn.Module):
    """Keeps the old state where a row has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x.sum(-1, keepdim=True) > 0).to(x.dtype)
        return mask * torch.tanh(self.a(x)) + (1 - mask) * x


def attention(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    weights = torch.softmax(a(x) @ b(x).mT, dim=-1)
    return x + weights @ x


IMPOSTORS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (lambda: Impostor(lambda a, b, x: x + torch.relu(a(x))), (6,)),
    "gated residual": (lambda: Impostor(lambda a, b, x: x + torch.sigmoid(a(x)) * torch.tanh(b(x))), (6,)),
    "forgetting residual": (lambda: Impostor(lambda a, b, x: x * torch.sigmoid(a(x)) + torch.tanh(b(x))), (6,)),
    "glu": (lambda: Impostor(lambda a, b, x: a(x) * torch.sigmoid(b(x))), (6,)),
    "two glus": (lambda: Impostor(lambda a, b, x: a(x) * torch.sigmoid(b(x)) + b(x) * torch.sigmoid(a(x))), (6,)),
    "swiglu": (lambda: Impostor(lambda a, b, x: x + a(x) * F.silu(b(x))), (6,)),
    "gelu": (lambda: Impostor(lambda a, b, x: x + F.gelu(a(x)) - F.gelu(b(x))), (6,)),
    "attention": (lambda: Impostor(attention), (5, 6)),
    "soft threshold": (lambda: Impostor(lambda a, b, x: x - torch.sigmoid(a(x)) * x), (6,)),
    "attended": (lambda: Impostor(lambda a, b, x: x + torch.sigmoid(a(x)) * x), (6,)),
    "two experts": (
        lambda: Impostor(lambda a, b, x: torch.softmax(x, -1)[:, :1] * a(x) + torch.softmax(x, -1)[:, 1:2] * b(x)),
        (6,),
    ),
    "moving average": (lambda: Impostor(lambda a, b, x: 0.9 * x + (1 - 0.9) * torch.sigmoid(a(x))), (6,)),
    "learnt average": (Average, (6,)),
    "squeeze and excitation": (Squeezed, (3, 6, 6)),
    "mask": (Masked, (6,)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Sigmoid(), nn.Linear(6, 6)), (6,)),
}
