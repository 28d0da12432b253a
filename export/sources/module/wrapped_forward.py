"""Gives a module another forward, which calls the module's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn


def wrap_forward(module: nn.Module, around: Callable[..., Any], *, same_arguments: bool = True) -> nn.Module:
    """Give the module a class of its own, so that its weights keep their names, and it can be copied.

    Args:
        module: The module, which is changed.
        around: The new forward. Its first argument is the old one.
        same_arguments: Whether both take the same arguments.
    """
    user_class = type(module)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(user_class.forward, self), *args, **kwargs)

    namespace = {
        "forward": functools.wraps(user_class.forward)(forward) if same_arguments else forward,
        "__module__": user_class.__module__,
        "__qualname__": user_class.__qualname__,
    }
    module.__class__ = type(user_class.__name__, (user_class,), namespace)
    return module
