"""Finds gated sums: y = G q + (1 - G) p, or y = G q + K p with a gate of its own for each product.

Authors write the same equation in many ways: `t * h + (1 - t) * x`, `x + t * (h - x)`, `torch.lerp(x, h, t)`.
Two steps make them alike:

1. `SumExpander` expands a value into a sum of products: `x + t * (h - x)` becomes x + t h - t x.
2. `GatedSumFinder` matches that sum. It is coupled if there is a gate G for which each term without G, such
   as x, occurs once more with the factor -G, and other terms have G too. It is independent if each term has
   one of two or three gates, or one minus it.

Whether a gated sum is a highway, and which of its branches carries the input, is decided in `highways`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from turnpike.export.gates.algebra.sigmoids import match_scaling, match_sigmoid
from turnpike.export.gates.algebra.sum_expansion import (
    ADDITION_OPS,
    ARITHMETIC_OPS,
    Reach,
    Sum,
    SumExpander,
    Term,
)
from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.nodes import constant_scalar, first_input, is_pass_through
from turnpike.export.gates.graph.view import GraphView

# operators that add products of stacked values
HIDDEN_ADDITION_OPS = frozenset({"ReduceSum", "ReduceMean", "MatMul", "Einsum"})
# how many sums around a sum are tried as the gated sum that it belongs to
MAX_OUTER_SUMS = 8
# limits of independent gated sums: 2 gates for each of 6 terms are at most 64 assignments
MAX_INDEPENDENT_TERMS = 6
MAX_GATES_PER_TERM = 2
MAX_INDEPENDENT_GATES = 3


@dataclass(frozen=True, eq=False)
class Branch:
    """One product of a gated sum: `content` times a weight.

    The weight is `gate`, or (1 + gate) / 2 for a gate between -1 and 1, which is `signed`. If `complemented`,
    it is 1 minus that.
    """

    gate: ir.Value
    complemented: bool
    content: Sum
    signed: bool = False

    @property
    def weight(self) -> tuple[float, float]:
        """The scale and the offset of the weight, which is scale * gate + offset."""
        scale, offset = (0.5, 0.5) if self.signed else (1.0, 0.0)
        return (-scale, 1.0 - offset) if self.complemented else (scale, offset)

    @property
    def values(self) -> list[ir.Value]:
        """All values that the content consists of."""
        return [value for term in self.content for value in term]

    @property
    def single_value(self) -> ir.Value | None:
        """The content, if it is one value with the coefficient 1."""
        match list(self.content.items()):
            case [((value,), 1.0)]:
                return value
        return None

    def times(self, factor: float) -> Branch:
        """The branch with its content multiplied by a number."""
        content = {term: coefficient * factor for term, coefficient in self.content.items()}
        # 3 * (1 / 3) is 1
        exact = {term: 1.0 if math.isclose(number, 1.0) else number for term, number in content.items()}
        return replace(self, content=exact)


@dataclass(frozen=True, eq=False)
class GatedSum:
    """A gated sum: if `coupled`, the branches G q and (1 - G) p; else one branch for each gate."""

    output: ir.Value
    coupled: bool
    branches: tuple[Branch, ...]


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
            if self._view.is_added(node):
                continue
            if node.op_type in ADDITION_OPS or (
                node.op_type in HIDDEN_ADDITION_OPS and self._view.unstacked_node(node.outputs[0]) is not None
            ):
                yield [candidate for level in self._enclosing_sums(node) for candidate in reversed(level)]

    def match(self, node: ir.Node) -> list[GatedSum]:
        """The ways to read a node as a gated sum: one coupled gated sum, or several independent ones."""
        independent: list[GatedSum] = []
        for reach in Reach:
            matches = self._match_expanded(node, self._expander.expand(node, reach))
            if matches and matches[0].coupled:
                break
            # what is expanded further may hide the value that is carried
            independent = independent or (matches if reach < Reach.FACTORS else [])
        else:
            matches = independent
        if self._view.unstacked_node(node.outputs[0]) is not None:
            matches = [self._without_stack_axes(match) for match in matches]
        return [self._with_factor(match) for match in matches]

    def _with_factor(self, gated_sum: GatedSum) -> GatedSum:
        """The gated sum with the number that it is multiplied by, if only then a branch is a single value.

        2 * mean(t * h, (1 - t) * x) is t * h + (1 - t) * x.
        """
        output = gated_sum.output
        users = [user for user, _ in output.uses() if not self._view.is_added(user)]
        scaled = match_scaling(users[0]) if len(users) == 1 else None
        if scaled is None or output.is_graph_output() or _has_single_value(gated_sum.branches):
            return gated_sum
        branches = tuple(branch.times(scaled.factor) for branch in gated_sum.branches)
        if not _has_single_value(branches):
            return gated_sum
        return GatedSum(users[0].outputs[0], gated_sum.coupled, branches)

    def _without_stack_axes(self, gated_sum: GatedSum) -> GatedSum:
        """A gated sum of stacked values, with gates as they were before axes were added for the stack."""
        branches = []
        for branch in gated_sum.branches:
            gate = branch.gate
            while (node := gate.producer()) is not None and node.op_type == "Unsqueeze":
                gate = self._view.canonical(first_input(node))
            branches.append(replace(branch, gate=gate))
        return GatedSum(gated_sum.output, gated_sum.coupled, tuple(branches))

    def _match_expanded(self, node: ir.Node, expanded: Sum | None) -> list[GatedSum]:
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
        """Treat the output of a gated sum as one value from now on, also before the factor behind it."""
        self._accepted.add(self._view.canonical(gated_sum.output))
        node = gated_sum.output.producer()
        if node is not None and (scaled := match_scaling(node)) is not None:
            self._accepted.add(self._view.canonical(scaled.value))

    def is_accepted(self, node: ir.Node) -> bool:
        """Whether a node computes a gated sum that was accepted."""
        return self._view.canonical(node.outputs[0]) in self._accepted

    def complement(self, gate: ir.Value) -> ir.Value | None:
        """The value 1 - gate; None if the graph does not compute it."""
        return self._expander.complement(gate)

    def _match_sum(self, node: ir.Node, expanded: Sum) -> list[GatedSum]:
        output = node.outputs[0]
        values = dict.fromkeys(value for term in expanded for value in term)
        gates = [
            value
            for value in values
            if self._ranges.can_be_gate(value)
            and value not in self._accepted
            and not _is_activation(value, expanded)
        ]
        for gate in gates:
            if (branches := _match_coupled(expanded, gate)) is not None:
                return [GatedSum(output, True, branches)]
        for value in filter(self._ranges.can_be_signed_gate, values):
            branches = None if value in self._accepted else _match_signed(expanded, value)
            if branches is not None:
                return [GatedSum(output, True, branches)]
        return [
            GatedSum(output, False, tuple(map(self._unscaled, branches)))
            for branches in _match_independent(expanded, gates)
        ]

    def _unscaled(self, branch: Branch) -> Branch:
        """The branch with a number that multiplies its gate moved to its content: (2 g) x is g (2 x)."""
        node = branch.gate.producer()
        scaled = None if node is None or branch.complemented else match_scaling(node)
        inner = None if scaled is None else self._expander.gate_factor(scaled.value)
        if scaled is None or inner is None:
            return branch
        return Branch(inner.gate, inner.complemented, branch.times(scaled.factor).content)

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


def _has_single_value(branches: tuple[Branch, ...]) -> bool:
    return any(branch.single_value is not None for branch in branches)


def _is_activation(gate: ir.Value, expanded: Sum) -> bool:
    """Whether a gate multiplies nothing but its own logit, as in silu(x) = x * sigmoid(x)."""
    match = match_sigmoid(gate)
    return match is not None and all(match.logit in term for term in expanded if gate in term)


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
    if transformed.keys() == {()}:
        # the gate chooses between p and a constant number
        return None
    return (Branch(gate, False, transformed), Branch(gate, True, ungated)) if transformed else None


def _match_signed(expanded: Sum, gate: ir.Value) -> tuple[Branch, Branch] | None:
    """Match y = p + G s for a gate between -1 and 1: y = (1 + G) / 2 (p + s) + (1 - G) / 2 (p - s).

    Each term is in p and in s, and cancels in one of the two branches: any p + G s could be written so.
    """
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
    if ungated.keys() != gated.keys() or any(abs(gated[term]) != abs(ungated[term]) for term in gated):
        return None
    contents = [
        {term: 2 * coefficient for term, coefficient in ungated.items() if gated[term] == sign * coefficient}
        for sign in (1, -1)
    ]
    # the gate chooses between a value and a constant number, or chooses nothing
    if any(not content.keys() - {()} for content in contents) or () in ungated:
        return None
    return Branch(gate, False, contents[0], signed=True), Branch(gate, True, contents[1], signed=True)


def _match_independent(expanded: Sum, gates: list[ir.Value]) -> Iterator[tuple[Branch, ...]]:
    """Match y = G q + (1 - K) p + ...: every way to give each term a gate, if two or three are used."""
    for complemented, rest in _complemented_branches(expanded, gates):
        others = [gate for gate in gates if all(gate is not branch.gate for branch in complemented)]
        for gated in _gated_branches(rest, others):
            branches = (*complemented, *gated)
            used = {branch.gate for branch in branches}
            # a product of two of the gates belongs to neither
            if 2 <= len(branches) <= MAX_INDEPENDENT_GATES and not any(
                used.intersection(branch.values) for branch in branches
            ):
                yield branches


def _complemented_branches(
    expanded: Sum, gates: list[ir.Value], at_most: int = MAX_INDEPENDENT_GATES
) -> Iterator[tuple[tuple[Branch, ...], Sum]]:
    """Every way to take branches (1 - K) p, which are p and -K p, out of a sum; with what remains of it."""
    for number, gate in enumerate(gates):
        rest, content = dict(expanded), {}
        for term, coefficient in expanded.items():
            if term.count(gate) == 1:
                ungated = _without_factor(term, gate)
                if ungated and rest.get(ungated) == -coefficient:
                    content[ungated] = rest.pop(ungated)
                    del rest[term]
        if content and at_most:
            branch = Branch(gate, True, content)
            # of the gates after this one, so that two of them are taken out only once
            for branches, remaining in _complemented_branches(rest, gates[number + 1 :], at_most - 1):
                yield (branch, *branches), remaining
    yield (), expanded


def _gated_branches(expanded: Sum, gates: list[ir.Value]) -> Iterator[tuple[Branch, ...]]:
    """Every way to read a sum as G q + ...: each term is given to one of its gates."""
    seen = set()
    for assignment in _gate_assignments(expanded, gates):
        contents: dict[ir.Value, Sum] = {}
        for (term, coefficient), gate in zip(expanded.items(), assignment, strict=True):
            contents.setdefault(gate, {})[_without_factor(term, gate)] = coefficient
        key = tuple(sorted((id(gate), len(content)) for gate, content in contents.items()))
        is_bare_gate = any(() in content for content in contents.values())
        if key not in seen and not is_bare_gate:
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


def _without_factor(term: Term, factor: ir.Value) -> Term:
    factors = list(term)
    factors.remove(factor)
    return tuple(factors)
