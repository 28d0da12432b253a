"""Networks in training, and networks with random weights."""

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
