"""A network for the studies, and modules that are written as one function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROWS = "x:float32[batch,6]"


@dataclass(frozen=True)
class Honest:
    """A network and how it is exported.

    Attributes:
        name: What is special about it.
        make: Builds it.
        inputs: Its inputs, as `turnpike export` takes them.
        opset: The opset of the graph; None for the default.
        open_recurrent: Export GRU and LSTM as loops.
        plain: Decide about the twin without hidden outputs.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[str, ...] = (ROWS,)
    opset: int | None = None
    open_recurrent: bool = False
    plain: bool = False


class Written(nn.Module):
    """A network with these parts and this `forward` of one argument."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


class WrittenForTwo(Written):
    """A network with two arguments."""

    function: Callable[..., Any]

    def forward(self, x: Tensor, other: Tensor) -> Any:  # type: ignore[override]
        return self.function(self, x, other)


class Highway(nn.Module):
    """y = T(x) * H(x) + (1 - T(x)) * x, with any activation of H and any norm before both."""

    def __init__(
        self, size: int, activation: Callable[[Tensor], Tensor] = torch.relu, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.activation = activation
        self.norm = nn.Identity() if norm is None else norm
        self.gate, self.inner = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        gate = torch.sigmoid(self.gate(normal))
        mixed: Tensor = gate * self.activation(self.inner(normal)) + (1 - gate) * x
        return mixed


class ConvHighway(nn.Module):
    """A highway of convolutions in one or two dimensions, with a norm after that of H."""

    def __init__(self, channels: int, rank: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 2: nn.Conv2d}[rank]
        self.gate = conv(channels, channels, 3, padding=1)
        self.inner = conv(channels, channels, 3, padding=1)
        self.norm = nn.Identity() if norm is None else norm

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        mixed: Tensor = gate * torch.relu(self.norm(self.inner(x))) + (1 - gate) * x
        return mixed


def with_statistics(net: nn.Module) -> nn.Module:
    """Give batch norms the statistics and affine weights of a training."""
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                if part.running_mean is not None and part.running_var is not None:
                    part.running_mean.uniform_(-1, 1)
                    part.running_var.uniform_(0.5, 1.5)
                if part.affine:
                    part.weight.uniform_(0.5, 1.5)
                    part.bias.uniform_(-1, 1)
    return net
