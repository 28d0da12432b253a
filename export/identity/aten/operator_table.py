"""Tables of ATen operators: by name, the function that runs it on terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from turnpike.export.identity.algebra.arithmetic import Algebra

# a function of a Call and of the operator's arguments, by their names in its schema
Handler = Callable[..., Any]

# bfloat16 has no NumPy dtype; every number of it is one of float32
DTYPES: dict[torch.dtype, Any] = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: np.float32,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}


@dataclass(frozen=True)
class Call:
    """One call of an operator: `operator` is its name without namespace, such as "add"."""

    algebra: Algebra
    node: fx.Node
    operator: str
    overload: str

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of the result."""
        return DTYPES[self.node.meta["val"].dtype]


class OperatorTable(dict[str, Handler]):
    """Handlers by the name of an operator, or by its name and overload ("max.dim")."""

    def operators(self, *names: str) -> Callable[[Handler], Handler]:
        """Decorate the function that runs these operators. An argument `self` has the name `self_`."""

        def add(handler: Handler) -> Handler:
            self.update(dict.fromkeys(names, handler))
            return handler

        return add
