"""A network by some author, and how to tell its gates without any knowledge of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Example:
    """`gates` lists T as the network itself computes it, given the outputs of the modules `looked_at`.

    `forms` says of each gate its kind and its carry, one for all where they are the same.
    """

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    looked_at: Callable[[nn.Module], Iterable[nn.Module]]
    gates: Callable[[list[Tensor]], list[Tensor]]
    forms: tuple[tuple[str, str], ...] = (("coupled", "identity"),)
    unit_axis: int = -1
    bias: float | None = None
    levers: bool = True

    def observe(self, net: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The gates of one run, and what came out."""
        seen: list[Tensor] = []
        hooks = [
            module.register_forward_hook(lambda module, args, result: seen.append(result))
            for module in self.looked_at(net)
        ]
        with torch.no_grad():
            made = net(x)
        for hook in hooks:
            hook.remove()
        return self.gates(seen), made


def opened(logits: list[Tensor]) -> list[Tensor]:
    """The modules looked at give the logits of transform gates."""
    return [torch.sigmoid(logit) for logit in logits]


def kept(logits: list[Tensor]) -> list[Tensor]:
    """The modules looked at give the logits of carry gates."""
    return [1 - torch.sigmoid(logit) for logit in logits]


def called(*names: str) -> Callable[[nn.Module], Iterable[nn.Module]]:
    """The modules whose own name is one of these, in the order of their definition."""

    def found(net: nn.Module) -> Iterable[nn.Module]:
        return [module for name, module in net.named_modules() if name.split(".")[-1] in names]

    return found
