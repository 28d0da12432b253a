"""Expands values of a graph into sums of products: `x + t * (h - x)` becomes x + t h - t x.

Gates and their complements are recognized on the way: 1 - t is expanded, however it is written.
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from enum import IntEnum
from typing import NamedTuple

import onnx_ir as ir

from turnpike.export.gates.algebra.sigmoids import lines_of, match_scaling
from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.element_moves import MOVE_OPS, before_moves
from turnpike.export.gates.graph.nodes import (
    constant_scalar,
    first_input,
    is_all_ones,
    is_pass_through,
    present_inputs,
)
from turnpike.export.gates.graph.view import GraphView

# the factors of a product, in graph order
Term = tuple[ir.Value, ...]
# a sum of products, each with its coefficient; the empty term is the constant 1
Sum = dict[Term, float]

ADDITION_OPS = frozenset({"Add", "Sub", "Sum", "Where"})
ARITHMETIC_OPS = ADDITION_OPS | {"Mul", "Neg", "Div"}
# operators that a product may go through on its way into a sum
JOINING_OPS = MOVE_OPS | {"Concat"}
# limits against graphs built to be slow; gated sums in real networks have fewer than ten terms
MAX_TERMS = 64
MAX_SUM_DEPTH = 32


class Reach(IntEnum):
    """Which values are expanded although something outside of the sum uses them, too."""

    PRIVATE = 0  # none
    GATED = 1  # products with a gate, which an auxiliary output or a log may use, as in t * (h / 2)
    FACTORS = 2  # also what a gate multiplies, as the h - x of x + t * (h - x), and gates times a number


class GateFactor(NamedTuple):
    """A factor of a product: a gate, or 1 minus it if `complemented`."""

    gate: ir.Value
    complemented: bool


class SumExpander:
    """Expands values into sums of products, without changing the graph.

    Args:
        view: The graph.
        ranges: Tells which values can be gates.
        atoms: Values that are never expanded; the container may grow while the expander is in use.
    """

    def __init__(self, view: GraphView, ranges: ValueRanges, atoms: Container[ir.Value]) -> None:
        self.view = view
        self.atoms = atoms
        self._ranges = ranges
        self._complements: dict[ir.Value, ir.Value] = {}
        self._gates: dict[ir.Value, GateFactor | None] = {}
        self._moved: dict[Hashable, GateFactor] = {}
        # gates by the value that they are a x + b of, and by a and b
        self._on_lines: dict[tuple[ir.Value, float, float], GateFactor] = {}
        # in graph order: each lookup then finds the result of the one before it and does not recurse deeply
        for node in view.nodes:
            for value in node.outputs:
                self.gate_factor(value)

    def expand(self, root: ir.Node, reach: Reach) -> Sum | None:
        """The sum that a node computes; None if the node is not arithmetic or the sum is too long.

        Values that are used for nothing but this sum are expanded, and those within reach.
        """
        expanded = SumExpansion(self, root, reach).expand_node(root)
        return None if expanded is None or expanded == {(root.outputs[0],): 1.0} else expanded

    def gate_factor(self, value: ir.Value) -> GateFactor | None:
        """The gate that a value is, or is 1 minus; None if the value cannot be a gate."""
        value = self.view.canonical(value)
        if value not in self._gates:
            factor = self._find_gate(value) if self._ranges.can_be_gate(value) else None
            self._gates[value] = factor
            if factor is not None and factor.complemented:
                self._complements.setdefault(factor.gate, value)
        return self._gates[value]

    def complement(self, gate: ir.Value) -> ir.Value | None:
        """The value 1 - gate; None if the graph does not compute it."""
        return self._complements.get(gate)

    def _find_gate(self, value: ir.Value) -> GateFactor:
        node = value.producer()
        if node is None:
            return GateFactor(value, False)
        for line in lines_of(value):
            if (inner := self.gate_factor(line.value)) is None:
                continue
            if (line.factor, line.offset) == (-1.0, 1.0):
                return GateFactor(inner.gate, not inner.complemented)
            if (line.factor, line.offset) == (1.0, 0.0):
                return inner
        # (1 + q) / 2 and (1 - q) / 2 of a value q that is no gate
        lines = [(self.view.canonical(line.value), line.factor, line.offset) for line in lines_of(value)]
        for source, factor, offset in lines:
            if (other := self._on_lines.get((source, -factor, 1.0 - offset))) is not None:
                return GateFactor(other.gate, not other.complemented)
        for key in lines:
            self._on_lines.setdefault(key, GateFactor(value, False))
        # Reshape(1 - t) is the complement of Reshape(t)
        if node.op_type in MOVE_OPS:
            inner = self.gate_factor(first_input(node))
            if inner is not None and inner.gate is not self.view.canonical(first_input(node)):
                return self._moved_gate(node, value, inner)
        return GateFactor(value, False)

    def _moved_gate(self, node: ir.Node, value: ir.Value, inner: GateFactor) -> GateFactor:
        """The gate that is moved to `value`, where `inner` is what the first input of the node is."""
        key = self.view.key_with(node, inner.gate)
        moved = self.view.first_with_key(key)
        if moved is not None:
            return GateFactor(moved, inner.complemented)
        # the graph does not move the gate itself: the first of its forms that is moved represents it
        first = self._moved.setdefault(key, GateFactor(value, inner.complemented))
        return GateFactor(first.gate, first.complemented != inner.complemented)


class SumExpansion:
    """The expansion of one node, `root`."""

    def __init__(self, expander: SumExpander, root: ir.Node, reach: Reach) -> None:
        self._expander = expander
        self._view = expander.view
        self._root = root
        self._reach = reach
        self._depth = 0
        self._private: dict[ir.Value, bool] = {}
        self._sums: dict[ir.Value, Sum] = {}

    def expand_node(self, node: ir.Node) -> Sum | None:
        """The sum that a node computes; None if it is not arithmetic, or beyond the limits."""
        if self._depth > MAX_SUM_DEPTH:
            return None
        node = self._view.unstacked_node(node.outputs[0]) or node
        if is_pass_through(node):
            return self._sum_of(first_input(node))
        if node.op_type not in ARITHMETIC_OPS:
            return None
        self._depth += 1
        inputs = [self._sum_of(value) for value in present_inputs(node)]
        self._depth -= 1
        match node.op_type, inputs:
            case "Add" | "Sum", _:
                expanded = _add_sums(inputs, [1.0] * len(inputs))
            case "Sub", [a, b]:
                expanded = _add_sums([a, b], [1.0, -1.0])
            case "Neg", [a]:
                expanded = _add_sums([a], [-1.0])
            case "Mul", [a, b]:
                expanded = self._multiply(a, b)
            case "Div", [a, b] if b.keys() == {()}:
                expanded = _add_sums([a], [1 / b[()]])
            case "Where", [_, a, b] if a == b:
                # torch.lerp is exported as a choice between two formulas of the same sum
                expanded = a
            case _:
                return None
        return expanded if 0 < len(expanded) <= MAX_TERMS else None

    def _sum_of(self, value: ir.Value) -> Sum:
        if value not in self._sums:
            self._sums[value] = self._expand_value(value)
        return self._sums[value]

    def _expand_value(self, value: ir.Value) -> Sum:
        # Constant numbers become coefficients. Zero stays a value: it may be the initial state of a recurrent
        # layer, which would otherwise vanish from the sum.
        number = constant_scalar(value)
        if number or is_all_ones(value):
            return {(): number or 1.0}
        first = self._view.canonical(value)
        if first in self._expander.atoms or self._view.canonical(before_moves(first)) in self._expander.atoms:
            return {(first,): 1.0}
        factor = self._expander.gate_factor(first)
        producer = first.producer()
        is_scaled = self._reach >= Reach.FACTORS and producer is not None and self._is_scaled_gate(producer)
        if (
            factor is not None
            and not is_scaled
            and not (self._is_gated_gate(first) and self._used_only_here(value))
        ):
            if factor.complemented:
                return {(): 1.0, (factor.gate,): -1.0}
            return {(factor.gate,): 1.0}
        node = self._view.unstacked_node(value) or value.producer()
        if node is None or not (self._used_only_here(value) or self._is_within_reach(value, node)):
            return {(first,): 1.0}
        expanded = self.expand_node(node)
        return {(first,): 1.0} if expanded is None else expanded

    def _is_within_reach(self, value: ir.Value, node: ir.Node) -> bool:
        """Whether a value with other users is expanded: a product with a gate, or a factor of one."""
        if self._view.is_added(node):
            return not self._is_input_of_root(value)
        if self._reach >= Reach.GATED and (
            self._is_scaled_gate(node)
            or (
                (self._has_gate(node) or (match_scaling(node) is not None and self._is_gated(value)))
                and not self._is_input_of_root(value)
            )
        ):
            return True
        return self._reach >= Reach.FACTORS and node.op_type in {"Add", "Sub"} and self._is_gated(value)

    def _is_gated(self, value: ir.Value) -> bool:
        """Whether a value is multiplied with a gate somewhere."""
        return any(self._has_gate(user) for user, _ in value.uses() if user in self._view.positions)

    def _is_input_of_root(self, value: ir.Value) -> bool:
        """Whether the root is also computed from a value in another way than by adding it.

        Such a product, as of a GLU, is the input of a layer and no part of its sum.
        """
        last = self._view.positions[self._root]
        waiting = [user for user, _ in value.uses() if user.op_type not in ARITHMETIC_OPS | JOINING_OPS]
        seen: set[ir.Node] = set()
        while waiting:
            node = waiting.pop()
            if node is self._root:
                return True
            if node not in seen and self._view.positions.get(node, last) < last:
                seen.add(node)
                waiting.extend(user for output in node.outputs for user, _ in output.uses())
        return False

    def _has_gate(self, node: ir.Node) -> bool:
        """Whether a node multiplies something with a gate."""
        if (scaled := match_scaling(node)) is not None:
            inner = scaled.value.producer()
            return inner is not None and self._has_gate(inner)
        return node.op_type == "Mul" and any(
            self._expander.gate_factor(value) is not None
            or ((producer := value.producer()) is not None and self._is_scaled_gate(producer))
            for value in present_inputs(node)
        )

    def _is_scaled_gate(self, node: ir.Node) -> bool:
        scaled = match_scaling(node)
        return scaled is not None and self._expander.gate_factor(scaled.value) is not None

    def _is_gated_gate(self, value: ir.Value) -> bool:
        """Whether a gate is itself a product with a gate: then it is expanded like other products."""
        node = value.producer()
        if node is None or node.op_type not in {"Mul", "Div"} or len(value.uses()) > 1:
            return False
        scaled = match_scaling(node)
        return scaled is None or self._expander.gate_factor(scaled.value) is not None

    def _multiply(self, a: Sum, b: Sum) -> Sum:
        product: Sum = {}
        for left, p in a.items():
            for right, q in b.items():
                factors = sorted((*left, *right), key=lambda value: (self._view.position(value), id(value)))
                term = tuple(factors)
                product[term] = product.get(term, 0.0) + p * q
        return {term: coefficient for term, coefficient in product.items() if coefficient}

    def _used_only_here(self, value: ir.Value) -> bool:
        """Whether a value is used for nothing but the sum at the root."""
        if value not in self._private:
            self._private[value] = not value.is_graph_output() and all(
                user is self._root
                or (
                    (user.op_type in ARITHMETIC_OPS or is_pass_through(user))
                    and self._view.positions.get(user, len(self._view.nodes))
                    < self._view.positions[self._root]
                    and all(map(self._used_only_here, user.outputs))
                )
                for user, _ in value.uses()
            )
        return self._private[value]


def _add_sums(sums: list[Sum], signs: list[float]) -> Sum:
    total: Sum = {}
    for terms, sign in zip(sums, signs, strict=True):
        for term, coefficient in terms.items():
            total[term] = total.get(term, 0.0) + sign * coefficient
    return {term: coefficient for term, coefficient in total.items() if coefficient}
