"""PyTorch code run in float64, though it may ask for narrower numbers by name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

NARROW_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


class _PromoteToFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every narrow tensor or dtype that an operator is given becomes float64."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        in_place = func._schema.is_mutable
        args = tuple(_promoted(arg, in_place) for arg in args)
        return func(*args, **{key: _promoted(arg, in_place) for key, arg in (kwargs or {}).items()})


def _promoted(value: Any, in_place: bool) -> Any:
    if isinstance(value, Tensor):
        if value.dtype not in NARROW_DTYPES:
            return value
        if in_place:
            # the caller keeps hold of this very tensor, and reads from it what is written now
            value.data = value.data.double()
            return value
        return value.double()
    if isinstance(value, torch.dtype):
        return torch.float64 if value in NARROW_DTYPES else value
    if isinstance(value, list | tuple):
        return type(value)(_promoted(item, in_place) for item in value)
    return value


@contextmanager
def float64_mode() -> Iterator[None]:
    """Whatever PyTorch computes while the block runs, it computes in float64."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _PromoteToFloat64():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(default)


def to_float64(values: Any) -> Any:
    """A tensor of narrow numbers in float64; others as they are."""
    return _promoted(values, in_place=False)


def independent_copy(module: nn.Module) -> nn.Module:
    """A copy that shares nothing with the module."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in vars(part).values():
            # a tensor computed from parameters, as old weight norm keeps, can be copied in no other way
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)
