"""Tables of ONNX operators: by name, the function that runs it on terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError, Value, known

# Numbers that a graph may compute, which stay until it has run. Each takes 48 bytes: 6.4 GB in all.
MAX_ELEMENTS = 2**27

# a function of a NodeCall and of the node's inputs, of which a missing one is None
Handler = Callable[..., Any]
# runs a graph of a node, such as the body of a Loop, on values for its inputs
RunGraph = Callable[[ir.Graph, Sequence[Value]], list[Value]]


@dataclass(frozen=True)
class NodeCall:
    """A node that is run, with its attributes as Python values."""

    algebra: Algebra
    node: ir.Node
    opset: int
    run_graph: RunGraph

    @property
    def operator(self) -> str:
        return self.node.op_type

    def has(self, attribute: str) -> bool:
        return attribute in self.node.attributes

    def get(self, attribute: str, default: Any = None) -> Any:
        """The value of an attribute: a number, text, list, array or graph."""
        found = self.node.attributes.get(attribute)
        if found is None:
            return default
        if found.type is ir.AttributeType.TENSOR:
            return found.as_tensor().numpy()
        return list(found.value) if isinstance(found.value, tuple | list) else found.value

    def number(self, attribute: str, default: float) -> np.float32:
        """A float attribute, which ONNX has in float32."""
        return np.float32(self.get(attribute, default))


def integers(value: Value, what: str) -> list[int]:
    """A value of sizes, axes or indices."""
    return [int(number) for number in np.atleast_1d(known(value, what))]


def expect_memory(numbers: int, limit: int = MAX_ELEMENTS) -> None:
    """Raise an UndecidedError for more numbers than a run may hold."""
    if numbers > limit:
        raise UndecidedError(f"expected at most {limit:,} computed numbers, got {numbers:,}")


class OperatorTable(dict[str, Handler]):
    """Handlers by the name of an operator; those of other domains as "domain.name"."""

    def operators(self, *names: str) -> Callable[[Handler], Handler]:
        """Decorate the function that runs these operators."""

        def add(handler: Handler) -> Handler:
            self.update(dict.fromkeys(names, handler))
            return handler

        return add
