"""Finds the highways of a graph: gated sums in which one branch carries what the other one transforms.

For y = T H + C x, `gated_sums` finds the two products, and `carry` tells which of them is C x. The gate of
the other one is T.

Repeats of one layer (the same weights, applied at every time step) are decided together, from the repeat with
the strongest evidence: at the first step the carried state is often just zeros.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.algebra.gated_sums import Branch, GatedSum, GatedSumFinder
from turnpike.export.gates.algebra.logits import LogitTracer
from turnpike.export.gates.algebra.sigmoids import are_complements
from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.unstacked_forms import UnstackedForms
from turnpike.export.gates.graph.view import GraphView
from turnpike.export.gates.highways.by_value import ValueSearch
from turnpike.export.gates.highways.carry import Carry, CarryClassifier, CarryDecision, Evidence

Kind = Literal["coupled", "independent", "softmax"]

# Mean bias above which an undecidable gate counts as a carry gate. Carry gates are initialized at 1 or more;
# a bias drawn around 0 says nothing, and the gate is taken for T, which is the usual way to write a highway.
MIN_CARRY_BIAS = 0.5


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
        carried_complement: The value 1 - `carried.gate`, if the graph computes it.
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
    carried_complement: ir.Value | None
    weights: Hashable
    state: ir.Value
    uncertainty: str | None = None

    @property
    def transform_gate(self) -> ir.Value | None:
        """The value T; None if the graph only computes 1 - T, or 2 T - 1."""
        if self.transform.signed:
            return None
        return self.complement if self.transform.complemented else self.transform.gate

    @property
    def carry_gate(self) -> ir.Value | None:
        """The value C; None if the graph does not compute it."""
        if self.kind != "coupled":
            return self.carried_complement if self.carried.complemented else self.carried.gate
        if self.transform.signed:
            return None
        return self.transform.gate if self.transform.complemented else self.complement


class HighwayFinder:
    """Finds the highways of one graph, in the order data flows.

    `states` are those of a loop whose body the graph is: the state before a step, by the state after it.
    """

    def __init__(
        self,
        graph: ir.Graph,
        unstacked: UnstackedForms,
        states: Mapping[ir.Value, ir.Value],
        opset: int,
    ) -> None:
        self.view = GraphView(graph, unstacked)
        ranges = ValueRanges(self.view)
        # outputs of sums of gated products of which none can be told to be the carry
        self.undecided: set[ir.Value] = set()
        self.can_be_gate = ranges.can_be_gate
        self.logits = LogitTracer(self.view, ranges)
        self._gated_sums = GatedSumFinder(self.view, ranges)
        self._classifier = CarryClassifier(self.view, ranges)
        # outputs of the gated sums accepted so far, by the weights of their gates
        self._outputs: defaultdict[Hashable, set[ir.Value]] = defaultdict(set)
        self._values = ValueSearch(self.view, ranges, opset)
        self._states = {self.view.canonical(after): before for after, before in states.items()}

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
                if (match := self._match(self._gated_sums.match(node))) is not None:
                    gated_sum, weights, _ = match
                    self._gated_sums.accept(gated_sum)
                    self._outputs[weights].add(self.view.canonical(gated_sum.output))
                    accepted.append(match)
                    break
        accepted += self._find_by_value(accepted)
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

    def _find_by_value(
        self, accepted: list[tuple[GatedSum, Hashable, CarryDecision]]
    ) -> list[tuple[GatedSum, Hashable, CarryDecision]]:
        """The highways in forms that no pattern knows."""
        gates = [branch.gate for gated_sum, _, _ in accepted for branch in gated_sum.branches]
        outputs = [gated_sum.output for gated_sum, _, _ in accepted]
        matches = (self._match([gated_sum]) for gated_sum in self._values.find(gates, outputs))
        return [match for match in matches if match is not None]

    def _match(self, readings: Iterable[GatedSum]) -> tuple[GatedSum, Hashable, CarryDecision] | None:
        """The first reading of a value that is a highway, with the identity of its weights."""
        for match in readings:
            gated_sum, weights = self._identify(match)
            decision = self._classifier.decide(gated_sum.branches, self._previous_outputs(gated_sum, weights))
            # a coupled gate is a highway gate even if the carry must be guessed; two products may be anything
            weakest = Evidence.NONE if gated_sum.coupled else Evidence.INITIAL_STATE
            if decision is not None and decision.evidence <= weakest:
                return gated_sum, weights, decision
            self.undecided.add(self.view.canonical(gated_sum.output))
        return None

    def _previous_outputs(self, gated_sum: GatedSum, weights: Hashable) -> set[ir.Value]:
        """What the same layer returned before: at earlier steps, or in a loop at the step before."""
        outputs = self._outputs.get(weights, set())
        state = self._states.get(self.view.canonical(gated_sum.output))
        return outputs if state is None else {*outputs, state}

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
                carried_complement=self._gated_sums.complement(carried.gate),
                weights=(weights, self.logits.logit(branch.gate).identity),
                state=state,
                uncertainty=uncertainty,
            )
            for branch in gated_sum.branches
            if branch is not carried
        ]

    def _kind(self, gated_sum: GatedSum, transform: Branch, carried: Branch) -> Kind:
        if gated_sum.coupled or (
            transform.complemented == carried.complemented and are_complements(transform.gate, carried.gate)
        ):
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
