"""Which of two branches carries the layer's input: decided by what each is made of."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from typing import Literal

import onnx_ir as ir

from export.gates.blocks import Branch
from export.gates.constants import first_input, given
from export.gates.element_moves import MOVES, sizes
from export.gates.flow import Flow, transparent
from export.gates.value_ranges import Ranges

Carry = Literal["identity", "projected"]

# weighed sums of what comes in, and norms: what a carry may go through and still be no transform
LINEAR = MOVES | {
    "Gemm",
    "MatMul",
    "Conv",
    "ConvTranspose",
    "Add",
    "Sub",
    "Sum",
    "Neg",
    "BatchNormalization",
    "LayerNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "RMSNormalization",
    "Pad",
    "AveragePool",
    "GlobalAveragePool",
    "ReduceMean",
    "ReduceSum",
    "Resize",
    "Upsample",
    "Concat",
    "Tile",
}
WEIGHTED = frozenset({"Gemm", "MatMul", "Conv", "ConvTranspose"})


class Ground(IntEnum):
    """Why a branch was taken for the carry, the surest first."""

    STATE = 0  # it is what the same layer put out a step of time before
    INPUT = 1  # the other is made of it
    LINEAR = 2  # it is made without an activation, which the other has
    LIGHT = 3  # it is made without weights, which the other has
    START = 4  # it depends on no input: the state that a recurrent layer begins from
    NONE = 5  # no telling


@dataclass(frozen=True)
class Verdict:
    """The numbers of the branch that carries and of one that transforms, why, and if it is a plain carry."""

    carries: int
    transforms: int
    ground: Ground
    carry: Carry


class Judge:
    """Tells the carry from the transform."""

    def __init__(self, flow: Flow, ranges: Ranges) -> None:
        self._flow = flow
        self._ranges = ranges

    def decide(self, branches: tuple[Branch, ...], before: Container[ir.Value]) -> Verdict | None:
        """The verdict on two branches or more; `before` is what the same layer put out earlier.

        Of more than two, some are made of others: the first of those that are made of none carries.
        None where there is no telling which are.
        """
        if len(branches) == 2:
            return self._between(branches, 0, 1, before)
        pairs = combinations(range(len(branches)), 2)
        verdicts = [self._between(branches, one, two, before) for one, two in pairs]
        sure = [verdict for verdict in verdicts if verdict.ground != Ground.NONE]
        made = {verdict.transforms for verdict in sure}
        for verdict in sure:
            if verdict.carries not in made:
                return verdict
        return None

    def state(self, branch: Branch) -> ir.Value | None:
        """What a branch lets through just as it is, but for the arrangement of its elements."""
        return None if branch.sole is None else self._root(branch.sole)

    def _between(
        self, branches: tuple[Branch, ...], one: int, two: int, before: Container[ir.Value]
    ) -> Verdict:
        pair = {one: branches[one], two: branches[two]}
        states = [at for at in pair if (root := self.state(pair[at])) is not None and root in before]
        if len(states) == 1:
            return Verdict(states[0], one + two - states[0], Ground.STATE, "identity")
        fixed = [at for at in pair if not any(self._ranges.data(value) for value in pair[at].values)]
        if len(fixed) == 1:
            return Verdict(fixed[0], one + two - fixed[0], Ground.START, "projected")
        own = dict(zip(pair, self._flow.apart(*map(self._made_of, pair.values())), strict=True))
        bare = [at for at in pair if own[at] == []]
        if len(bare) == 1:
            return self._verdict(bare[0], Ground.INPUT, pair)
        for ground, count in ((Ground.LINEAR, self._activations), (Ground.LIGHT, _weights)):
            counts = {at: count(own[at] or []) for at in pair}
            without = [at for at in pair if not counts[at]]
            if len(without) == 1:
                return self._verdict(without[0], ground, pair)
        return Verdict(two, one, Ground.NONE, "projected")

    def _verdict(self, carries: int, ground: Ground, pair: dict[int, Branch]) -> Verdict:
        transforms = sum(pair) - carries
        return Verdict(carries, transforms, ground, self._carry(pair[carries], pair[transforms]))

    def _carry(self, carried: Branch, other: Branch) -> Carry:
        """The identity, where what is carried is just what the other branch or the gate is made of."""
        if carried.sole is None:
            return "projected"
        root = self._root(carried.sole)
        looked_at = self._made_of(other) | {self._root(carried.gate), self._root(other.gate)}
        if not _reaches(self._flow, root, looked_at):
            return "projected"
        return "identity"

    def _made_of(self, branch: Branch) -> set[ir.Value]:
        return {self._root(value) for value in branch.values}

    def _root(self, value: ir.Value) -> ir.Value:
        """The value before its elements were only arranged anew, or a step of a sequence taken out."""
        while (node := value.producer()) is not None and (transparent(node) or _arranges(node)):
            value = first_input(node)
        return self._flow.first(value)

    def _activations(self, nodes: Iterable[ir.Node]) -> int:
        return sum(not self._linear(node) for node in nodes if self._ranges.data(node.outputs[0]))

    def _linear(self, node: ir.Node) -> bool:
        if node.op_type in {"Mul", "Div"}:
            return sum(map(self._ranges.data, given(node))) < 2
        return node.op_type in LINEAR


def _arranges(node: ir.Node) -> bool:
    if node.op_type in {"Reshape", "Flatten", "Transpose", "Unsqueeze", "Squeeze"}:
        return True
    if node.op_type not in {"Slice", "Gather", "Split"}:
        return False
    # a step of time is taken out where an axis is left with one element, or goes
    before, after = sizes(first_input(node)), sizes(node.outputs[0])
    if before is None or after is None:
        return False
    if len(before) != len(after):
        return True
    changed = [size for old, size in zip(before, after, strict=True) if old != size]
    return all(size == 1 for size in changed)


def _weights(nodes: Iterable[ir.Node]) -> int:
    return sum(node.op_type in WEIGHTED for node in nodes)


def _reaches(flow: Flow, source: ir.Value, values: Iterable[ir.Value]) -> bool:
    """Whether any of the values is made of the source, or is the source itself."""
    least = flow.order(source)
    waiting = list(values)
    seen: set[ir.Value] = set()
    while waiting:
        value = flow.first(waiting.pop())
        if value is source:
            return True
        node = value.producer()
        if value in seen or node is None or flow.order(value) <= least:
            continue
        seen.add(value)
        waiting.extend(given(node))
    return False
