"""Runs PyTorch code in float64, even if the code asks for narrower dtypes by name."""

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
    """Replaces every narrow tensor or dtype among an operator's arguments by float64."""

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
            # the caller keeps this very tensor object and reads the result from it
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
    """Make PyTorch compute in float64 while the block runs."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _PromoteToFloat64():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(default)


def to_float64(values: Any) -> Any:
    """Convert narrow floating-point tensors, also in lists and tuples; anything else stays as it is."""
    return _promoted(values, in_place=False)


def independent_copy(module: nn.Module) -> nn.Module:
    """A deep copy that shares nothing with the module."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in vars(part).values():
            # deepcopy refuses tensors computed from parameters, such as old weight norm keeps
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)
