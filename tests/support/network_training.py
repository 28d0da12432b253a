"""Networks in training, networks with random weights, and the deviations of initial weights."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def losses_in_training(net: nn.Module, rows: Tensor, classes: Tensor, lr: float = 0.02) -> list[float]:
    """The losses of thirty steps of Adam on the same rows."""
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(net(rows), classes)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


def with_random_weights(module: Module, deviation: float) -> Module:
    """The module in float64, with no parameter at a value that could hide an error (zero, or all equal)."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * deviation)
    return module


def expect_glorot(weight: Tensor, inputs: int, units: int) -> None:
    """Weights drawn after Glorot have a variance of 2 / (inputs + units)."""
    _expect_deviation(weight, (2 / (inputs + units)) ** 0.5)


def expect_he(weight: Tensor, inputs: int) -> None:
    """Weights drawn after He have a variance of 2 / inputs."""
    _expect_deviation(weight, (2 / inputs) ** 0.5)


def _expect_deviation(weight: Tensor, deviation: float) -> None:
    # far closer than PyTorch's own initialization, which has a variance of 1 / (3 * inputs)
    assert abs(weight.std().item() / deviation - 1) < 0.05
