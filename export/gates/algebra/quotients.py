"""Bounds of quotients with a numerator that is a part of the denominator: e / (e + 1), z / (1 + |z|).

Interval arithmetic takes numerator and denominator for independent, so that both may be infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from turnpike.export.gates.algebra.sigmoids import match_scaling
from turnpike.export.gates.graph.nodes import constant_scalar, first_input, is_pass_through, present_inputs
from turnpike.export.gates.graph.view import GraphView

MAX_ADDENDS = 16  # of a denominator, against graphs built to be slow

Bounds = tuple[float, float]


class QuotientBounds:
    """Finds bounds of quotients; `lower_bound` has those of their parts."""

    def __init__(self, view: GraphView, lower_bound: Callable[[ir.Value], float]) -> None:
        self._view = view
        self._lower_bound = lower_bound

    def of(self, node: ir.Node) -> Bounds | None:
        """The bounds of what a node computes; None if it is no quotient with a part of its denominator."""
        inputs = present_inputs(node)
        if len(inputs) != 2 or node.op_type not in {"Div", "Mul"}:
            return None
        a, b = inputs
        if node.op_type == "Div":
            return self._bounds(a, self._inner(b), is_root=False)
        for numerator, inverse in ((a, b), (b, a)):
            if (found := self._inverted(inverse)) is not None:
                denominator, is_root = found
                return self._bounds(numerator, denominator, is_root=is_root)
        return None

    def is_square(self, node: ir.Node) -> bool:
        """Whether a node multiplies a value by itself."""
        return self._squared(node) is not None

    def _bounds(self, numerator: ir.Value, denominator: ir.Value, *, is_root: bool) -> Bounds | None:
        part, factor = self._unscaled(numerator)
        radicand = denominator if is_root else self._radicand(denominator)
        addends = list(self._addends(denominator if radicand is None else radicand))
        contains = self._has_magnitude if radicand is None else self._has_square
        own = next((addend for addend in addends if contains(addend, part)), None)
        others = [addend for addend in addends if addend is not own]
        if own is None or any(not self._lower_bound(addend) >= 0 for addend in others):
            return None
        low = 0.0 if self._lower_bound(part) >= 0 else -1.0
        return min(low * factor, factor), max(low * factor, factor)

    def _has_magnitude(self, addend: ir.Value, part: ir.Value) -> bool:
        """Whether an addend is at least |part|."""
        node = addend.producer()
        if addend is part:
            return self._lower_bound(part) >= 0
        if node is None or not node.inputs or self._inner(first_input(node)) is not part:
            return False
        # a sum of all elements of a value that is not negative is at least each of them
        return node.op_type == "Abs" or (node.op_type == "ReduceSum" and self._lower_bound(part) >= 0)

    def _has_square(self, addend: ir.Value, part: ir.Value) -> bool:
        node = addend.producer()
        return node is not None and self._squared(node) is part

    def _squared(self, node: ir.Node) -> ir.Value | None:
        match node.op_type, present_inputs(node):
            case "Mul", [a, b] if self._inner(a) is self._inner(b):
                return self._inner(a)
            case "Pow", [a, power] if constant_scalar(power) == 2:
                return self._inner(a)
        return None

    def _inverted(self, value: ir.Value) -> tuple[ir.Value, bool] | None:
        """The x of 1 / x, or of 1 / sqrt(x), and whether there is a root."""
        node = self._inner(value).producer()
        if node is None:
            return None
        match node.op_type, present_inputs(node):
            case "Reciprocal", [x]:
                return self._inner(x), False
            case "Div", [one, x] if constant_scalar(one) == 1:
                return self._inner(x), False
            case "Pow", [x, power] if constant_scalar(power) in (-1.0, -0.5):
                return self._inner(x), constant_scalar(power) == -0.5
        return None

    def _radicand(self, value: ir.Value) -> ir.Value | None:
        node = value.producer()
        if node is None:
            return None
        match node.op_type, present_inputs(node):
            case "Sqrt", [x]:
                return self._inner(x)
            case "Pow", [x, power] if constant_scalar(power) == 0.5:
                return self._inner(x)
        return None

    def _addends(self, value: ir.Value) -> Iterator[ir.Value]:
        waiting = [value]
        for _ in range(MAX_ADDENDS):
            if not waiting:
                return
            addend = self._inner(waiting.pop())
            node = addend.producer()
            if node is not None and node.op_type in {"Add", "Sum"}:
                waiting += present_inputs(node)
            else:
                yield addend
        yield from waiting

    def _unscaled(self, value: ir.Value) -> tuple[ir.Value, float]:
        factor, value = 1.0, self._inner(value)
        while (node := value.producer()) is not None and (scaled := match_scaling(node)) is not None:
            factor, value = factor * scaled.factor, self._inner(scaled.value)
        return value, factor

    def _inner(self, value: ir.Value) -> ir.Value:
        while (node := value.producer()) is not None and is_pass_through(node):
            value = first_input(node)
        return self._view.canonical(value)
