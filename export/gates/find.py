"""The highways of a graph: gated sums of which one branch carries what another transforms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from typing import Literal

import numpy as np
import onnx_ir as ir

from export.gates.element_moves import MOVE_OPS, shape_of
from export.gates.gated_sums import Branch, GatedSum, GatedSumFinder
from export.gates.graph_view import GraphView, first_input, is_pass_through, present_inputs
from export.gates.logits import LogitTracer
from export.gates.sigmoids import are_complements
from export.gates.value_ranges import ValueRanges

Carry = Literal["identity", "projected"]

# weighed sums of what comes in, and norms: what a carry may go through and still be no transform
LINEAR_OPS = MOVE_OPS | {
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
WEIGHTED_OPS = frozenset({"Gemm", "MatMul", "Conv", "ConvTranspose"})


class Evidence(IntEnum):
    """Why a branch was taken for the carry, the surest first."""

    STATE = 0  # it is what the same layer put out a step of time before
    INPUT = 1  # the other is made of it
    LINEAR = 2  # it is made without an activation, which the other has
    LIGHT = 3  # it is made without weights, which the other has
    START = 4  # it depends on no input: the state that a recurrent layer begins from
    NONE = 5  # no telling


@dataclass(frozen=True)
class CarryDecision:
    """The numbers of the branch that carries and of one that transforms, why, and if it is a plain carry."""

    carries: int
    transforms: int
    ground: Evidence
    carry: Carry


class CarryClassifier:
    """Tells the carry from the transform."""

    def __init__(self, flow: GraphView, ranges: ValueRanges) -> None:
        self._flow = flow
        self._ranges = ranges

    def decide(self, branches: tuple[Branch, ...], before: Container[ir.Value]) -> CarryDecision | None:
        """The verdict on two branches or more; `before` is what the same layer put out earlier.

        Of more than two, some are made of others: the first of those that are made of none carries.
        None where there is no telling which are.
        """
        if len(branches) == 2:
            return self._between(branches, 0, 1, before)
        pairs = combinations(range(len(branches)), 2)
        verdicts = [self._between(branches, one, two, before) for one, two in pairs]
        sure = [verdict for verdict in verdicts if verdict.ground != Evidence.NONE]
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
    ) -> CarryDecision:
        pair = {one: branches[one], two: branches[two]}
        states = [at for at in pair if (root := self.state(pair[at])) is not None and root in before]
        if len(states) == 1:
            return CarryDecision(states[0], one + two - states[0], Evidence.STATE, "identity")
        fixed = [at for at in pair if not any(self._ranges.data(value) for value in pair[at].values)]
        if len(fixed) == 1:
            return CarryDecision(fixed[0], one + two - fixed[0], Evidence.START, "projected")
        own = dict(zip(pair, self._flow.apart(*map(self._made_of, pair.values())), strict=True))
        bare = [at for at in pair if own[at] == []]
        if len(bare) == 1:
            return self._verdict(bare[0], Evidence.INPUT, pair)
        for ground, count in ((Evidence.LINEAR, self._activations), (Evidence.LIGHT, _count_weighted)):
            counts = {at: count(own[at] or []) for at in pair}
            without = [at for at in pair if not counts[at]]
            if len(without) == 1:
                return self._verdict(without[0], ground, pair)
        return CarryDecision(two, one, Evidence.NONE, "projected")

    def _verdict(self, carries: int, ground: Evidence, pair: dict[int, Branch]) -> CarryDecision:
        transforms = sum(pair) - carries
        return CarryDecision(carries, transforms, ground, self._carry(pair[carries], pair[transforms]))

    def _carry(self, carried: Branch, other: Branch) -> Carry:
        """The identity, where what is carried is just what the other branch or the gate is made of."""
        if carried.sole is None:
            return "projected"
        root = self._root(carried.sole)
        looked_at = self._made_of(other) | {self._root(carried.gate), self._root(other.gate)}
        if not _depends_on_source(self._flow, root, looked_at):
            return "projected"
        return "identity"

    def _made_of(self, branch: Branch) -> set[ir.Value]:
        return {self._root(value) for value in branch.values}

    def _root(self, value: ir.Value) -> ir.Value:
        """The value before its elements were only arranged anew, or a step of a sequence taken out."""
        while (node := value.producer()) is not None and (is_pass_through(node) or _only_rearranges(node)):
            value = first_input(node)
        return self._flow.first(value)

    def _activations(self, nodes: Iterable[ir.Node]) -> int:
        return sum(not self._linear(node) for node in nodes if self._ranges.data(node.outputs[0]))

    def _linear(self, node: ir.Node) -> bool:
        if node.op_type in {"Mul", "Div"}:
            return sum(map(self._ranges.data, present_inputs(node))) < 2
        return node.op_type in LINEAR_OPS


def _only_rearranges(node: ir.Node) -> bool:
    if node.op_type in {"Reshape", "Flatten", "Transpose", "Unsqueeze", "Squeeze"}:
        return True
    if node.op_type not in {"Slice", "Gather", "Split"}:
        return False
    # a step of time is taken out where an axis is left with one element, or goes
    before, after = shape_of(first_input(node)), shape_of(node.outputs[0])
    if before is None or after is None:
        return False
    if len(before) != len(after):
        return True
    changed = [size for old, size in zip(before, after, strict=True) if old != size]
    return all(size == 1 for size in changed)


def _count_weighted(nodes: Iterable[ir.Node]) -> int:
    return sum(node.op_type in WEIGHTED_OPS for node in nodes)


def _depends_on_source(flow: GraphView, source: ir.Value, values: Iterable[ir.Value]) -> bool:
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
        waiting.extend(present_inputs(node))
    return False


# biases of carry gates start at 1 or more; drawn around 0, they say nothing, and the gate is T by custom
MIN_TELLING_BIAS = 0.5

Kind = Literal["coupled", "independent", "softmax"]


@dataclass(frozen=True, eq=False)
class Highway:
    """One transform gate and its block: `transform` and `carried` are the two branches.

    `weights` is equal for the repeats of one gate in time, `state` is what the carried branch is
    made of, `doubt` says in a sentence what could not be told.
    """

    output: ir.Value
    kind: Kind
    carry: Carry
    transform: Branch
    carried: Branch
    weights: Hashable
    state: ir.Value
    doubt: str | None = None


class HighwayFinder:
    """Finds the highways of one graph, in the order data flows."""

    def __init__(self, graph: ir.Graph) -> None:
        self.flow = GraphView(graph)
        ranges = ValueRanges(self.flow)
        self.logits = LogitTracer(self.flow, ranges)
        self.blocks = GatedSumFinder(self.flow, ranges)
        self._judge = CarryClassifier(self.flow, ranges)
        self._outputs: defaultdict[Hashable, set[ir.Value]] = defaultdict(set)

    def find(self) -> list[Highway]:
        """Every highway; the repeats of one layer in time are judged as one."""
        found: list[tuple[GatedSum, Hashable, CarryDecision]] = []
        tried: dict[ir.Node, int] = {}
        for nodes in self.blocks.candidates():
            if any(self.blocks.settled(node.outputs[0]) for node in nodes):
                continue
            for node in nodes:
                if tried.get(node) == len(found):
                    continue
                tried[node] = len(found)
                if (judged := self._judged(node)) is not None:
                    self.blocks.settle(judged[0])
                    self._outputs[judged[1]].add(self.flow.first(judged[0].output))
                    found.append(judged)
                    break
        surest: dict[Hashable, CarryDecision] = {}
        for _, weights, verdict in found:
            if weights not in surest or verdict.ground < surest[weights].ground:
                surest[weights] = verdict
        return [one for block, weights, _ in found for one in self._highways(block, weights, surest[weights])]

    def _judged(self, node: ir.Node) -> tuple[GatedSum, Hashable, CarryDecision] | None:
        for read in self.blocks.read(node):
            block, weights = self._in_order(read)
            verdict = self._judge.decide(block.branches, self._outputs.get(weights, set()))
            if verdict is not None and (block.coupled or verdict.ground != Evidence.NONE):
                return block, weights, verdict
        return None

    def _in_order(self, block: GatedSum) -> tuple[GatedSum, Hashable]:
        """The block with its branches in an order that repeats share, and what its gates are made with."""
        identities = [self.logits.of(branch.gate).identity for branch in block.branches]
        if None in identities:
            return block, block.output
        if block.coupled:
            return block, identities[0]
        branches = sorted(block.branches, key=lambda branch: str(self.logits.of(branch.gate).identity))
        return GatedSum(block.output, False, tuple(branches)), frozenset(identities)

    def _highways(self, block: GatedSum, weights: Hashable, verdict: CarryDecision) -> list[Highway]:
        doubt = None
        if verdict.ground == Evidence.NONE:
            verdict, doubt = self._guess(block, verdict)
        carried = block.branches[verdict.carries]
        state = self._judge.state(carried) or block.output
        return [
            Highway(
                output=block.output,
                kind=self._kind(block, branch, carried),
                carry=verdict.carry,
                transform=branch,
                carried=carried,
                weights=(weights, self.logits.of(branch.gate).identity),
                state=state,
                doubt=doubt,
            )
            for branch in block.branches
            if branch is not carried
        ]

    def _kind(self, block: GatedSum, transform: Branch, carried: Branch) -> Kind:
        if block.coupled or are_complements(transform.gate, carried.gate):
            return "coupled"
        shared = self.logits.softmax(transform.gate)
        return "softmax" if shared and shared is self.logits.softmax(carried.gate) else "independent"

    def _guess(self, block: GatedSum, verdict: CarryDecision) -> tuple[CarryDecision, str]:
        """A highway begins by carrying: a bias is negative in a transform gate, positive in a carry gate."""
        bias = self.logits.of(block.branches[0].gate).bias
        mean = None if bias is None else float(np.mean(bias))
        carries = 0 if mean is not None and mean > MIN_TELLING_BIAS else 1
        gate = "a carry gate" if carries == 0 else "a transform gate"
        why = "it has no bias" if mean is None else f"its bias is {mean:.3g} on average"
        doubt = f"which branch carries cannot be told; the gate is taken for {gate}, as {why}"
        return CarryDecision(carries, 1 - carries, verdict.ground, verdict.carry), doubt
