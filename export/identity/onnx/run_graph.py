"""Runs an ONNX graph on terms, node by node; all sizes are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Sizes, Term, UndecidedError, Value, shape_of
from turnpike.export.identity.algebra.chosen_rows import Selection
from turnpike.export.identity.numbers.reals import Reals
from turnpike.export.identity.onnx import (
    control_flow,
    elementwise,
    layers,
    onnxruntime_operators,
    reductions,
    shapes,
    writes,
)
from turnpike.export.identity.onnx.chosen_places import run_on_chosen
from turnpike.export.identity.onnx.operator_table import MAX_ELEMENTS, NodeCall, OperatorTable, expect_memory

OPERATORS = OperatorTable(
    {
        **elementwise.table,
        **reductions.table,
        **shapes.table,
        **writes.table,
        **layers.table,
        **control_flow.table,
        **onnxruntime_operators.table,
    }
)
# the first opset in which Scan has no axis of rows, and no operator names the axis of its broadcast
MIN_OPSET = 9


@dataclass(frozen=True)
class GraphRun:
    """The results of a graph.

    Attributes:
        outputs: The outputs, by name.
        values: The results of all nodes outside of loops.
        operators: The operators that the graph has.
    """

    outputs: Mapping[str, Value]
    values: Mapping[ir.Value, Value]
    operators: frozenset[str]


def run_graph(
    model: ir.Model,
    algebra: Algebra,
    inputs: Sequence[Value],
    overrides: Mapping[str, Value] = MappingProxyType({}),
    max_elements: int = MAX_ELEMENTS,
) -> GraphRun:
    """Run a graph. It may compute `max_elements` numbers in all.

    Inputs that have a default get it, unless `overrides` has another value for their name.

    Raises:
        UndecidedError: The graph has something that cannot be run on terms.
    """
    graph = model.graph
    opset = model.opset_imports.get("") or 0
    if opset < MIN_OPSET:
        raise UndecidedError(f"opset {opset}, expected {MIN_OPSET} or later")
    runner = _Runner(algebra, opset, max_elements)
    public = [value for value in graph.inputs if value.name not in graph.initializers]
    if len(public) != len(inputs):
        raise UndecidedError(f"the graph has {len(public)} inputs, the network {len(inputs)}")
    values: dict[ir.Value, Value] = dict(zip(public, inputs, strict=True))
    values |= {graph.initializers[name]: value for name, value in overrides.items()}
    results = runner.run(graph, values)
    outputs = {str(value.name): result for value, result in zip(graph.outputs, results, strict=True)}
    return GraphRun(outputs, values, frozenset(runner.operators))


def run_again(
    model: ir.Model,
    algebra: Algebra,
    values: Mapping[ir.Value, Value],
    changed: Mapping[ir.Value, Value],
    wanted: Sequence[ir.Value],
    held: Collection[ir.Value] = (),
) -> list[Value]:
    """Some values of a graph that has run, after others of its values have changed.

    Only the nodes between the two run again.

    Args:
        model: The graph.
        algebra: The operators.
        values: The results of the run.
        changed: New values for some of them.
        wanted: The values to compute.
        held: Values that do not change.
    """
    runner = _Runner(algebra, model.opset_imports.get("") or 0, MAX_ELEMENTS)
    results, stale, needed = {**values, **changed}, set(changed), ancestors(wanted)
    for node in model.graph:
        if (
            not needed.isdisjoint(node.outputs)
            and stale.isdisjoint(node.outputs)
            and not any(output in held for output in node.outputs)
            and not stale.isdisjoint(inputs_of(node))
        ):
            results.update(zip(node.outputs, runner.run_node(node, results), strict=False))
            stale.update(node.outputs)
    return [results[value] for value in wanted]


def constant_values(model: ir.Model) -> dict[str, Value]:
    """The values outside of loops that need no input, by name: as they are given, or as float64 terms.

    Operators that are not known here, and what is computed from their results, are left out.
    """
    runner = _Runner(Algebra(Reals(), symbolic_sizes=False), model.opset_imports.get("") or 0, MAX_ELEMENTS)
    graph = model.graph
    values: dict[ir.Value, Value] = {
        value: value.const_value.numpy()
        for value in graph.initializers.values()
        if value.const_value is not None and not value.is_graph_input()
    }
    for node in graph:
        if all(value is None or value in values for value in inputs_of(node)):
            with suppress(UndecidedError), np.errstate(all="ignore"):
                values.update(zip(node.outputs, runner.run_node(node, values), strict=False))
    return {str(value.name): result for value, result in values.items()}


def ancestors(values: Iterable[ir.Value]) -> set[ir.Value]:
    """Some values of a graph, and all values that they are computed from."""
    found: set[ir.Value] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            node = value.producer()
            pending += [] if node is None else inputs_of(node)
    return found


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node, and those of the nodes in its graphs, such as the body of a Loop."""
    inputs = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            body = attribute.as_graph()
            inputs += [value for inner in body for value in inputs_of(inner)] + list(body.outputs)
    return inputs


class _Runner:
    def __init__(self, algebra: Algebra, opset: int, max_elements: int) -> None:
        self._algebra = algebra
        self._opset = opset
        # the elements of all results
        self._elements = 0
        self._max_elements = max_elements
        # what is known before a run, in real numbers
        self._real = Algebra(Reals(), symbolic_sizes=False)
        self._constants: dict[ir.Value, Value] = {}
        self.operators: set[str] = set()

    def run(self, graph: ir.Graph, values: dict[ir.Value, Value]) -> list[Value]:
        """Run a graph; adds the results of its nodes to `values`, which has its inputs."""
        for initializer in graph.initializers.values():
            if initializer not in values and initializer.const_value is not None:
                values[initializer] = initializer.const_value.numpy()
        for node in graph:
            results = self.run_node(node, values)
            # a result that is not computed here, such as the mask of Dropout, has no value
            computed = zip(node.outputs, results, strict=False)
            values.update((output, result) for output, result in computed if result is not None)
        for output in graph.outputs:
            if output not in values:
                raise UndecidedError(f"the output {output.name} is not computed here")
            if isinstance(values[output], Selection):
                raise UndecidedError(f"the output {output.name} has a length that depends on the input")
        return [values[output] for output in graph.outputs]

    def run_node(self, node: ir.Node, values: dict[ir.Value, Value]) -> Sequence[Value]:
        name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        place = f"{node.outputs[0].name} = {name}"
        self.operators.add(name)
        handler = OPERATORS.get(name)
        if handler is None:
            raise UndecidedError(f"{place}: an operator that is not known here")

        def run_inner(graph: ir.Graph, inputs: Sequence[Value]) -> list[Value]:
            # a body sees the values around it, and each step replaces its own
            values.update(zip(graph.inputs, inputs, strict=True))
            return self.run(graph, values)

        def call(algebra: Algebra, inputs: Sequence[Value | None]) -> Sequence[Value]:
            node_call = NodeCall(algebra, node, self._opset, run_inner)
            if any(isinstance(value, Selection) for value in inputs):
                result = run_on_chosen(handler, node_call, inputs)
            else:
                result = handler(node_call, *inputs)
            return result if isinstance(result, tuple | list) else [result]

        for value in node.inputs:
            if value is not None and value not in values:
                raise UndecidedError(f"{place}: its input {value.name} is not computed here")
        self._algebra.sizes.node = place
        inputs = [None if value is None else values[value] for value in node.inputs]
        try:
            results = call(self._algebra, inputs)
            self._elements += sum(math.prod(shape_of(value)) for value in results if isinstance(value, Term))
            expect_memory(self._elements, self._max_elements)
        except UndecidedError as error:
            raise UndecidedError(f"{place}: {error}") from error
        except Exception as error:
            lines = str(error).splitlines() or [""]
            raise UndecidedError(f"{place}: {type(error).__name__}: {lines[0]}") from error
        self._run_constant(node, inputs, call)
        return results

    def _run_constant(
        self,
        node: ir.Node,
        inputs: Sequence[Value | None],
        call: Callable[[Algebra, Sequence[Value | None]], Sequence[Value]],
    ) -> None:
        """Compute a node without inputs in real numbers, too.

        The field has a number for the logarithm of -1. One that is multiplied by 0 would be forgotten, and
        onnxruntime answers NaN.
        """
        if any(attribute.type is ir.AttributeType.GRAPH for attribute in node.attributes.values()):
            return
        given = [(value, result) for value, result in zip(node.inputs, inputs, strict=True)]
        if any(isinstance(result, Term | Sizes) and value not in self._constants for value, result in given):
            return
        real = [None if value is None else self._constants.get(value, result) for value, result in given]
        try:
            with np.errstate(all="ignore"):
                results = call(self._real, real)
        except Exception:
            # known to the field, and not to these numbers
            return
        for output, result in zip(node.outputs, results, strict=False):
            if not isinstance(result, Term):
                continue
            self._constants[output] = result
            if not np.isfinite(result.data).all():
                key = ("not finite", node.op_type, result.data.tobytes())
                self._algebra.sizes.expect(key, "a constant that is not finite")
