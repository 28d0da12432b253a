"""Sums in which gates decide what is let through: y = G q + (1 - G) p, or y = G q + K p."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from export.gates.constants import scalar
from export.gates.flow import Flow, transparent
from export.gates.sums import ADDITIONS, ARITHMETIC, Sum, Sums, Term
from export.gates.value_ranges import Ranges

# how many sums around a sum are tried before it
DEEPEST = 8


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
class Block:
    """A gated sum: two branches of one gate where it is coupled, else a branch for every gate."""

    output: ir.Value
    coupled: bool
    branches: tuple[Branch, ...]


class Blocks:
    """Finds the gated sums of a graph, in the order data flows.

    `accept` has the last word: the products of two gates are a highway only if one carries what the
    other transforms.
    """

    def __init__(self, flow: Flow, ranges: Ranges) -> None:
        self._flow = flow
        self._ranges = ranges
        self._settled: dict[ir.Value, Block] = {}
        self.sums = Sums(flow, ranges, self._settled)

    def candidates(self) -> Iterator[list[ir.Node]]:
        """For every sum itself and those around it, one of which may be a block, the likeliest first.

        What is added to a sum may belong to it, so of sums of sums the outermost comes first; a sum that
        is multiplied before more is added, as a recurrent state is, comes before those around it.
        """
        for node in self._flow.nodes:
            if node.op_type in ADDITIONS:
                yield [one for level in self._levels(node) for one in reversed(level)]

    def read(self, node: ir.Node) -> list[Block]:
        """The ways in which a sum may be a block; coupled ones are certain, others are to be judged."""
        written = self.sums.write(node)
        if written is None:
            return []
        # a zero may be what is carried, or a number that changes nothing
        bare = {term: times for term, times in written.items() if len(term) != 1 or scalar(term[0]) != 0}
        return self._read(node, written) or (self._read(node, bare) if bare != written else [])

    def _read(self, node: ir.Node, written: Sum) -> list[Block]:
        gates = self._gates(written)
        output = node.outputs[0]
        for gate in gates:
            if (branches := _coupled(written, gate)) is not None:
                return [Block(output, True, branches)]
        return [Block(output, False, branches) for branches in _separate(written, gates)]

    def settle(self, block: Block) -> None:
        """From here on the block's output is one value, whatever it is made of."""
        self._settled[self._flow.first(block.output)] = block

    def settled(self, value: ir.Value) -> Block | None:
        """The block whose output a value is."""
        return self._settled.get(self._flow.first(value))

    def _gates(self, written: Sum) -> list[ir.Value]:
        found = dict.fromkeys(value for term in written for value in term if self._ranges.gate(value))
        return [value for value in found if value not in self._settled]

    def _levels(self, node: ir.Node) -> list[list[ir.Node]]:
        """A sum and those around it that nothing else has a part in; a product begins a new level."""
        levels = [[node]]
        inner = node
        while sum(map(len, levels)) <= DEEPEST:
            value = inner.outputs[0]
            users = [user for user, _ in value.uses()]
            if len(users) != 1 or value.is_graph_output() or users[0] not in self._flow.place:
                break
            inner = users[0]
            if inner.op_type in ADDITIONS:
                levels[-1].append(inner)
            elif inner.op_type in {"Mul", "Div"}:
                levels.append([])
            elif not (inner.op_type in ARITHMETIC or transparent(inner)):
                break
        return levels


def _coupled(written: Sum, gate: ir.Value) -> tuple[Branch, Branch] | None:
    """y = r + G s is G (r + s) + (1 - G) r: a block if s takes all of r away and puts something there."""
    without: Sum = {}
    beside: Sum = {}
    for term, times in written.items():
        match term.count(gate):
            case 0:
                without[term] = times
            case 1:
                beside[_less(term, gate)] = times
            case _:
                return None
    if not without or () in without or any(beside.get(term) != -times for term, times in without.items()):
        return None
    instead = {term: times for term, times in beside.items() if term not in without}
    return (Branch(gate, False, instead), Branch(gate, True, without)) if instead else None


def _separate(written: Sum, gates: list[ir.Value]) -> Iterator[tuple[Branch, ...]]:
    """Every product has a gate of its own, of which there are two or three."""
    seen = set()
    for chosen in _choices(written, gates):
        parts: dict[ir.Value, Sum] = {}
        for (term, times), gate in zip(written.items(), chosen, strict=True):
            parts.setdefault(gate, {})[_less(term, gate)] = times
        key = tuple(sorted((id(gate), len(part)) for gate, part in parts.items()))
        if not 2 <= len(parts) <= 3 or key in seen or any(() in part for part in parts.values()):
            continue
        seen.add(key)
        yield tuple(Branch(gate, False, part) for gate, part in parts.items())


def _choices(written: Sum, gates: list[ir.Value]) -> Iterator[list[ir.Value]]:
    """A gate for every product: the same wherever it occurs, else each of those that it has."""
    options = [[value for value in dict.fromkeys(term) if value in gates] for term in written]
    if not all(options) or len(options) > 6 or any(len(option) > 2 for option in options):
        return
    paths: list[list[ir.Value]] = [[]]
    for option in options:
        paths = [[*path, gate] for path in paths for gate in option]
    yield from paths


def _less(term: Term, gate: ir.Value) -> Term:
    factors = list(term)
    factors.remove(gate)
    return tuple(factors)
