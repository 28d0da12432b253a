"""Computes values of a graph exactly, on random numbers, so that formulas are compared whatever their form.

Two values that are equal on random elements of a finite field are equal as formulas. Only the surroundings of
a gate are computed: what they start from (maps with weights, loops, operators that are not known) is random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.algebra.gated_sums import Branch
from turnpike.export.gates.graph.nodes import Array, constant_array, subgraphs
from turnpike.export.gates.graph.view import GraphView
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Term, UndecidedError, Value
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.numbers.residues import Residues
from turnpike.export.identity.onnx.operator_table import NodeCall
from turnpike.export.identity.onnx.run_graph import OPERATORS

# Two primes of 31 bits: a wrong equation holds for all elements of a tensor with a probability below 1e-18.
PRIMES = 2
# sizes of dimensions that have a name, in turn: coprime, so that none is taken for another
SIZES = (2, 3, 5, 7)
# elements of a value; larger ones are not computed
MAX_ELEMENTS = 1 << 18


class ExactValues:
    """The residues of values of one graph."""

    def __init__(self, view: GraphView, opset: int, nodes: Iterable[ir.Node]) -> None:
        """`nodes` are those to compute."""
        self.residues = Residues(PRIMES)
        self._algebra = Algebra(self.residues, symbolic_sizes=False)
        self._view = view
        self._opset = opset
        self._sizes: dict[str, int] = {}
        self._values: dict[ir.Value, Value | None] = {}
        # hashes wrap around
        with np.errstate(over="ignore"):
            for node in sorted(nodes, key=view.positions.__getitem__):
                self._run(node)

    def get(self, value: ir.Value) -> Array | None:
        """The residues of a value that depends on the input; None if it has none, or was not computed."""
        found = self._values.get(self._view.canonical(value))
        return found.data if isinstance(found, Term) and found.kind == "f" else None

    def weight(self, branch: Branch) -> Array | None:
        """The residues of the weight of a branch, as `get` has those of its gate."""
        scale, offset = branch.weight
        found = self.get(branch.gate)
        if found is None or (scale, offset) == (1.0, 0.0):
            return found
        scaled = self._algebra.multiply(np.float64(scale), Term(found, "f", ATOM))
        return self._algebra.term(self._algebra.add(scaled, np.float64(offset))).data

    def inverse(self, residues: Array) -> Array:
        return self.residues.inverse(residues)

    def _run(self, node: ir.Node) -> None:
        outputs = [self._view.canonical(value) for value in node.outputs]
        if all(value in self._values for value in outputs):
            return
        results: Sequence[Any] = ()
        if not subgraphs(node):
            inputs = [None if value is None else self._input(value) for value in node.inputs]
            handler = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
            is_complete = all(
                value is None or known is not None for value, known in zip(node.inputs, inputs, strict=True)
            )
            if handler is not None and is_complete:
                try:
                    result = handler(NodeCall(self._algebra, node, self._opset, _run_no_graph), *inputs)
                    results = result if isinstance(result, tuple | list) else [result]
                except (UndecidedError, ValueError, IndexError, TypeError):
                    # the sizes chosen here do not fit, or the operator is not known: its result is random
                    results = ()
        for value, result in zip(outputs, (*results, *(None,) * len(outputs)), strict=False):
            self._values.setdefault(value, self._random(value) if result is None else result)

    def _input(self, value: ir.Value) -> Value | None:
        canonical = self._view.canonical(value)
        if canonical not in self._values:
            constant = constant_array(value)
            self._values[canonical] = self._random(canonical) if constant is None else constant
        return self._values[canonical]

    def _random(self, value: ir.Value) -> Term | None:
        shape = self._shape(value)
        is_float = value.dtype is None or value.dtype.is_floating_point()
        if shape is None or not is_float or math.prod(shape) > MAX_ELEMENTS:
            return None
        return Term(self.residues.random(shape), "f", ATOM)

    def _shape(self, value: ir.Value) -> tuple[int, ...] | None:
        if value.shape is None:
            return None
        dims = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
        if any(dim is None or (isinstance(dim, str) and not dim.isidentifier()) for dim in dims):
            return None
        return tuple(
            dim if isinstance(dim, int) else self._sizes.setdefault(str(dim), self._next_size())
            for dim in dims
        )

    def _next_size(self) -> int:
        return SIZES[len(self._sizes) % len(SIZES)]


def _run_no_graph(graph: ir.Graph, inputs: Sequence[Value]) -> list[Value]:
    raise UndecidedError("a graph in a node")
