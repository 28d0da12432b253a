"""Decides which branch of a gated sum carries what the other one transforms.

Names cannot tell: in some code the gate called `g` belongs to H, in other code to x. What the branches are
computed from does tell (`Evidence`): H is computed from x, not the other way round.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from typing import Literal

import onnx_ir as ir

from turnpike.export.gates.algebra.gated_sums import Branch
from turnpike.export.gates.algebra.sigmoids import linear_source
from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.element_moves import MOVE_OPS, shape_of
from turnpike.export.gates.graph.nodes import (
    constant_scalar,
    first_input,
    is_all_ones,
    is_pass_through,
    present_inputs,
)
from turnpike.export.gates.graph.view import GraphView

Carry = Literal["identity", "projected"]

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

# operators that compute each number of their result from one number of each input
NUMBERWISE_OPS = frozenset(
    {
        "Add",
        "Sub",
        "Sum",
        "Mul",
        "Div",
        "Neg",
        "Abs",
        "Pow",
        "Sqrt",
        "Reciprocal",
        "Exp",
        "Log",
        "Sigmoid",
        "HardSigmoid",
        "Tanh",
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Celu",
        "Gelu",
        "Mish",
        "HardSwish",
        "Softplus",
        "Softsign",
        "Erf",
        "Sin",
        "Cos",
        "Atan",
        "Clip",
        "Max",
        "Min",
        "Where",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
    }
)
WEIGHTED_OPS = frozenset({"Gemm", "MatMul", "Conv", "ConvTranspose"})


class Evidence(IntEnum):
    """Why a branch was taken for the carry; lower is stronger."""

    PREVIOUS_OUTPUT = 0  # it is what the same layer returned one time step earlier
    SOURCE_OF_OTHER = 1  # the other branch is computed from it, and adds nodes of its own
    LINEAR = 2  # it has no activation of its own, and the other branch has one
    NO_WEIGHTS = 3  # it has no weights of its own, and the other branch has some
    INITIAL_STATE = 4  # it depends on no input: the initial state of a recurrent layer
    NONE = 5  # the branches cannot be distinguished
    # Nothing is transformed, so nothing is carried past it: none of the branches has weights, and both are
    # fixed functions of the same values, as in the cross entropy t log(p) + (1 - t) log(1 - p); or one is a
    # multiple of the other, or the whole sum is a function of one number, an activation.
    NO_LAYER = 6


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
        certain = [decision for decision in decisions if decision.evidence < Evidence.NONE]
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
            is_layer = self._is_layer(pair[bare[0]], pair[first + second - bare[0]])
            evidence = Evidence.SOURCE_OF_OTHER if is_layer else Evidence.NO_LAYER
            return self._decision(bare[0], evidence, pair)

        # the branch without activations, or else without weights, among its own nodes
        nodes = {number: own_nodes[number] or [] for number in pair}
        activations = {
            number: self._count_activations(nodes[number]) + self._count_products(pair[number])
            for number in pair
        }
        weighted = {number: _count_weighted(nodes[number]) for number in pair}
        for evidence, counts in ((Evidence.LINEAR, activations), (Evidence.NO_WEIGHTS, weighted)):
            without = [number for number in pair if not counts[number]]
            if len(without) == 1:
                return self._decision(without[0], evidence, pair)
        evidence = Evidence.NONE if any(weighted.values()) else Evidence.NO_LAYER
        return CarryDecision(second, first, evidence, "projected")

    def _decision(self, carried: int, evidence: Evidence, pair: dict[int, Branch]) -> CarryDecision:
        transformed = sum(pair) - carried
        carry = self._carry(pair[carried], pair[transformed])
        return CarryDecision(carried, transformed, evidence, carry)

    def _is_layer(self, carried: Branch, other: Branch) -> bool:
        """Whether the other branch, or a gate, is more than a function of each number that is carried."""
        source = self.state(carried)
        if source is None:
            return True
        if all(self._linear_source(value) is self._linear_source(source) for value in other.values):
            return False
        waiting = [*other.values, other.gate, carried.gate]
        seen = {source}
        while waiting:
            value = self._view.canonical(waiting.pop())
            if value in seen:
                continue
            seen.add(value)
            node = value.producer()
            if not self._ranges.depends_on_input(value):
                if constant_scalar(value) is None and not is_all_ones(value):
                    return True
            elif node is None or not (node.op_type in NUMBERWISE_OPS or is_pass_through(node)):
                return True
            else:
                waiting += present_inputs(node)
        return False

    def _linear_source(self, value: ir.Value) -> ir.Value:
        """The value that another one is a x + b of, with numbers a and b."""
        return self._view.canonical(linear_source(value).value)

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

    def _count_products(self, branch: Branch) -> int:
        """The terms of a branch that are products of two values, such as a bilinear map."""
        return sum(sum(map(self._ranges.depends_on_input, term)) > 1 for term in branch.content)

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
