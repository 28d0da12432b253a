"""Finds the sigmoids that multiply something and belong to no highway, and says why.

Most of them are gates of another kind, as in a GLU. Others may be highways in a form that `gated_sums` does
not know: they must not be missed in silence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from turnpike.export.gates.algebra.sigmoids import linear_source, match_scaling, match_sigmoid
from turnpike.export.gates.algebra.sum_expansion import ADDITION_OPS
from turnpike.export.gates.graph.element_moves import before_moves
from turnpike.export.gates.graph.nodes import first_input, is_pass_through, present_inputs
from turnpike.export.gates.highways.highway import Highway, HighwayFinder

# operators that change the shape of a gate and leave out none of its elements
SHAPE_OPS = frozenset({"Unsqueeze", "Squeeze", "Transpose", "Reshape", "Flatten", "Expand"})

NOTHING_CARRIED = "T * H alone: nothing is added to the product"
UNGATED_SUM = "T * H + x: what is added to the product has no gate"
UNDECIDED = "T * H + C * G: neither product carries the input of a layer"
OTHER_SUM = "its products do not add up to T * H + C * x"


@dataclass(frozen=True)
class OtherGate:
    """A sigmoid that multiplies something and belongs to no highway.

    Attributes:
        value: Its name in the graph, before anything was renamed.
        reason: Why it belongs to no highway, as a part of a sentence.
        count: How many there are with the same weights.
    """

    value: str
    reason: str
    count: int = 1


class OtherGateFinder:
    """Finds them in one graph, after its highways were found and before it is changed."""

    def __init__(self, finder: HighwayFinder, highways: Iterable[Highway]) -> None:
        self._finder = finder
        self._view = finder.view
        branches = [branch for highway in highways for branch in (highway.transform, highway.carried)]
        self._known = {self._sigmoid(part) for branch in branches for part in self._gates_in(branch.gate)}

    def find(self) -> Iterator[OtherGate]:
        """All of them, in the order data flows; one for the repeats of a gate in time."""
        products: defaultdict[ir.Value, list[ir.Node]] = defaultdict(list)
        for node in self._view.nodes:
            if node.op_type == "Mul":
                for gate in self._gates_of(node):
                    products[gate].append(node)
        repeats: defaultdict[Hashable, list[ir.Value]] = defaultdict(list)
        for gate in products:
            repeats[self._finder.logits.logit(gate).identity or gate].append(gate)
        for gates in repeats.values():
            reason = self._reason(gates[0], products[gates[0]])
            yield OtherGate(str(gates[0].name), reason, len(gates))

    def _gates_of(self, product: ir.Node) -> Iterator[ir.Value]:
        """The sigmoids among the factors of a product, except for those of highways and activations."""
        factors = [self._view.canonical(factor) for factor in present_inputs(product)]
        for part in (part for factor in factors for part in self._parts_of(factor)):
            if not self._finder.can_be_gate(part):
                continue
            gate = self._sigmoid(part)
            match = match_sigmoid(before_moves(gate))
            if match is None or gate in self._known:
                continue
            # silu(x) = x * sigmoid(x) is an activation
            if self._view.canonical(match.logit) not in factors:
                yield gate

    def _gates_in(self, gate: ir.Value) -> set[ir.Value]:
        """A gate, and the gates that it is computed from, such as the two cases of a stable sigmoid."""
        found: set[ir.Value] = set()
        waiting = [gate]
        while waiting:
            value = self._view.canonical(waiting.pop())
            if value not in found:
                found.add(value)
                node = value.producer()
                sources = [] if node is None else present_inputs(node)
                waiting += [source for source in sources if self._finder.can_be_gate(source)]
        return found

    def _parts_of(self, value: ir.Value) -> list[ir.Value]:
        """The values that are joined to a value, or the value itself."""
        node = value.producer()
        while node is not None and node.op_type in SHAPE_OPS:
            node = first_input(node).producer()
        return present_inputs(node) if node is not None and node.op_type == "Concat" else [value]

    def _sigmoid(self, value: ir.Value) -> ir.Value:
        """The sigmoid that a gate is, apart from its shape, or that it is 1 minus, or a multiple of."""
        while True:
            inner = linear_source(value).value
            node = inner.producer()
            if node is not None and node.op_type in SHAPE_OPS:
                inner = first_input(node)
            if inner is value:
                return self._view.canonical(value)
            value = inner

    def _reason(self, gate: ir.Value, products: list[ir.Node]) -> str:
        sums = [node for product in products for node in self._sums_of(product)]
        if not sums:
            return NOTHING_CARRIED
        if self._finder.undecided.intersection(map(self._view.canonical, (node.outputs[0] for node in sums))):
            return UNDECIDED
        if all(any(not self._has_gate(value) for value in present_inputs(node)) for node in sums):
            return UNGATED_SUM
        return OTHER_SUM

    def _sums_of(self, product: ir.Node) -> list[ir.Node]:
        """The additions that a product is a summand of."""
        sums, waiting = [], [product]
        while waiting:
            for user, _ in waiting.pop().outputs[0].uses():
                if user.op_type in ADDITION_OPS:
                    sums.append(user)
                elif user.op_type in SHAPE_OPS or is_pass_through(user) or match_scaling(user) is not None:
                    waiting.append(user)
        return sums

    def _has_gate(self, summand: ir.Value) -> bool:
        """Whether a summand is a product with a gate."""
        while (node := summand.producer()) is not None:
            if (scaled := match_scaling(node)) is not None:
                summand = scaled.value
            elif node.op_type in SHAPE_OPS or is_pass_through(node):
                summand = first_input(node)
            else:
                return node.op_type == "Mul" and any(map(self._finder.can_be_gate, present_inputs(node)))
        return False
