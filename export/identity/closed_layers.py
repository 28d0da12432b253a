"""Decides whether a layer returns its input when its gates are closed.

The graph has run on random elements. Zeros replace the elements of T where a sigmoid computes them, and ones
those of C; the nodes from there to the layer's output run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Term,
    UndecidedError,
    Value,
    kind_of,
    shape_of,
)
from turnpike.export.identity.gate_algebra import ElementTable, GateAlgebra, Logits, columns_of
from turnpike.export.identity.onnx.run_graph import GraphRun, ancestors, inputs_of, run_again
from turnpike.service.artifact.manifest import Gate

# operators between a layer's output and its hidden output
COPIES = frozenset({"Identity", "Transpose"})
# operators whose graphs compute gates that are in none of the nodes outside
LOOPS = frozenset({"Loop", "Scan", "If"})


class ClosedLayers:
    """Closes the layers of a graph, one after the other.

    Attributes:
        carried: The gates of the layers that carry their input.
    """

    def __init__(
        self,
        model: ir.Model,
        gates: Sequence[Gate],
        algebra: GateAlgebra,
        run: GraphRun,
        logits: Mapping[str, Logits | None],
    ) -> None:
        self._model, self._algebra, self._run, self._logits = model, algebra, run, logits
        self._outputs = {str(value.name): value for value in model.graph.outputs}
        self._nodes = {str(node.outputs[0].name): node for node in model.graph}
        # other layers may have the same gate
        names = {gate.output for gate in gates}
        self._layers = {name: _before_copies(self._outputs[name]) for name in names if name in self._outputs}
        self.carried: list[str] = []
        algebra.replace_results({})

    def check(self, gates: Sequence[Gate]) -> tuple[str | None, str | None]:
        """What is wrong with the layer of some gates, which are those of one sum; and what is not decided."""
        try:
            return self._check(gates)
        except UndecidedError as error:
            return None, str(error).splitlines()[0]

    def _check(self, gates: Sequence[Gate]) -> tuple[str | None, str | None]:
        output = self._outputs.get(str(gates[0].output))
        if output is None:
            return None, "the output of its layer is not known"
        carry_gate = gates[0].carry_gate
        parts = {gate.name: self._logits[gate.name] for gate in gates}
        if carry_gate is not None:
            parts[carry_gate] = self._logits[carry_gate]
        nodes: list[ir.Node] = []
        for name, logits in parts.items():
            found = self._nodes_with(name) if logits is None else map(self._nodes.get, sorted(logits.nodes))
            for node in found:
                if node is None or node.op_type in LOOPS:
                    return None, "its layer is inside a loop, and was not closed"
                nodes.append(node)

        # y is T H + C x, for the ends of the gates
        closed = self._with_gates(nodes, gates, carry_gate, None)
        wanted = [output, self._layers[str(output.name)], *(self._outputs[name] for name in parts)]
        result, own_result, *ends = self._values(closed, wanted)
        for name, end in zip(parts, ends, strict=True):
            if not self._is_same(end, int(name == carry_gate)):
                return f"{name} does not become {int(name == carry_gate)} when its layer is closed", None
        algebra, outputs = self._algebra, self._run.outputs
        carry: Value = (
            algebra.subtract(1, outputs[gates[0].name]) if carry_gate is None else outputs[carry_gate]
        )
        total = algebra.multiply(self._of_layer(carry, gates[0], result, removed=1), result)
        for gate in gates:
            changed = self._with_gates(nodes, gates, carry_gate, gate)
            (opened,) = self._values(changed, [output])
            product = algebra.multiply(self._of_layer(outputs[gate.name], gate, opened, removed=0), opened)
            total = algebra.add(total, product)
        if not self._is_same(total, outputs[str(output.name)]):
            if None in parts.values():
                return None, "a gate that is neither a sigmoid nor a softmax, so its layer was not closed"
            return f"the output of its layer, {output.name}, is not T H + C x for the ends of its gates", None
        if gates[0].carry != "identity":
            return None, None
        if not self._is_input(own_result, nodes, output, first_step=gates[0].time == 0):
            if not self._is_operand(own_result, output):
                return f"closed, its layer does not return its input: {output.name} is another value", None
            # the memory of an LSTM's cell, or another function of the input
            return None, f"closed, its layer returns a value that the gate does not read, {output.name}"
        self.carried += [gate.name for gate in gates]
        return None, None

    def _nodes_with(self, name: str) -> list[ir.Node]:
        """The nodes that compute elements of a gate, whatever function it is: a clip, for example."""
        elements, _ = self._elements({name: 0})
        table = ElementTable(elements)
        sources = ancestors([self._outputs[name]]) & self._run.values.keys()
        results = {value: self._run.values[value] for value in sources}
        found = [
            value.producer()
            for value, result in results.items()
            if isinstance(result, Term) and result.kind == "f" and self._has_any(table, result)
        ]
        return [node for node in found if node is not None]

    def _has_any(self, table: ElementTable, term: Term) -> bool:
        return bool((table.find(columns_of(term.data)) >= 0).any())

    def _of_layer(self, gate_value: Value, gate: Gate, result: Value, *, removed: int) -> Value:
        """T or C with the axes of its layer, and with a number in the place of units that were removed."""
        shape, algebra = shape_of(result), self._algebra
        if gate.kept is not None:
            term = algebra.term(gate_value)
            axis = gate.unit_axis % term.ndim
            whole = list(term.shape)
            whole[axis] = shape[gate.unit_axis]
            data = algebra.numbers.from_integers(np.full(whole, removed, np.int64))
            np.moveaxis(data, axis + 1, 0)[list(gate.kept)] = np.moveaxis(term.data, axis + 1, 0)
            gate_value = Term(data, term.kind, term.size)
        own = shape_of(gate_value)
        # a product of matrices leaves axes of size 1
        if [size for size in shape if size > 1] == [size for size in own if size > 1]:
            return algebra.move(gate_value, lambda data: data.reshape(shape))
        rank = max(len(shape), len(own))
        if own == shape[: len(own)]:
            # one gate for all units, without an axis for them
            own += (1,) * (rank - len(own))
            gate_value = algebra.move(gate_value, lambda data: data.reshape(own))
        pairs = zip(_of_rank(own, rank), _of_rank(shape, rank), strict=True)
        if any(size not in (1, other) for size, other in pairs):
            raise UndecidedError(f"a gate of shape {own} for a layer of shape {shape}")
        return gate_value

    def _with_gates(
        self, nodes: Iterable[ir.Node], gates: Sequence[Gate], carry_gate: str | None, opened: Gate | None
    ) -> dict[ir.Value, Value]:
        """The results of the nodes of gates, with all gates closed, or one open."""
        ends = {gate.name: int(gate is opened) for gate in gates}
        if carry_gate is not None:
            ends[carry_gate] = int(opened is None)
        elements, replacements = self._elements(ends)
        table = ElementTable(elements)
        changed: dict[ir.Value, Value] = {}
        for node in nodes:
            term = self._algebra.term(self._run.values[node.outputs[0]])
            columns = columns_of(term.data).copy()
            found = table.find(columns)
            columns[:, found >= 0] = replacements[:, found[found >= 0]]
            changed[node.outputs[0]] = Term(columns.reshape(term.data.shape), term.kind, term.size)
        return changed

    def _elements(self, ends: Mapping[str, int]) -> tuple[Array, Array]:
        """The elements of gates as graphs compute them, and what they are at the ends of the gates."""
        numbers = self._algebra.numbers
        old: list[Array] = []
        new: list[Array] = []
        for name, end in ends.items():
            gate = columns_of(self._algebra.term(self._run.outputs[name]).data)
            # the gate, its complement, and tanh of half the logit
            for factor, offset in ((1, 0), (-1, 1), (2, -1), (-2, 1)):
                scale, start, result = numbers.from_integers(
                    np.array([factor, offset, factor * end + offset])
                ).T[..., None]
                old.append(numbers.add(numbers.multiply(gate, scale), start))
                new.append(np.broadcast_to(result, gate.shape))
        return np.concatenate(old, 1), np.concatenate(new, 1)

    def _values(self, changed: Mapping[ir.Value, Value], wanted: Sequence[ir.Value]) -> list[Value]:
        # the first one is the output of the layer
        held = {value for name, value in self._layers.items() if name != wanted[0].name}
        return run_again(self._model, self._algebra, self._run.values, changed, wanted, held)

    def _is_input(
        self, result: Value, nodes: Sequence[ir.Node], output: ir.Value, *, first_step: bool
    ) -> bool:
        """Whether a result is one of the values that the gates are computed from.

        The state before the first step may be a constant, which the gate need not read.
        """
        values = self._run.values
        sources = ancestors(value for node in nodes for value in inputs_of(node)) & values.keys()
        # two layers may have one gate: the second one carries what the first one returns
        sources |= {value for name, value in self._layers.items() if name != output.name}
        candidates: list[Value] = [values[value] for value in sources if isinstance(values[value], Term)]
        if first_step:
            found = (values[value] for value in ancestors([output]) & values.keys())
            candidates += [value for value in found if not isinstance(value, Term) and kind_of(value) == "f"]
        expected = self._algebra.term(result)
        self._algebra.bound.count_comparison(expected.data[0].size * len(candidates), expected.size)
        return any(self._is_moved(expected.data, value) for value in candidates)

    def _is_operand(self, result: Value, output: ir.Value) -> bool:
        """Whether a result is one of the values that the layer's output is computed from."""
        values = self._run.values
        found = (values[value] for value in ancestors([output]) & values.keys())
        candidates = [value for value in found if isinstance(value, Term)]
        expected = self._algebra.term(result)
        self._algebra.bound.count_comparison(expected.data[0].size * len(candidates), expected.size)
        return any(self._is_moved(expected.data, value) for value in candidates)

    def _is_moved(self, expected: Array, value: Value) -> bool:
        """Whether a value has these elements, in this order or with its axes in another one."""
        if not isinstance(value, Term):
            data = self._algebra.term(value).data
            shape = (len(data), *(1,) * (expected.ndim - data.ndim), *data.shape[1:])
            return all(
                size in (1, other) for size, other in zip(shape, expected.shape, strict=False)
            ) and bool((expected == data.reshape(shape)).all())
        if value.data.size != expected.size:
            return False
        if np.array_equal(columns_of(value.data), columns_of(expected)):
            return True
        return any(
            np.array_equal(np.transpose(value.data, (0, *(axis + 1 for axis in axes))), expected)
            for axes in permutations(range(value.ndim))
            if tuple(value.shape[axis] for axis in axes) == expected.shape[1:]
        )

    def _is_same(self, a: Value, b: Value) -> bool:
        x, y = self._algebra.term(a), self._algebra.term(b)
        self._algebra.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
        return bool((x.data == (y.data if y.ndim else y.data.reshape(-1, *(1,) * x.ndim))).all())


def _before_copies(output: ir.Value) -> ir.Value:
    while (node := output.producer()) is not None and node.op_type in COPIES and node.inputs[0] is not None:
        output = node.inputs[0]
    return output


def _of_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape
