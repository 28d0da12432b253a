"""Runs an ONNX graph on terms, node by node; all sizes are numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import onnx_ir as ir

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.terms import UndecidedError, Value
from turnpike.export.identity.onnx import (
    control_flow,
    elementwise,
    layers,
    onnxruntime_operators,
    reductions,
    shapes,
)
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable

OPERATORS = OperatorTable(
    {
        **elementwise.table,
        **reductions.table,
        **shapes.table,
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
) -> GraphRun:
    """Run a graph. Inputs that have a default get it, unless `overrides` has another value for their name.

    Raises:
        UndecidedError: The graph has something that cannot be run on terms.
    """
    graph = model.graph
    opset = model.opset_imports.get("") or 0
    if opset < MIN_OPSET:
        raise UndecidedError(f"opset {opset}, expected {MIN_OPSET} or later")
    runner = _Runner(algebra, opset)
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
    runner = _Runner(algebra, model.opset_imports.get("") or 0)
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
    def __init__(self, algebra: Algebra, opset: int) -> None:
        self._algebra = algebra
        self._opset = opset
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

        for value in node.inputs:
            if value is not None and value not in values:
                raise UndecidedError(f"{place}: its input {value.name} is not computed here")
        self._algebra.sizes.node = place
        inputs = [None if value is None else values[value] for value in node.inputs]
        try:
            result = handler(NodeCall(self._algebra, node, self._opset, run_inner), *inputs)
        except UndecidedError as error:
            raise UndecidedError(f"{place}: {error}") from error
        except Exception as error:
            lines = str(error).splitlines() or [""]
            raise UndecidedError(f"{place}: {type(error).__name__}: {lines[0]}") from error
        return result if isinstance(result, tuple | list) else [result]
