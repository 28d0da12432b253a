"""Runs of a network that are moved slightly, by as much as rounding may: they show what rounding decides.

The inputs move by some units in the last place. So do functions whose error is absolute: onnxruntime computes
sigmoid and tanh correctly to a unit in the last place of 1, not of their value. Where a gate is closed, its
value may be 0 or 1e-8, and so x * sigmoid(x) of -1000 may be 0 or -1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_sigmoid import Sigmoid
from onnx.reference.ops.op_tanh import Tanh
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from turnpike.export.network import Array

aten = torch.ops.aten
# functions with values from -1 to 1
BOUNDED = frozenset((aten.sigmoid, aten.sigmoid_, aten.tanh, aten.tanh_))
# functions that multiply their argument by such a value
MULTIPLYING = frozenset((aten.silu, aten.silu_, aten.gelu, aten.gelu_, aten.mish, aten.mish_))


def moved_operators(seed: int) -> list[type[OpRun]]:
    """Sigmoid and Tanh for onnx's reference evaluator, with such errors."""
    generator = np.random.default_rng(seed)

    def moved(operator: type[OpRun]) -> type[OpRun]:
        def run(self: OpRun, x: Array) -> tuple[Array]:
            (result,) = operator._run(self, x)  # type: ignore[no-untyped-call]
            noise = np.finfo(result.dtype).eps * generator.uniform(-1, 1, result.shape)
            return ((result + noise).astype(result.dtype),)

        return type(operator.__name__, (operator,), {"op_domain": "", "_run": run})

    return [moved(Sigmoid), moved(Tanh)]


@contextmanager
def moved_functions(seed: int) -> Iterator[None]:
    """Let PyTorch compute sigmoid, tanh and their like with errors of up to a unit in the last place of 1."""
    with _MovedFunctions(seed):
        yield


class _MovedFunctions(TorchDispatchMode):
    """Moves the results of such functions."""

    supports_higher_order_operators = True

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.higher_order.cond:
            condition, if_true, if_false, operands = args
            with self:  # a mode is not active while it handles an operator
                return (if_true if condition else if_false)(*operands)
        factor = self._factor(func, args)
        result = func(*args, **(kwargs or {}))
        if factor is None:
            return result
        noise = torch.rand(result.shape, generator=self._generator).mul_(2).sub_(1)
        return result.add_(noise.to(result.dtype) * torch.finfo(result.dtype).eps * factor)

    def _factor(self, func: Any, args: tuple[Any, ...]) -> Tensor | float | None:
        """What the bounded value is multiplied by; None for other operators."""
        operator = getattr(func, "overloadpacket", None)
        if operator in BOUNDED:
            return 1.0
        if operator in MULTIPLYING:
            return args[0].clone() if isinstance(args[0], Tensor) else None
        if operator is aten.glu:
            value: Tensor = args[0]
            return value.chunk(2, args[1] if len(args) > 1 else -1)[0]
        return None
