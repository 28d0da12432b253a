"""A value written out as a sum of products: `x + t * (h - x)` is x + t h - t x."""

from __future__ import annotations

from collections.abc import Container

import onnx_ir as ir

from export.gates.constants import first_input, given, is_one, scalar
from export.gates.element_moves import MOVES
from export.gates.flow import Flow, transparent
from export.gates.sigmoids import multiple
from export.gates.value_ranges import Ranges

# the factors of a product, in the order of the graph, and how often it is counted
Term = tuple[ir.Value, ...]
Sum = dict[Term, float]

ADDITIONS = frozenset({"Add", "Sub", "Sum", "Where"})
ARITHMETIC = ADDITIONS | {"Mul", "Neg", "Div"}
# a sum of more products than this, or of sums of sums deeper than this, is no gated block
LONGEST = 64
DEEPEST = 32


class Sums:
    """Writes values as sums; `settled` are values that are taken whole, as what they are made of is known."""

    def __init__(self, flow: Flow, ranges: Ranges, settled: Container[ir.Value]) -> None:
        self.flow = flow
        self.settled = settled
        self.complements: dict[ir.Value, ir.Value] = {}
        self._ranges = ranges
        self._gates: dict[ir.Value, tuple[ir.Value, bool] | None] = {}
        # in order, so that none is looked for through a long chain of others
        for node in flow.nodes:
            for value in node.outputs:
                self.gate(value)

    def write(self, root: ir.Node) -> Sum | None:
        """The sum that a node makes, written in what it does not share with the rest of the graph."""
        made = Writing(self, root).expand(root)
        return None if made is None or made == {(root.outputs[0],): 1.0} else made

    def gate(self, value: ir.Value) -> tuple[ir.Value, bool] | None:
        """The gate that a value is, or is 1 minus (True); None where it is neither."""
        value = self.flow.first(value)
        if value not in self._gates:
            found = self._gate(value) if self._ranges.gate(value) else None
            self._gates[value] = found
            if found is not None and found[1]:
                self.complements.setdefault(found[0], value)
        return self._gates[value]

    def _gate(self, value: ir.Value) -> tuple[ir.Value, bool]:
        node = value.producer()
        if node is None:
            return value, False
        for source in _taken_from_one(node):
            if (inner := self.gate(source)) is not None:
                return inner[0], not inner[1]
        if node.op_type in MOVES:
            inner = self.gate(first_input(node))
            if inner is not None and inner[1] and (other := self.flow.alike(node, inner[0])) is not None:
                return other, True
        return value, False


class Writing:
    """One sum being written: that of the node `root`."""

    def __init__(self, sums: Sums, root: ir.Node) -> None:
        self._sums = sums
        self._flow = sums.flow
        self._root = root
        self._depth = 0
        self._inner: dict[ir.Value, bool] = {}
        self._written: dict[ir.Value, Sum] = {}

    def expand(self, node: ir.Node) -> Sum | None:
        """What a node makes, written in its inputs; None for what is no arithmetic, or too much of it."""
        if self._depth > DEEPEST:
            return None
        if transparent(node):
            return self._of(first_input(node))
        if node.op_type not in ARITHMETIC:
            return None
        self._depth += 1
        parts = [self._of(value) for value in given(node)]
        self._depth -= 1
        match node.op_type, parts:
            case "Add" | "Sum", _:
                made = _total(parts, [1.0] * len(parts))
            case "Sub", [a, b]:
                made = _total([a, b], [1.0, -1.0])
            case "Neg", [a]:
                made = _total([a], [-1.0])
            case "Mul", [a, b]:
                made = self._times(a, b)
            case "Div", [a, b] if b.keys() == {()}:
                made = _total([a], [1 / b[()]])
            case "Where", [_, a, b] if a == b:
                # two ways to round one sum: so is torch.lerp computed
                made = a
            case _:
                return None
        return made if 0 < len(made) <= LONGEST else None

    def _of(self, value: ir.Value) -> Sum:
        if value not in self._written:
            self._written[value] = self._write(value)
        return self._written[value]

    def _write(self, value: ir.Value) -> Sum:
        # zero is taken for a value, not a number: it is the state that a recurrent layer begins from
        number = scalar(value)
        if number or is_one(value):
            return {(): number or 1.0}
        first = self._flow.first(value)
        if first in self._sums.settled:
            return {(first,): 1.0}
        gate = self._sums.gate(first)
        if gate is not None and not (self._product(first) and self._inside(value)):
            return {(): 1.0, (gate[0],): -1.0} if gate[1] else {(gate[0],): 1.0}
        node = value.producer()
        made = self.expand(node) if node is not None and self._inside(value) else None
        return {(first,): 1.0} if made is None else made

    def _product(self, value: ir.Value) -> bool:
        """Whether a gate is a product of gates, or a part of one: such is gated, unless it is used twice."""
        node = value.producer()
        if node is None or node.op_type not in {"Mul", "Div"} or len(value.uses()) > 1:
            return False
        times = multiple(node)
        return times is None or self._sums.gate(times[0]) is not None

    def _times(self, a: Sum, b: Sum) -> Sum:
        made: Sum = {}
        for left, p in a.items():
            for right, q in b.items():
                term = tuple(sorted((*left, *right), key=lambda value: (self._flow.order(value), id(value))))
                made[term] = made.get(term, 0.0) + p * q
        return {term: times for term, times in made.items() if times}

    def _inside(self, value: ir.Value) -> bool:
        """Whether a value is used for nothing but this sum."""
        if value not in self._inner:
            self._inner[value] = not value.is_graph_output() and all(
                user is self._root
                or (
                    (user.op_type in ARITHMETIC or transparent(user))
                    and self._flow.place.get(user, len(self._flow.nodes)) < self._flow.place[self._root]
                    and all(map(self._inside, user.outputs))
                )
                for user, _ in value.uses()
            )
        return self._inner[value]


def _taken_from_one(node: ir.Node) -> list[ir.Value]:
    """What a node takes from 1, if it does: of 1 - t, 1 + -t and -(t - 1) it is t."""
    match node.op_type, given(node):
        case "Sub", [one, taken] if is_one(one):
            return [taken]
        case "Add", [a, b]:
            negated = [(one, other.producer()) for one, other in ((a, b), (b, a)) if is_one(one)]
            return [first_input(maker) for _, maker in negated if maker and maker.op_type == "Neg"]
        case "Neg", [value] if (inner := value.producer()) is not None and inner.op_type == "Sub":
            taken, one = given(inner)
            return [taken] if is_one(one) else []
    return []


def _total(parts: list[Sum], signs: list[float]) -> Sum:
    made: Sum = {}
    for part, sign in zip(parts, signs, strict=True):
        for term, times in part.items():
            made[term] = made.get(term, 0.0) + sign * times
    return {term: times for term, times in made.items() if times}
