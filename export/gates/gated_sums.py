"""Sums in which gates decide what is let through: y = G q + (1 - G) p, or y = G q + K p."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

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

# the factors of a product, in the order of the graph, and how often it is counted
Term = tuple[ir.Value, ...]
Sum = dict[Term, float]

ADDITION_OPS = frozenset({"Add", "Sub", "Sum", "Where"})
ARITHMETIC_OPS = ADDITION_OPS | {"Mul", "Neg", "Div"}
# a sum of more products than this, or of sums of sums deeper than this, is no gated block
MAX_TERMS = 64
MAX_SUM_DEPTH = 32


class SumExpander:
    """Writes values as sums; `settled` are values that are taken whole, as what they are made of is known."""

    def __init__(self, flow: GraphView, ranges: ValueRanges, settled: Container[ir.Value]) -> None:
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
        made = SumExpansion(self, root).expand(root)
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
        for source in _subtracted_from_one(node):
            if (inner := self.gate(source)) is not None:
                return inner[0], not inner[1]
        if node.op_type in MOVE_OPS:
            inner = self.gate(first_input(node))
            if inner is not None and inner[1] and (other := self.flow.alike(node, inner[0])) is not None:
                return other, True
        return value, False


class SumExpansion:
    """One sum being written: that of the node `root`."""

    def __init__(self, sums: SumExpander, root: ir.Node) -> None:
        self._sums = sums
        self._flow = sums.flow
        self._root = root
        self._depth = 0
        self._inner: dict[ir.Value, bool] = {}
        self._written: dict[ir.Value, Sum] = {}

    def expand(self, node: ir.Node) -> Sum | None:
        """What a node makes, written in its inputs; None for what is no arithmetic, or too much of it."""
        if self._depth > MAX_SUM_DEPTH:
            return None
        if is_pass_through(node):
            return self._of(first_input(node))
        if node.op_type not in ARITHMETIC_OPS:
            return None
        self._depth += 1
        parts = [self._of(value) for value in present_inputs(node)]
        self._depth -= 1
        match node.op_type, parts:
            case "Add" | "Sum", _:
                made = _add_sums(parts, [1.0] * len(parts))
            case "Sub", [a, b]:
                made = _add_sums([a, b], [1.0, -1.0])
            case "Neg", [a]:
                made = _add_sums([a], [-1.0])
            case "Mul", [a, b]:
                made = self._times(a, b)
            case "Div", [a, b] if b.keys() == {()}:
                made = _add_sums([a], [1 / b[()]])
            case "Where", [_, a, b] if a == b:
                # two ways to round one sum: so is torch.lerp computed
                made = a
            case _:
                return None
        return made if 0 < len(made) <= MAX_TERMS else None

    def _of(self, value: ir.Value) -> Sum:
        if value not in self._written:
            self._written[value] = self._write(value)
        return self._written[value]

    def _write(self, value: ir.Value) -> Sum:
        # zero is taken for a value, not a number: it is the state that a recurrent layer begins from
        number = constant_scalar(value)
        if number or is_all_ones(value):
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
        times = match_scaling(node)
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
                    (user.op_type in ARITHMETIC_OPS or is_pass_through(user))
                    and self._flow.place.get(user, len(self._flow.nodes)) < self._flow.place[self._root]
                    and all(map(self._inside, user.outputs))
                )
                for user, _ in value.uses()
            )
        return self._inner[value]


def _subtracted_from_one(node: ir.Node) -> list[ir.Value]:
    """What a node takes from 1, if it does: of 1 - t, 1 + -t and -(t - 1) it is t."""
    match node.op_type, present_inputs(node):
        case "Sub", [one, taken] if is_all_ones(one):
            return [taken]
        case "Add", [a, b]:
            negated = [(one, other.producer()) for one, other in ((a, b), (b, a)) if is_all_ones(one)]
            return [first_input(maker) for _, maker in negated if maker and maker.op_type == "Neg"]
        case "Neg", [value] if (inner := value.producer()) is not None and inner.op_type == "Sub":
            taken, one = present_inputs(inner)
            return [taken] if is_all_ones(one) else []
    return []


def _add_sums(parts: list[Sum], signs: list[float]) -> Sum:
    made: Sum = {}
    for part, sign in zip(parts, signs, strict=True):
        for term, times in part.items():
            made[term] = made.get(term, 0.0) + sign * times
    return {term: times for term, times in made.items() if times}


# how many sums around a sum are tried before it
MAX_OUTER_SUMS = 8


@dataclass(frozen=True, eq=False)
class Branch:
    """What one gate lets through: `through` is multiplied by `gate`, or by 1 - gate where `flipped`."""

    gate: ir.Value
    flipped: bool
    through: Sum

    @property
    def values(self) -> list[ir.Value]:
        """The values that are let through."""
        return [value for term in self.through for value in term]

    @property
    def sole(self) -> ir.Value | None:
        """The one value that is let through just as it is, where that is all."""
        if len(self.through) != 1:
            return None
        ((term, times),) = self.through.items()
        return term[0] if len(term) == 1 and times == 1.0 else None


@dataclass(frozen=True, eq=False)
class GatedSum:
    """A gated sum: two branches of one gate where it is coupled, else a branch for every gate."""

    output: ir.Value
    coupled: bool
    branches: tuple[Branch, ...]


class GatedSumFinder:
    """Finds the gated sums of a graph, in the order data flows.

    `accept` has the last word: the products of two gates are a highway only if one carries what the
    other transforms.
    """

    def __init__(self, flow: GraphView, ranges: ValueRanges) -> None:
        self._flow = flow
        self._ranges = ranges
        self._settled: dict[ir.Value, GatedSum] = {}
        self.sums = SumExpander(flow, ranges, self._settled)

    def candidates(self) -> Iterator[list[ir.Node]]:
        """For every sum itself and those around it, one of which may be a block, the likeliest first.

        What is added to a sum may belong to it, so of sums of sums the outermost comes first; a sum that
        is multiplied before more is added, as a recurrent state is, comes before those around it.
        """
        for node in self._flow.nodes:
            if node.op_type in ADDITION_OPS:
                yield [one for level in self._levels(node) for one in reversed(level)]

    def read(self, node: ir.Node) -> list[GatedSum]:
        """The ways in which a sum may be a block; coupled ones are certain, others are to be judged."""
        written = self.sums.write(node)
        if written is None:
            return []
        # a zero may be what is carried, or a number that changes nothing
        bare = {
            term: times for term, times in written.items() if len(term) != 1 or constant_scalar(term[0]) != 0
        }
        return self._read(node, written) or (self._read(node, bare) if bare != written else [])

    def _read(self, node: ir.Node, written: Sum) -> list[GatedSum]:
        gates = self._gates(written)
        output = node.outputs[0]
        for gate in gates:
            if (branches := _match_coupled(written, gate)) is not None:
                return [GatedSum(output, True, branches)]
        return [GatedSum(output, False, branches) for branches in _match_independent(written, gates)]

    def settle(self, block: GatedSum) -> None:
        """From here on the block's output is one value, whatever it is made of."""
        self._settled[self._flow.first(block.output)] = block

    def settled(self, value: ir.Value) -> GatedSum | None:
        """The block whose output a value is."""
        return self._settled.get(self._flow.first(value))

    def _gates(self, written: Sum) -> list[ir.Value]:
        found = dict.fromkeys(value for term in written for value in term if self._ranges.gate(value))
        return [value for value in found if value not in self._settled]

    def _levels(self, node: ir.Node) -> list[list[ir.Node]]:
        """A sum and those around it that nothing else has a part in; a product begins a new level."""
        levels = [[node]]
        inner = node
        while sum(map(len, levels)) <= MAX_OUTER_SUMS:
            value = inner.outputs[0]
            users = [user for user, _ in value.uses()]
            if len(users) != 1 or value.is_graph_output() or users[0] not in self._flow.place:
                break
            inner = users[0]
            if inner.op_type in ADDITION_OPS:
                levels[-1].append(inner)
            elif inner.op_type in {"Mul", "Div"}:
                levels.append([])
            elif not (inner.op_type in ARITHMETIC_OPS or is_pass_through(inner)):
                break
        return levels


def _match_coupled(written: Sum, gate: ir.Value) -> tuple[Branch, Branch] | None:
    """y = r + G s is G (r + s) + (1 - G) r: a block if s takes all of r away and puts something there."""
    without: Sum = {}
    beside: Sum = {}
    for term, times in written.items():
        match term.count(gate):
            case 0:
                without[term] = times
            case 1:
                beside[_without_factor(term, gate)] = times
            case _:
                return None
    if not without or () in without or any(beside.get(term) != -times for term, times in without.items()):
        return None
    instead = {term: times for term, times in beside.items() if term not in without}
    return (Branch(gate, False, instead), Branch(gate, True, without)) if instead else None


def _match_independent(written: Sum, gates: list[ir.Value]) -> Iterator[tuple[Branch, ...]]:
    """Every product has a gate of its own, of which there are two or three."""
    seen = set()
    for chosen in _gate_assignments(written, gates):
        parts: dict[ir.Value, Sum] = {}
        for (term, times), gate in zip(written.items(), chosen, strict=True):
            parts.setdefault(gate, {})[_without_factor(term, gate)] = times
        key = tuple(sorted((id(gate), len(part)) for gate, part in parts.items()))
        if not 2 <= len(parts) <= 3 or key in seen or any(() in part for part in parts.values()):
            continue
        seen.add(key)
        yield tuple(Branch(gate, False, part) for gate, part in parts.items())


def _gate_assignments(written: Sum, gates: list[ir.Value]) -> Iterator[list[ir.Value]]:
    """A gate for every product: the same wherever it occurs, else each of those that it has."""
    options = [[value for value in dict.fromkeys(term) if value in gates] for term in written]
    if not all(options) or len(options) > 6 or any(len(option) > 2 for option in options):
        return
    paths: list[list[ir.Value]] = [[]]
    for option in options:
        paths = [[*path, gate] for path in paths for gate in option]
    yield from paths


def _without_factor(term: Term, gate: ir.Value) -> Term:
    factors = list(term)
    factors.remove(gate)
    return tuple(factors)
