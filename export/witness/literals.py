"""The numbers that are written into a graph, the suspicious ones first.

A file that behaves otherwise for one number, id or size has that number in its graph: as the constant of a
comparison, the bound of a Clip, the divisor of a Mod. Nobody would draw it at random.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from turnpike.export.network import Array

# a longer constant is a weight or a table
MAX_ELEMENTS = 8
# a reshape, a transposition or a type is no number to compare with
NUMERIC_ATTRIBUTES = frozenset((ir.AttributeType.FLOAT, ir.AttributeType.FLOATS))
FAR = 10**9


def literals(model: ir.Model, trusted: ir.Model, place: str | None) -> list[float]:
    """The distinct numbers of a graph: first those that the trusted graph lacks, then the nearest to a node.

    Args:
        model: The graph.
        trusted: A graph that computes what it should.
        place: The first difference, as a `Decision` names it: the node's output, " = ", and its operator.
    """
    expected = {number for node in trusted.graph.all_nodes() for number in node_literals(node)}
    distances = _distances(model, None if place is None else place.split(" = ")[0])
    ranks: dict[float, tuple[bool, int]] = {}
    for node in model.graph:
        distance = distances.get(node, FAR)
        for number in (number for nested in _with_nested(node) for number in node_literals(nested)):
            rank = (number in expected, distance)
            ranks[number] = min(rank, ranks.get(number, rank))
    return sorted(ranks, key=ranks.__getitem__)


def node_literals(node: ir.Node) -> Iterator[float]:
    """The numbers in the constant inputs and the numeric attributes of a node."""
    for value in node.inputs:
        tensor = None if value is None else constant_of(value)
        if tensor is not None and 0 < tensor.size <= MAX_ELEMENTS and tensor.dtype is not ir.DataType.STRING:
            yield from _finite(tensor.numpy())
    for attribute in node.attributes.values():
        if attribute.type in NUMERIC_ATTRIBUTES:
            yield from _finite(np.asarray(attribute.value))


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node; None for a value that is computed."""
    node = value.producer()
    if node is None or node.op_type == "Constant":
        return ir.convenience.get_const_tensor(value)
    return None


def _finite(array: Array) -> Iterator[float]:
    if array.dtype.kind in "fiu":
        yield from (number for number in array.ravel().tolist() if np.isfinite(number))


def _with_nested(node: ir.Node) -> Iterator[ir.Node]:
    yield node
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()


def _distances(model: ir.Model, name: str | None) -> dict[ir.Node, int]:
    """How many nodes before the one with this output each node is."""
    start = next((node for node in model.graph for value in node.outputs if value.name == name), None)
    distances: dict[ir.Node, int] = {}
    waiting = [] if start is None else [(start, 0)]
    for node, distance in waiting:
        if node not in distances:
            distances[node] = distance
            producers = (value.producer() for value in node.inputs if value is not None)
            waiting += [(producer, distance + 1) for producer in producers if producer is not None]
    return distances
