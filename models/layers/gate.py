"""Transform and carry gates: how T and C are made, how they start, how they are watched.

A highway layer is y = H(x) * T(x) + x * C(x) (Srivastava, Greff and Schmidhuber 2015, "Training Very
Deep Networks"). T is the transform gate. C, the carry gate, is 1 - T when the two are coupled and a
gate of its own when they are independent. A negative bias of T lets a new network begin by carrying
its input through, which is what makes great depth trainable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from models.errors import ConfigError

Carry = Literal["coupled", "independent"]


class DenseGate(nn.Linear):
    """T(x) = sigmoid(W x + b). Shapes: (..., inputs) -> (..., units)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))


class ConvGate1d(nn.Conv1d):
    """T(x) = sigmoid(W * x + b). Shapes: (batch, inputs, length) -> (batch, units, length)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))


class ConvGate2d(nn.Conv2d):
    """T(x) = sigmoid(W * x + b). Shapes: (batch, inputs, height, width) -> (batch, units, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))


Gate = DenseGate | ConvGate1d | ConvGate2d


def set_bias(gate: Gate, bias: float | None) -> None:
    """Start every unit of a gate at the same bias; None keeps what PyTorch drew."""
    if bias is not None and gate.bias is not None:
        nn.init.constant_(gate.bias, bias)


class GatedJoin(nn.Module):
    """y = h * T(by) + x * C(by): what a layer made of its input, joined with the input itself.

    `make_gate` makes one gate; it is called a second time when the carry is independent. That second
    gate starts at the opposite bias, where C equals 1 - T: both kinds begin as the same layer. `scaled`
    draws the gates' weights after Glorot and Bengio 2010, as for tanh, whose shape a sigmoid has.
    """

    gate: Gate
    carry_gate: Gate | None

    def __init__(
        self,
        make_gate: Callable[[], Gate],
        *,
        gate_bias: float | None = -2.0,
        carry: Carry = "coupled",
        scaled: bool = False,
    ) -> None:
        super().__init__()
        if carry not in get_args(Carry):
            raise ConfigError(f"carry: expected one of {', '.join(get_args(Carry))}, got {carry!r}")
        self.gate = make_gate()
        self.carry_gate = make_gate() if carry == "independent" else None
        for gate in (self.gate, self.carry_gate):
            if scaled and gate is not None:
                nn.init.xavier_normal_(gate.weight)
        set_bias(self.gate, gate_bias)
        if self.carry_gate is not None:
            set_bias(self.carry_gate, None if gate_bias is None else -gate_bias)

    def join(self, h: Tensor, x: Tensor, by: Tensor | None = None) -> Tensor:
        """Let T of h and C of x through; the gates look at x, or at `by` where that is given."""
        by = x if by is None else by
        t = self.gate(by)
        c = 1 - t if self.carry_gate is None else self.carry_gate(by)
        return h * t + x * c


@dataclass
class Passage:
    """What went through one gated layer: T, and the layer's output y, in the order of the calls.

    A feed-forward layer is called once; a recurrent one once for every step of time.
    """

    transform: list[Tensor] = field(default_factory=list)
    output: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(net: nn.Module) -> Iterator[dict[str, Passage]]:
    """Record every gated layer of `net` while the block runs, by the layer's name, in order of depth."""
    passages: dict[str, Passage] = {}
    hooks = []

    def note(into: list[Tensor]) -> Callable[[Any, Any, Tensor], None]:
        return lambda module, args, result: into.append(result.detach())

    for name, module in net.named_modules():
        if isinstance(module, GatedJoin):
            passage = passages[name] = Passage()
            hooks.append(module.gate.register_forward_hook(note(passage.transform)))
            hooks.append(module.register_forward_hook(note(passage.output)))
    try:
        yield passages
    finally:
        for hook in hooks:
            hook.remove()
