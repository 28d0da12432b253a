"""Finds the highways of a graph: gated sums in which one branch carries what the other one transforms.

For y = T H + C x, `gated_sums` finds the two products, and this module decides which of them is the carry.
The gate of the other product is T. Names cannot tell: in some code the gate called `g` belongs to H, in other
code to x. What the branches are computed from does tell (`Evidence`): H is computed from x, not the other way
round.

Repeats of one layer (the same weights, applied at every time step) are decided together, from the repeat with
the strongest evidence: at the first step the carried state is often just zeros.
"""

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
Kind = Literal["coupled", "independent", "softmax"]

# linear maps, pooling and normalization: a carried branch may go through these and is still no transform
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
# Mean bias above which an undecidable gate counts as a carry gate. Carry gates are initialized at 1 or more;
# a bias drawn around 0 says nothing, and the gate is taken for T, which is the usual way to write a highway.
MIN_CARRY_BIAS = 0.5


class Evidence(IntEnum):
    """Why a branch was taken for the carry; lower is stronger."""

    PREVIOUS_OUTPUT = 0  # it is what the same layer returned one time step earlier
    SOURCE_OF_OTHER = 1  # the other branch is computed from it, and adds nodes of its own
    LINEAR = 2  # it has no activation of its own, and the other branch has one
    NO_WEIGHTS = 3  # it has no weights of its own, and the other branch has some
    INITIAL_STATE = 4  # it depends on no input: the initial state of a recurrent layer
    NONE = 5  # the branches cannot be told apart


@dataclass(frozen=True)
class CarryDecision:
    """Which branch of a gated sum carries.

    Attributes:
        carried: Number of the branch that carries.
        transformed: Number of a branch that transforms.
        evidence: Why.
        carry: "identity" if it carries the very input of the other branch, "projected" otherwise.
    """

    carried: int
    transformed: int
    evidence: Evidence
    carry: Carry


@dataclass(frozen=True, eq=False)
class Highway:
    """One transform gate T and its gated sum.

    Attributes:
        output: The output of the gated sum.
        kind: How T and C are related: C = 1 - T, C = a gate of its own, or both are parts of one softmax.
        carry: Whether the input is carried unchanged.
        transform: The branch T H.
        carried: The branch C x.
        complement: The value 1 - `transform.gate`, if the graph computes it.
        weights: Equal for the repeats of one gate in time.
        state: The value that the carried branch is taken from.
        uncertainty: A sentence for the user if the carry had to be guessed.
    """

    output: ir.Value
    kind: Kind
    carry: Carry
    transform: Branch
    carried: Branch
    complement: ir.Value | None
    weights: Hashable
    state: ir.Value
    uncertainty: str | None = None

    @property
    def transform_gate(self) -> ir.Value | None:
        """The value T; None if the graph only computes 1 - T."""
        return self.complement if self.transform.complemented else self.transform.gate

    @property
    def carry_gate(self) -> ir.Value | None:
        """The value C; None if the graph does not compute it."""
        if self.kind != "coupled":
            return self.carried.gate
        return self.transform.gate if self.transform.complemented else self.complement


class HighwayFinder:
    """Finds the highways of one graph, in the order data flows."""

    def __init__(self, graph: ir.Graph) -> None:
        self.view = GraphView(graph)
        ranges = ValueRanges(self.view)
        self.logits = LogitTracer(self.view, ranges)
        self._gated_sums = GatedSumFinder(self.view, ranges)
        self._classifier = CarryClassifier(self.view, ranges)
        # outputs of the gated sums accepted so far, by the weights of their gates
        self._outputs: defaultdict[Hashable, set[ir.Value]] = defaultdict(set)

    def find(self) -> list[Highway]:
        """All highways of the graph."""
        # Go through the additions of the graph, each with the sums around it, and accept the first that is a
        # highway. A sum is tried again only if a highway was accepted since, as that may change its
        # expansion.
        accepted: list[tuple[GatedSum, Hashable, CarryDecision]] = []
        tried_at: dict[ir.Node, int] = {}  # node -> number of highways accepted when it was tried last
        for nodes in self._gated_sums.candidates():
            if any(map(self._gated_sums.is_accepted, nodes)):
                continue
            for node in nodes:
                if tried_at.get(node) == len(accepted):
                    continue
                tried_at[node] = len(accepted)
                if (match := self._match(node)) is not None:
                    gated_sum, weights, _ = match
                    self._gated_sums.accept(gated_sum)
                    self._outputs[weights].add(self.view.canonical(gated_sum.output))
                    accepted.append(match)
                    break
        # repeats of one layer share the decision with the strongest evidence
        strongest: dict[Hashable, CarryDecision] = {}
        for _, weights, decision in accepted:
            if weights not in strongest or decision.evidence < strongest[weights].evidence:
                strongest[weights] = decision
        return [
            highway
            for gated_sum, weights, _ in accepted
            for highway in self._highways(gated_sum, weights, strongest[weights])
        ]

    def _match(self, node: ir.Node) -> tuple[GatedSum, Hashable, CarryDecision] | None:
        """The first reading of a node that is a highway, with the identity of its weights."""
        for match in self._gated_sums.match(node):
            gated_sum, weights = self._identify(match)
            decision = self._classifier.decide(gated_sum.branches, self._outputs.get(weights, set()))
            # a coupled gate is a highway gate even if the carry must be guessed; two products may be anything
            if decision is not None and (gated_sum.coupled or decision.evidence != Evidence.NONE):
                return gated_sum, weights, decision
        return None

    def _identify(self, gated_sum: GatedSum) -> tuple[GatedSum, Hashable]:
        """The gated sum with its branches in an order that its repeats share, and what its repeats share."""
        identities = [self.logits.logit(branch.gate).identity for branch in gated_sum.branches]
        if None in identities:
            return gated_sum, gated_sum.output
        if gated_sum.coupled:
            return gated_sum, identities[0]
        branches = sorted(gated_sum.branches, key=lambda branch: str(self.logits.logit(branch.gate).identity))
        return GatedSum(gated_sum.output, False, tuple(branches)), frozenset(identities)

    def _highways(self, gated_sum: GatedSum, weights: Hashable, decision: CarryDecision) -> list[Highway]:
        """One highway for each branch that transforms."""
        uncertainty = None
        if decision.evidence == Evidence.NONE:
            decision, uncertainty = self._guess(gated_sum, decision)
        carried = gated_sum.branches[decision.carried]
        state = self._classifier.state(carried) or gated_sum.output
        return [
            Highway(
                output=gated_sum.output,
                kind=self._kind(gated_sum, branch, carried),
                carry=decision.carry,
                transform=branch,
                carried=carried,
                complement=self._gated_sums.complement(branch.gate),
                weights=(weights, self.logits.logit(branch.gate).identity),
                state=state,
                uncertainty=uncertainty,
            )
            for branch in gated_sum.branches
            if branch is not carried
        ]

    def _kind(self, gated_sum: GatedSum, transform: Branch, carried: Branch) -> Kind:
        if gated_sum.coupled or are_complements(transform.gate, carried.gate):
            return "coupled"
        softmax = self.logits.softmax_node(transform.gate)
        return "softmax" if softmax and softmax is self.logits.softmax_node(carried.gate) else "independent"

    def _guess(self, gated_sum: GatedSum, decision: CarryDecision) -> tuple[CarryDecision, str]:
        """Guess from the bias: highways start by carrying, with T near 0 and C near 1."""
        bias = self.logits.logit(gated_sum.branches[0].gate).bias
        mean = None if bias is None else float(np.mean(bias))
        carried = 0 if mean is not None and mean > MIN_CARRY_BIAS else 1
        gate = "a carry gate" if carried == 0 else "a transform gate"
        reason = "it has no bias" if mean is None else f"its bias is {mean:.3g} on average"
        uncertainty = (
            f"cannot tell from the graph which branch is carried; took the gate for {gate}, because {reason}"
        )
        return CarryDecision(carried, 1 - carried, decision.evidence, decision.carry), uncertainty


class CarryClassifier:
    """Decides which branch of a gated sum carries, by what the branches are computed from."""

    def __init__(self, view: GraphView, ranges: ValueRanges) -> None:
        self._view = view
        self._ranges = ranges

    def decide(
        self, branches: tuple[Branch, ...], previous_outputs: Container[ir.Value]
    ) -> CarryDecision | None:
        """Decide between two or three branches; `previous_outputs` are those of the same layer so far.

        Three branches are compared in pairs: the carry is the first that is never the transform of another.
        None if no pair can be decided, or each branch is a transform of another one.
        """
        if len(branches) == 2:
            return self._decide_pair(branches, 0, 1, previous_outputs)
        pairs = combinations(range(len(branches)), 2)
        decisions = [self._decide_pair(branches, first, second, previous_outputs) for first, second in pairs]
        certain = [decision for decision in decisions if decision.evidence != Evidence.NONE]
        transformed = {decision.transformed for decision in certain}
        for decision in certain:
            if decision.carried not in transformed:
                return decision
        return None

    def state(self, branch: Branch) -> ir.Value | None:
        """The value that a branch consists of, apart from rearranged elements; None if it is a sum."""
        return None if branch.single_value is None else self._unarranged(branch.single_value)

    def _decide_pair(
        self, branches: tuple[Branch, ...], first: int, second: int, previous_outputs: Container[ir.Value]
    ) -> CarryDecision:
        pair = {first: branches[first], second: branches[second]}
        # each test below decides only if it holds for exactly one of the two branches

        # the branch that is an earlier output of the same layer
        states = [
            number
            for number in pair
            if (state := self.state(pair[number])) is not None and state in previous_outputs
        ]
        if len(states) == 1:
            return CarryDecision(states[0], first + second - states[0], Evidence.PREVIOUS_OUTPUT, "identity")

        # the branch that does not depend on the input
        constant = [
            number
            for number in pair
            if not any(self._ranges.depends_on_input(value) for value in pair[number].values)
        ]
        if len(constant) == 1:
            return CarryDecision(
                constant[0], first + second - constant[0], Evidence.INITIAL_STATE, "projected"
            )

        # the branch without nodes of its own: everything it is computed from, the other one uses as well
        ancestors = self._view.exclusive_ancestors(*map(self._sources, pair.values()))
        own_nodes = dict(zip(pair, ancestors, strict=True))
        bare = [number for number in pair if own_nodes[number] == []]
        if len(bare) == 1:
            return self._decision(bare[0], Evidence.SOURCE_OF_OTHER, pair)

        # the branch without activations, or else without weights, among its own nodes
        for evidence, count in (
            (Evidence.LINEAR, self._count_activations),
            (Evidence.NO_WEIGHTS, _count_weighted),
        ):
            counts = {number: count(own_nodes[number] or []) for number in pair}
            without = [number for number in pair if not counts[number]]
            if len(without) == 1:
                return self._decision(without[0], evidence, pair)
        return CarryDecision(second, first, Evidence.NONE, "projected")

    def _decision(self, carried: int, evidence: Evidence, pair: dict[int, Branch]) -> CarryDecision:
        transformed = sum(pair) - carried
        carry = self._carry(pair[carried], pair[transformed])
        return CarryDecision(carried, transformed, evidence, carry)

    def _carry(self, carried: Branch, other: Branch) -> Carry:
        """Identity if the carried value itself is an input of the other branch, or of a gate."""
        if carried.single_value is None:
            return "projected"
        source = self._unarranged(carried.single_value)
        users = self._sources(other) | {self._unarranged(carried.gate), self._unarranged(other.gate)}
        return "identity" if _is_any_computed_from(self._view, source, users) else "projected"

    def _sources(self, branch: Branch) -> set[ir.Value]:
        return {self._unarranged(value) for value in branch.values}

    def _unarranged(self, value: ir.Value) -> ir.Value:
        """The value before its elements were rearranged, or one time step was taken out of it."""
        while (node := value.producer()) is not None and (is_pass_through(node) or _only_rearranges(node)):
            value = first_input(node)
        return self._view.canonical(value)

    def _count_activations(self, nodes: Iterable[ir.Node]) -> int:
        return sum(
            not self._is_linear(node) for node in nodes if self._ranges.depends_on_input(node.outputs[0])
        )

    def _is_linear(self, node: ir.Node) -> bool:
        if node.op_type in {"Mul", "Div"}:
            return sum(map(self._ranges.depends_on_input, present_inputs(node))) < 2
        return node.op_type in LINEAR_OPS


def _only_rearranges(node: ir.Node) -> bool:
    if node.op_type in {"Reshape", "Flatten", "Transpose", "Unsqueeze", "Squeeze"}:
        return True
    if node.op_type not in {"Slice", "Gather", "Split"}:
        return False
    # taking out one time step removes an axis, or leaves it with one element
    before, after = shape_of(first_input(node)), shape_of(node.outputs[0])
    if before is None or after is None:
        return False
    if len(before) != len(after):
        return True
    changed = [size for old, size in zip(before, after, strict=True) if old != size]
    return all(size == 1 for size in changed)


def _count_weighted(nodes: Iterable[ir.Node]) -> int:
    return sum(node.op_type in WEIGHTED_OPS for node in nodes)


def _is_any_computed_from(view: GraphView, source: ir.Value, values: Iterable[ir.Value]) -> bool:
    """Whether any of the values is the source, or is computed from it."""
    source_position = view.position(source)
    waiting = list(values)
    seen: set[ir.Value] = set()
    while waiting:
        value = view.canonical(waiting.pop())
        if value is source:
            return True
        node = value.producer()
        # what comes before the source in the graph cannot depend on it
        if value in seen or node is None or view.position(value) <= source_position:
            continue
        seen.add(value)
        waiting.extend(present_inputs(node))
    return False
