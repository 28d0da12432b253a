"""The highways of a graph: gated sums of which one branch carries what another transforms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from export.gates.blocks import Block, Blocks, Branch
from export.gates.carry import Carry, Ground, Judge, Verdict
from export.gates.flow import Flow
from export.gates.logits import Logits
from export.gates.sigmoids import opposite
from export.gates.value_ranges import Ranges

# biases of carry gates start at 1 or more; drawn around 0, they say nothing, and the gate is T by custom
CLEARLY = 0.5

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


class Search:
    """Finds the highways of one graph, in the order data flows."""

    def __init__(self, graph: ir.Graph) -> None:
        self.flow = Flow(graph)
        ranges = Ranges(self.flow)
        self.logits = Logits(self.flow, ranges)
        self.blocks = Blocks(self.flow, ranges)
        self._judge = Judge(self.flow, ranges)
        self._outputs: defaultdict[Hashable, set[ir.Value]] = defaultdict(set)

    def find(self) -> list[Highway]:
        """Every highway; the repeats of one layer in time are judged as one."""
        found: list[tuple[Block, Hashable, Verdict]] = []
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
        surest: dict[Hashable, Verdict] = {}
        for _, weights, verdict in found:
            if weights not in surest or verdict.ground < surest[weights].ground:
                surest[weights] = verdict
        return [one for block, weights, _ in found for one in self._highways(block, weights, surest[weights])]

    def _judged(self, node: ir.Node) -> tuple[Block, Hashable, Verdict] | None:
        for read in self.blocks.read(node):
            block, weights = self._in_order(read)
            verdict = self._judge.decide(block.branches, self._outputs.get(weights, set()))
            if verdict is not None and (block.coupled or verdict.ground != Ground.NONE):
                return block, weights, verdict
        return None

    def _in_order(self, block: Block) -> tuple[Block, Hashable]:
        """The block with its branches in an order that repeats share, and what its gates are made with."""
        identities = [self.logits.of(branch.gate).identity for branch in block.branches]
        if None in identities:
            return block, block.output
        if block.coupled:
            return block, identities[0]
        branches = sorted(block.branches, key=lambda branch: str(self.logits.of(branch.gate).identity))
        return Block(block.output, False, tuple(branches)), frozenset(identities)

    def _highways(self, block: Block, weights: Hashable, verdict: Verdict) -> list[Highway]:
        doubt = None
        if verdict.ground == Ground.NONE:
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

    def _kind(self, block: Block, transform: Branch, carried: Branch) -> Kind:
        if block.coupled or opposite(transform.gate, carried.gate):
            return "coupled"
        shared = self.logits.softmax(transform.gate)
        return "softmax" if shared and shared is self.logits.softmax(carried.gate) else "independent"

    def _guess(self, block: Block, verdict: Verdict) -> tuple[Verdict, str]:
        """A highway begins by carrying: a bias is negative in a transform gate, positive in a carry gate."""
        bias = self.logits.of(block.branches[0].gate).bias
        mean = None if bias is None else float(np.mean(bias))
        carries = 0 if mean is not None and mean > CLEARLY else 1
        gate = "a carry gate" if carries == 0 else "a transform gate"
        why = "it has no bias" if mean is None else f"its bias is {mean:.3g} on average"
        doubt = f"which branch carries cannot be told; the gate is taken for {gate}, as {why}"
        return Verdict(carries, 1 - carries, verdict.ground, verdict.carry), doubt
