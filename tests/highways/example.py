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


@dataclass(frozen=True)
class Chain:
    """Networks one after another, exported as one: each finds its input made by the one before."""

    name: str
    parts: tuple[Example, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    def make(self) -> nn.Sequential:
        return nn.Sequential(*(part.make() for part in self.parts))

    def expectations(self, net: nn.Sequential, x: Tensor) -> tuple[list[Expected], Tensor]:
        """What is to be found of every gate, in order, and what comes out."""
        expected: list[Expected] = []
        for part, module in zip(self.parts, net, strict=True):
            seen, x = part.observe(module, x)
            forms = part.forms * len(seen) if len(part.forms) == 1 else part.forms
            expected += [
                Expected(part.name, value, form, part.unit_axis, part.bias)
                for value, form in zip(seen, forms, strict=True)
            ]
        return expected, x


@dataclass(frozen=True)
class Expected:
    """One gate of a part: its T, its kind and carry, the axis of its units, the mean of its bias."""

    part: str
    values: Tensor
    form: tuple[str, str]
    unit_axis: int
    bias: float | None


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
