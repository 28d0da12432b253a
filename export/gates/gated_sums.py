"""Finds gated sums: y = G q + (1 - G) p, or y = G q + K p with a gate of its own for each product.

Authors write the same equation in many ways: `t * h + (1 - t) * x`, `x + t * (h - x)`, `torch.lerp(x, h, t)`.
Two steps make them alike:

1. `SumExpander` expands a value into a sum of products: `x + t * (h - x)` becomes x + t h - t x. Complements
   of gates (1 - t) are expanded too.
2. `GatedSumFinder` matches that sum. It is a coupled gated sum if some gate G occurs in it so that all of the
   terms without G appear once more with the factor -G, next to other terms with G. It is an independent one
   if every term can be given a gate, and two or three gates occur.

Whether a gated sum is a highway, and which of its branches carries the input, is decided in `find`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from export.gates.element_moves import MOVE_OPS
from export.gates.graph_view import (
    GraphView,
    constant_scalar,
    first_input,
    is_all_ones,
    is_pass_through,
    present_inputs,
)
from export.gates.sigmoids import match_scaling
from export.gates.value_ranges import ValueRanges

# the factors of a product, in graph order
Term = tuple[ir.Value, ...]
# a sum of products, each with its coefficient; the empty term is the constant 1
Sum = dict[Term, float]

ADDITION_OPS = frozenset({"Add", "Sub", "Sum", "Where"})
ARITHMETIC_OPS = ADDITION_OPS | {"Mul", "Neg", "Div"}
# limits against graphs built to be slow; gated sums in real networks have fewer than ten terms
MAX_TERMS = 64
MAX_SUM_DEPTH = 32
# how many sums around a sum are tried as the gated sum that it belongs to
MAX_OUTER_SUMS = 8
# limits of independent gated sums: 2 gates for each of 6 terms are at most 64 assignments
MAX_INDEPENDENT_TERMS = 6
MAX_GATES_PER_TERM = 2


class GateFactor(NamedTuple):
    """A factor of a product: a gate, or 1 minus it if `complemented`."""

    gate: ir.Value
    complemented: bool


@dataclass(frozen=True, eq=False)
class Branch:
    """One product of a gated sum: `content` times `gate`, or times 1 - gate if `complemented`."""

    gate: ir.Value
    complemented: bool
    content: Sum

    @property
    def values(self) -> list[ir.Value]:
        """All values that the content consists of."""
        return [value for term in self.content for value in term]

    @property
    def single_value(self) -> ir.Value | None:
        """The content, if it is one value with the coefficient 1."""
        if len(self.content) != 1:
            return None
        ((term, coefficient),) = self.content.items()
        return term[0] if len(term) == 1 and coefficient == 1.0 else None


@dataclass(frozen=True, eq=False)
class GatedSum:
    """A gated sum: if `coupled`, the branches G q and (1 - G) p; else one branch for each gate."""

    output: ir.Value
    coupled: bool
    branches: tuple[Branch, ...]


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
        # in graph order: each lookup then finds the result of the one before it and does not recurse deeply
        for node in view.nodes:
            for value in node.outputs:
                self.gate_factor(value)

    def expand(self, root: ir.Node) -> Sum | None:
        """The sum that a node computes; None if the node is not arithmetic or the sum is too long.

        Only values that are used for nothing but this sum are expanded.
        """
        expanded = SumExpansion(self, root).expand_node(root)
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
        for source in _subtracted_from_one(node):
            if (inner := self.gate_factor(source)) is not None:
                return GateFactor(inner.gate, not inner.complemented)
        # Reshape(1 - t) is the complement of Reshape(t), if the graph has that too
        if node.op_type in MOVE_OPS:
            inner = self.gate_factor(first_input(node))
            if inner is not None and inner.complemented:
                moved_gate = self.view.same_operation_on(node, inner.gate)
                if moved_gate is not None:
                    return GateFactor(moved_gate, True)
        return GateFactor(value, False)


class SumExpansion:
    """The expansion of one node, `root`."""

    def __init__(self, expander: SumExpander, root: ir.Node) -> None:
        self._expander = expander
        self._view = expander.view
        self._root = root
        self._depth = 0
        self._private: dict[ir.Value, bool] = {}
        self._sums: dict[ir.Value, Sum] = {}

    def expand_node(self, node: ir.Node) -> Sum | None:
        """The sum that a node computes; None if it is not arithmetic, or beyond the limits."""
        if self._depth > MAX_SUM_DEPTH:
            return None
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
        if first in self._expander.atoms:
            return {(first,): 1.0}
        factor = self._expander.gate_factor(first)
        if factor is not None and not (self._is_gated_gate(first) and self._used_only_here(value)):
            if factor.complemented:
                return {(): 1.0, (factor.gate,): -1.0}
            return {(factor.gate,): 1.0}
        node = value.producer()
        expanded = self.expand_node(node) if node is not None and self._used_only_here(value) else None
        return {(first,): 1.0} if expanded is None else expanded

    def _is_gated_gate(self, value: ir.Value) -> bool:
        """Whether a value in [0, 1] is a product with a gate, which is to be expanded as any product."""
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


class GatedSumFinder:
    """Matches the gated sums of a graph.

    The caller goes through `candidates`, calls `match`, and `accept`s a result if it is a highway. From then
    on its output is one value, which is not expanded any further in the sums around it.
    """

    def __init__(self, view: GraphView, ranges: ValueRanges) -> None:
        self._view = view
        self._ranges = ranges
        self._accepted: set[ir.Value] = set()
        self._expander = SumExpander(view, ranges, self._accepted)

    def candidates(self) -> Iterator[list[ir.Node]]:
        """For each addition in graph order: the nodes that may be its gated sum, in the order to try them.

        The order decides what belongs to the gated sum. In a sum of sums the outermost comes first, since
        what is added last may be a part of it. A sum that is multiplied before more is added, like a
        recurrent state, comes before the sums around it.
        """
        for node in self._view.nodes:
            if node.op_type in ADDITION_OPS:
                yield [candidate for level in self._enclosing_sums(node) for candidate in reversed(level)]

    def match(self, node: ir.Node) -> list[GatedSum]:
        """The ways to read a node as a gated sum: one coupled gated sum, or several independent ones."""
        expanded = self._expander.expand(node)
        if expanded is None:
            return []
        # a term of zeros is either the state that is carried or a number that changes nothing: try both
        without_zeros = {
            term: coefficient
            for term, coefficient in expanded.items()
            if len(term) != 1 or constant_scalar(term[0]) != 0
        }
        matches = self._match_sum(node, expanded)
        if not matches and without_zeros != expanded:
            matches = self._match_sum(node, without_zeros)
        return matches

    def accept(self, gated_sum: GatedSum) -> None:
        """Treat the output of a gated sum as one value from now on."""
        self._accepted.add(self._view.canonical(gated_sum.output))

    def is_accepted(self, node: ir.Node) -> bool:
        """Whether a node computes a gated sum that was accepted."""
        return self._view.canonical(node.outputs[0]) in self._accepted

    def complement(self, gate: ir.Value) -> ir.Value | None:
        """The value 1 - gate; None if the graph does not compute it."""
        return self._expander.complement(gate)

    def _match_sum(self, node: ir.Node, expanded: Sum) -> list[GatedSum]:
        output = node.outputs[0]
        values = dict.fromkeys(value for term in expanded for value in term)
        gates = [value for value in values if self._ranges.can_be_gate(value) and value not in self._accepted]
        for gate in gates:
            if (branches := _match_coupled(expanded, gate)) is not None:
                return [GatedSum(output, True, branches)]
        return [GatedSum(output, False, branches) for branches in _match_independent(expanded, gates)]

    def _enclosing_sums(self, node: ir.Node) -> list[list[ir.Node]]:
        """A sum and those around it, as long as each has a single user; a product begins a new level."""
        levels = [[node]]
        inner = node
        while sum(map(len, levels)) <= MAX_OUTER_SUMS:
            value = inner.outputs[0]
            users = [user for user, _ in value.uses()]
            if len(users) != 1 or value.is_graph_output() or users[0] not in self._view.positions:
                break
            inner = users[0]
            if inner.op_type in ADDITION_OPS:
                levels[-1].append(inner)
            elif inner.op_type in {"Mul", "Div"}:
                levels.append([])
            elif not (inner.op_type in ARITHMETIC_OPS or is_pass_through(inner)):
                break
        return levels


def _match_coupled(expanded: Sum, gate: ir.Value) -> tuple[Branch, Branch] | None:
    """Match y = p + G s, where s contains -p: y = G q + (1 - G) p with q = s + p, and q is not zero."""
    ungated: Sum = {}  # p
    gated: Sum = {}  # s
    for term, coefficient in expanded.items():
        match term.count(gate):
            case 0:
                ungated[term] = coefficient
            case 1:
                gated[_without_factor(term, gate)] = coefficient
            case _:
                return None
    if not ungated or () in ungated:
        return None
    if any(gated.get(term) != -coefficient for term, coefficient in ungated.items()):
        return None
    transformed = {term: coefficient for term, coefficient in gated.items() if term not in ungated}
    return (Branch(gate, False, transformed), Branch(gate, True, ungated)) if transformed else None


def _match_independent(expanded: Sum, gates: list[ir.Value]) -> Iterator[tuple[Branch, ...]]:
    """Match y = G q + K p + ...: every way to give each term a gate, if two or three gates are used."""
    seen = set()
    for assignment in _gate_assignments(expanded, gates):
        contents: dict[ir.Value, Sum] = {}
        for (term, coefficient), gate in zip(expanded.items(), assignment, strict=True):
            contents.setdefault(gate, {})[_without_factor(term, gate)] = coefficient
        key = tuple(sorted((id(gate), len(content)) for gate, content in contents.items()))
        is_bare_gate = any(() in content for content in contents.values())
        if not 2 <= len(contents) <= 3 or key in seen or is_bare_gate:
            continue
        seen.add(key)
        yield tuple(Branch(gate, False, content) for gate, content in contents.items())


def _gate_assignments(expanded: Sum, gates: list[ir.Value]) -> Iterator[list[ir.Value]]:
    """Every way to choose one gate among the factors of each term; none if a term has no gate."""
    options = [[value for value in dict.fromkeys(term) if value in gates] for term in expanded]
    if not all(options) or len(options) > MAX_INDEPENDENT_TERMS:
        return
    if any(len(option) > MAX_GATES_PER_TERM for option in options):
        return
    assignments: list[list[ir.Value]] = [[]]
    for option in options:
        assignments = [[*assignment, gate] for assignment in assignments for gate in option]
    yield from assignments


def _subtracted_from_one(node: ir.Node) -> list[ir.Value]:
    """The t of a node that computes 1 - t, 1 + -t or -(t - 1); empty for other nodes."""
    match node.op_type, present_inputs(node):
        case "Sub", [one, subtracted] if is_all_ones(one):
            return [subtracted]
        case "Add", [a, b]:
            negated = [other.producer() for one, other in ((a, b), (b, a)) if is_all_ones(one)]
            return [first_input(negation) for negation in negated if negation and negation.op_type == "Neg"]
        case "Neg", [value] if (inner := value.producer()) is not None and inner.op_type == "Sub":
            minuend, one = present_inputs(inner)
            return [minuend] if is_all_ones(one) else []
    return []


def _add_sums(sums: list[Sum], signs: list[float]) -> Sum:
    total: Sum = {}
    for terms, sign in zip(sums, signs, strict=True):
        for term, coefficient in terms.items():
            total[term] = total.get(term, 0.0) + sign * coefficient
    return {term: coefficient for term, coefficient in total.items() if coefficient}


def _without_factor(term: Term, factor: ir.Value) -> Term:
    factors = list(term)
    factors.remove(factor)
    return tuple(factors)
