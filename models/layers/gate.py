"""Transform and carry gates: their modules, their initial biases, and how to record what they do.

A highway layer is y = H(x) * T(x) + x * C(x) (Srivastava, Greff and Schmidhuber 2015, "Training Very
Deep Networks"). T is the transform gate. C is the carry gate: 1 - T if the two are coupled, or a gate
of its own if they are independent. With a negative bias of T, a new network mostly carries its input
through unchanged. This is what makes very deep networks trainable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from turnpike.models.errors import ConfigError

Carry = Literal["coupled", "independent"]


class DenseGate(nn.Linear):
    """T(x) = sigmoid(W x + b). Shapes: (..., inputs) -> (..., units)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...


class ConvGate1d(nn.Conv1d):
    """T(x) = sigmoid(W * x + b). Shapes: (batch, inputs, length) -> (batch, units, length)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...


class ConvGate2d(nn.Conv2d):
    """T(x) = sigmoid(W * x + b). Shapes: (batch, inputs, height, width) -> (batch, units, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(x))

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...


Gate = DenseGate | ConvGate1d | ConvGate2d


def set_gate_bias(gate: Gate, bias: float | None) -> None:
    """Set the bias of every unit of a gate to one value; None keeps PyTorch's own initialization."""
    if bias is not None and gate.bias is not None:
        nn.init.constant_(gate.bias, bias)


class GatedJoin(nn.Module):
    """y = h * T(g) + x * C(g): joins a layer's result h with its input x; the gates read g, usually x.

    Args:
        make_gate: Creates one gate. It is called a second time for an independent carry gate.
        gate_bias: Initial bias of T. An independent C starts at the opposite bias, where C = 1 - T, so
            both kinds of carry start as the same layer. None keeps PyTorch's own initialization.
        carry: "coupled" (C = 1 - T) or "independent" (C is a gate of its own).
        scaled_init: Draw the gates' weights after Glorot and Bengio 2010, as for tanh, because a sigmoid
            has the same shape.
    """

    gate: Gate
    carry_gate: Gate | None

    def __init__(
        self,
        make_gate: Callable[[], Gate],
        *,
        gate_bias: float | None = -2.0,
        carry: Carry = "coupled",
        scaled_init: bool = False,
    ) -> None:
        super().__init__()
        if carry not in get_args(Carry):
            raise ConfigError(f"carry: expected one of {', '.join(get_args(Carry))}, got {carry!r}")
        self.gate = make_gate()
        self.carry_gate = make_gate() if carry == "independent" else None
        for gate in (self.gate, self.carry_gate):
            if scaled_init and gate is not None:
                nn.init.xavier_normal_(gate.weight)
        set_gate_bias(self.gate, gate_bias)
        if self.carry_gate is not None:
            set_gate_bias(self.carry_gate, None if gate_bias is None else -gate_bias)

    def join(self, h: Tensor, x: Tensor, gate_input: Tensor | None = None) -> Tensor:
        """Return h * T + x * C; the gates read `gate_input`, or x if it is None."""
        gate_input = x if gate_input is None else gate_input
        t = self.gate(gate_input)
        c = 1 - t if self.carry_gate is None else self.carry_gate(gate_input)
        return h * t + x * c


@dataclass
class GateRecording:
    """The transform gates T and the outputs y of one gated layer, one entry per call of the layer.

    A feed-forward layer is called once per batch, a recurrent one once per time step.
    """

    transform_gates: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def record_gates(net: nn.Module) -> Iterator[dict[str, GateRecording]]:
    """Record every gated layer of `net` while the block runs; keys are module names, in order of depth."""
    recordings: dict[str, GateRecording] = {}
    hooks = []

    def append_to(tensors: list[Tensor]) -> Callable[[Any, Any, Tensor], None]:
        return lambda module, args, result: tensors.append(result.detach())

    for name, module in net.named_modules():
        if isinstance(module, GatedJoin):
            recording = recordings[name] = GateRecording()
            hooks.append(module.gate.register_forward_hook(append_to(recording.transform_gates)))
            hooks.append(module.register_forward_hook(append_to(recording.outputs)))
    try:
        yield recordings
    finally:
        for hook in hooks:
            hook.remove()
