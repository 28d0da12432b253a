"""Example networks in the styles of many authors, and the gates that the export must find in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Example:
    """A network and the gates that the export must find in it."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    observed: Callable[[nn.Module], Iterable[nn.Module]]
    gates: Callable[[list[Tensor]], list[Tensor]]
    forms: tuple[tuple[str, str], ...] = (("coupled", "identity"),)
    unit_axis: int = -1
    bias: float | None = None

    def observe(self, net: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The gates of one run, and its output."""
        outputs: list[Tensor] = []
        hooks = [
            module.register_forward_hook(lambda module, args, output: outputs.append(output))
            for module in self.observed(net)
        ]
        with torch.no_grad():
            y = net(x)
        for hook in hooks:
            hook.remove()
        return self.gates(outputs), y


@dataclass(frozen=True)
class ExampleChain:
    """Networks in sequence, exported as one: this is faster than one export for each."""

    name: str
    parts: tuple[Example, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    def make(self) -> nn.Sequential:
        return nn.Sequential(*(part.make() for part in self.parts))

    def expectations(self, net: nn.Sequential, x: Tensor) -> tuple[list[Expected], Tensor]:
        """The expected values of each gate, in order, and the output."""
        expected: list[Expected] = []
        for part, module in zip(self.parts, net, strict=True):
            gates, x = part.observe(module, x)
            forms = part.forms * len(gates) if len(part.forms) == 1 else part.forms
            expected += [
                Expected(part.name, value, form, part.unit_axis, part.bias)
                for value, form in zip(gates, forms, strict=True)
            ]
        return expected, x


@dataclass(frozen=True)
class Expected:
    """One gate as expected: T, (kind, carry), the axis of its units, the mean of its bias."""

    part: str
    values: Tensor
    form: tuple[str, str]
    unit_axis: int
    bias: float | None


def gates_of_logits(logits: list[Tensor]) -> list[Tensor]:
    """T of logits of transform gates."""
    return [torch.sigmoid(logit) for logit in logits]


def gates_of_carry_logits(logits: list[Tensor]) -> list[Tensor]:
    """T of logits of carry gates."""
    return [1 - torch.sigmoid(logit) for logit in logits]


def modules_named(*names: str) -> Callable[[nn.Module], Iterable[nn.Module]]:
    """Selects the modules with one of these names, in the order of their definition."""

    def select(net: nn.Module) -> Iterable[nn.Module]:
        return [module for name, module in net.named_modules() if name.split(".")[-1] in names]

    return select
