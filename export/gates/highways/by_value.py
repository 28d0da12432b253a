"""Finds gated sums by their values: y with y - b = T (a - b), where y, a, b and T are values of the graph.

`gated_sums` knows forms, and there is always one more: a product with a diagonal matrix, a difference of
squares. Here the surroundings of each gate without a highway are computed in exact arithmetic, and each
value after the gate is tried as y. For every b before it, (y - b) / T + b is looked up among the others. T
may also be (1 + q) / 2 of a value q.

Neither a nor b may depend on the gate, or on the sigmoid that it is a multiple of: what a highway carries
exists without its gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.algebra.gated_sums import Branch, GatedSum
from turnpike.export.gates.algebra.sigmoids import lines_of
from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.element_moves import before_moves
from turnpike.export.gates.graph.nodes import (
    Array,
    constant_scalar,
    is_all_ones,
    is_float,
    present_inputs,
)
from turnpike.export.gates.graph.view import GraphView
from turnpike.export.gates.highways.carry import WEIGHTED_OPS
from turnpike.export.gates.highways.exact_values import ExactValues

# nodes between a gate and its sum
MAX_STEPS_AFTER = 10
# nodes between the branches of a sum and the sum
MAX_STEPS_BEFORE = 12
# values that are tried as sums of one gate, and as branches of one sum
MAX_SUMS, MAX_BRANCHES = 48, 96
# elements of each value that are compared first
SAMPLES = 3


class ValueSearch:
    """Searches one graph for gated sums by value."""

    def __init__(self, view: GraphView, ranges: ValueRanges, opset: int) -> None:
        self._view = view
        self._ranges = ranges
        self._opset = opset
        # what `_core` has found
        self._cores: dict[ir.Value, ir.Value] = {}

    def find(self, gates: Iterable[ir.Value], outputs: Iterable[ir.Value]) -> Iterator[GatedSum]:
        """The gated sums of gates that have none yet.

        Args:
            gates: Those that have one.
            outputs: The outputs of the gated sums that are known.
        """
        known_gates = {self._core(gate) for gate in gates}
        known_sums = {self._core(output) for output in outputs}
        around = {
            gate: users for gate in self._free_gates(known_gates) if (users := self._values_after(gate.gate))
        }
        if not around:
            return
        before = {value: self._values_before(value) for users in around.values() for value in users}
        surroundings = {gate.gate for gate in around}.union(before, *before.values())
        producers = {value.producer() for value in surroundings}
        nodes = [node for node in producers if node is not None and not self._is_boundary(node)]
        exact = ExactValues(self._view, self._opset, nodes)
        for gate, users in around.items():
            dependent = self._dependents(self._core(gate.gate))
            for output in users:
                if self._core(output) in known_sums:
                    continue
                branches = [
                    value
                    for value in before[output]
                    if value not in dependent and self._ranges.depends_on_input(value)
                ]
                if (pair := _solve(exact, output, gate, branches)) is not None:
                    transformed, carried = pair
                    known_sums.add(self._core(output))
                    yield GatedSum(
                        output,
                        True,
                        (
                            replace(gate, content={(transformed,): 1.0}),
                            replace(gate, complemented=True, content={(carried,): 1.0}),
                        ),
                    )

    def _free_gates(self, known: set[ir.Value]) -> Iterator[Branch]:
        """The values that can be gates, and are none yet; once each, as branches without content."""
        seen = set(known)
        for node in self._view.nodes:
            for output in node.outputs if not self._view.is_added(node) else ():
                value = self._view.canonical(output)
                if value is not output or value in seen or self._core(value) in known:
                    continue
                if self._ranges.can_be_gate(value):
                    yield Branch(value, False, {})
                elif self._ranges.can_be_signed_gate(value) and self._is_added_to_a_number(value):
                    yield Branch(value, False, {}, signed=True)
                seen.add(value)

    def _is_added_to_a_number(self, value: ir.Value) -> bool:
        """Whether the graph computes 1 + q or the like; a search for each tanh of an LSTM would take long."""
        users = {node for same in (value, *self._view.repeats(value)) for node, _ in same.uses()}
        return any(
            node.op_type in {"Add", "Sub"}
            and any(constant_scalar(other) or is_all_ones(other) for other in present_inputs(node))
            for node in users
        )

    def _core(self, value: ir.Value) -> ir.Value:
        """The value without arithmetic with numbers, and before its elements were moved."""
        path = []
        while value not in self._cores:
            path.append(value)
            line = next(lines_of(value), None)
            inner = before_moves(value if line is None else line.value)
            if inner is value:
                self._cores[value] = self._view.canonical(value)
            value = inner
        # a chain is walked once, not from each of its values
        self._cores |= dict.fromkeys(path, self._cores[value])
        return self._cores[value]

    def _values_after(self, gate: ir.Value) -> list[ir.Value]:
        """The values that may be sums with a gate, in the order data flows."""
        found = self._reach(gate, self._users, MAX_STEPS_AFTER, MAX_SUMS)
        return sorted((value for value in found if is_float(value)), key=self._view.position)

    def _values_before(self, output: ir.Value) -> list[ir.Value]:
        """The values that may be branches of a sum, the nearest first."""
        return self._reach(output, self._sources, MAX_STEPS_BEFORE, MAX_BRANCHES)

    def _dependents(self, gate: ir.Value) -> set[ir.Value]:
        dependents = {gate, *self._view.repeats(gate)}
        for node in self._view.nodes[self._view.position(gate) :]:
            if any(value in dependents for value in present_inputs(node)):
                dependents.update(node.outputs)
        return {self._view.canonical(value) for value in dependents}

    def _users(self, value: ir.Value) -> Iterator[ir.Value]:
        for same in (value, *self._view.repeats(value)):
            for node, _ in same.uses():
                if node in self._view.positions and not self._is_boundary(node):
                    yield from map(self._view.canonical, node.outputs)

    def _sources(self, value: ir.Value) -> Iterator[ir.Value]:
        node = value.producer()
        if node is not None and not self._is_boundary(node):
            yield from map(self._view.canonical, present_inputs(node))

    def _is_boundary(self, node: ir.Node) -> bool:
        """Whether a node is a map with weights, which begins the next layer, or of an unstacked form."""
        return self._view.is_added(node) or (
            node.op_type in WEIGHTED_OPS
            and not all(map(self._ranges.depends_on_input, present_inputs(node)[:2]))
        )

    def _reach(
        self,
        start: ir.Value,
        neighbours: Callable[[ir.Value], Iterable[ir.Value]],
        max_steps: int,
        max_values: int,
    ) -> list[ir.Value]:
        """The values within so many steps of one, the nearest first, without itself."""
        steps = {start: 0}
        waiting = deque([start])
        while waiting and len(steps) <= max_values:
            value = waiting.popleft()
            for neighbour in neighbours(value):
                if neighbour not in steps and steps[value] < max_steps:
                    steps[neighbour] = steps[value] + 1
                    waiting.append(neighbour)
        return list(steps)[1:]


def _solve(
    exact: ExactValues, output: ir.Value, gate: Branch, branches: list[ir.Value]
) -> tuple[ir.Value, ir.Value] | None:
    """The a and the b of y - b = T (a - b) among the branches."""
    y, t = exact.get(output), exact.weight(gate)
    if y is None or t is None or y.size == len(y) or not _fits(t, y):
        return None
    candidates: dict[bytes, tuple[ir.Value, Array]] = {}
    for branch in branches:
        data = exact.get(branch)
        # a product T a with zeros, as in a recurrent cell that starts at zero, carries nothing
        if data is not None and data.any() and data.size > len(data) and _fits(data, y):
            full = np.broadcast_to(_with_rank(data, y.ndim), y.shape)
            # equal values count once, and one that equals the sum is none of its branches
            candidates.setdefault(full.tobytes(), (branch, full))
    candidates.pop(y.tobytes(), None)
    values = list(candidates.values())
    if len(values) < 2:
        return None
    t = np.broadcast_to(_with_rank(t, y.ndim), y.shape)
    places = np.linspace(0, y[0].size - 1, SAMPLES).astype(int)

    def sample(data: Array) -> Array:
        return data.reshape(len(data), -1)[:, places]

    sampled = np.stack([sample(full) for _, full in values], axis=1)
    residues = exact.residues
    inverse = exact.inverse(sample(t))[:, None]
    expected = residues.add(
        residues.multiply(residues.subtract(sample(y)[:, None], sampled), inverse), sampled
    )
    numbers = {sampled[:, number].tobytes(): number for number in range(len(values))}
    for carried in range(len(values)):
        transformed = numbers.get(np.ascontiguousarray(expected[:, carried]).tobytes())
        if transformed is None or transformed == carried:
            continue
        (a, a_data), (b, b_data) = values[transformed], values[carried]
        product = residues.multiply(t, residues.subtract(a_data, b_data))
        if (residues.add(b_data, product) == y).all():
            return a, b
    return None


def _fits(data: Array, y: Array) -> bool:
    """Whether a value can be broadcast to the shape of the sum."""
    sizes = data.shape[1:]
    return len(sizes) <= y.ndim - 1 and all(
        size in (1, other) for size, other in zip(sizes[::-1], y.shape[:0:-1], strict=False)
    )


def _with_rank(data: Array, rank: int) -> Array:
    return data.reshape(data.shape[0], *(1,) * (rank - data.ndim), *data.shape[1:])
