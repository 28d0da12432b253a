"""Read-only view of an ONNX graph: order of computation, equal computations, constants and attributes.

Exporters write the same computation more than once, pass values through casts, and repeat constants.
`GraphView.canonical` maps all values that are computed in the same way to the first of them (common
subexpression elimination, without changing the graph), so that the gate search can compare values with `is`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]

# operators through which a constant keeps its number
VALUE_KEEPING_OPS = frozenset({"Identity", "Cast", "CastLike", "Expand", "Reshape", "Unsqueeze", "Squeeze"})
# operators that give other numbers on every run: two of them are never equal
RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
# In elements. Integer constants up to this size (axes, shapes) and single floats are equal if their contents
# are. Larger constants are weights. They identify a layer, so each is equal to itself only.
MAX_LITERAL_ELEMENTS = 16

# the two sides of `GraphView.exclusive_ancestors`, as bits
LEFT, RIGHT = 1, 2


class GraphView:
    """A graph in topological order, with its equal computations identified."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.nodes = list(graph)
        self.positions: dict[ir.Node, int] = {node: position for position, node in enumerate(self.nodes)}
        self._canonical: dict[ir.Value, ir.Value] = {}
        self._first_with_key: dict[Any, ir.Value] = {}
        for value in (*graph.inputs, *graph.initializers.values()):
            self._canonical[value] = self._canonical_literal(value)
        for node in self.nodes:
            self._register(node)

    def canonical(self, value: ir.Value) -> ir.Value:
        """The first value in the graph that is computed in the same way as this one."""
        return self._canonical.get(value, value)

    def same_operation_on(self, node: ir.Node, first_input: ir.Value) -> ir.Value | None:
        """What `node` would compute from another first input; None if the graph does not compute it."""
        inputs = [self.canonical(first_input), *node.inputs[1:]]
        return self._first_with_key.get(self._key(node, 0, inputs))

    def position(self, value: ir.Value) -> int:
        """The position of the node that computes a value; -1 for inputs and initializers."""
        node = value.producer()
        return -1 if node is None else self.positions.get(node, -1)

    def exclusive_ancestors(
        self, left: Iterable[ir.Value], right: Iterable[ir.Value]
    ) -> tuple[list[ir.Node] | None, list[ir.Node] | None]:
        """The nodes that only the left values are computed from, and those for the right values.

        If one of the two is empty, the search stops early and the other one is None.
        """
        sides_of: dict[int, int] = {}  # position of a node -> the sides it was reached from
        queue: list[int] = []  # heap of negated positions, so that the last node comes first
        queued = {LEFT: 0, RIGHT: 0}  # how many queued nodes were reached from one side only
        exclusive: dict[int, list[ir.Node]] = {LEFT: [], RIGHT: []}

        def reach(value: ir.Value | None, side: int) -> None:
            position = -1 if value is None else self.position(value)
            if position < 0:
                return
            before = sides_of.get(position, 0)
            if before == 0:
                heapq.heappush(queue, -position)
            after = sides_of[position] = before | side
            for one_side in queued:
                queued[one_side] += (after == one_side) - (before == one_side)

        for side, values in ((LEFT, left), (RIGHT, right)):
            for value in values:
                reach(value, side)
        # Walk backwards through the graph. All users of a node come before it, so the sides of a node are
        # final when it leaves the queue. The rest of the graph is shared once no queued node is one-sided.
        while queue and any(queued.values()):
            if not queued[LEFT] and not exclusive[LEFT]:
                return [], None
            if not queued[RIGHT] and not exclusive[RIGHT]:
                return None, []
            position = -heapq.heappop(queue)
            side = sides_of[position]
            node = self.nodes[position]
            if side in queued:
                queued[side] -= 1
                exclusive[side].append(node)
            for source in node.inputs:
                reach(source, side)
        return exclusive[LEFT], exclusive[RIGHT]

    def _canonical_literal(self, value: ir.Value) -> ir.Value:
        data = constant_array(value)
        if data is None or data.size > (MAX_LITERAL_ELEMENTS if data.dtype.kind in "iub" else 1):
            return value
        key = ("literal", str(value.dtype), data.shape, data.tobytes())
        return self._first_with_key.setdefault(key, value)

    def _register(self, node: ir.Node) -> None:
        """Find the canonical values of a node's outputs; those of its inputs are known by then."""
        if is_pass_through(node):
            self._canonical[node.outputs[0]] = self.canonical(first_input(node))
            return
        if node.op_type == "Constant":
            self._canonical[node.outputs[0]] = self._canonical_literal(node.outputs[0])
            return
        for number, value in enumerate(node.outputs):
            key = self._key(node, number, node.inputs)
            self._canonical[value] = value if key is None else self._first_with_key.setdefault(key, value)

    def _key(self, node: ir.Node, output_number: int, inputs: Iterable[ir.Value | None]) -> Any:
        """Equal for outputs that are computed in the same way; None for an output that equals no other."""
        attributes = []
        for name, attribute in sorted(node.attributes.items()):
            if attribute.type in {
                ir.AttributeType.GRAPH,
                ir.AttributeType.GRAPHS,
                ir.AttributeType.TENSORS,
            }:
                return None
            content = attribute.value
            if attribute.type == ir.AttributeType.TENSOR:
                content = attribute.as_tensor().tobytes()
            attributes.append((name, tuple(content) if isinstance(content, list) else content))
        if node.op_type in RANDOM_OPS:
            return None
        sources = tuple(None if value is None else self.canonical(value) for value in inputs)
        return node.domain, node.op_type, output_number, tuple(attributes), sources


def is_pass_through(node: ir.Node) -> bool:
    """Whether a node returns its first input unchanged, except perhaps for the float type."""
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        training = constant_array(node.inputs[2]) if len(node.inputs) > 2 else None
        return training is None or not training.any()
    if node.op_type in {"Cast", "CastLike"}:
        return is_float(first_input(node)) and is_float(node.outputs[0])
    return False


def is_float(value: ir.Value) -> bool:
    """Whether a value holds floating point numbers; assumed if the graph gives no dtype."""
    node = value.producer()
    if value.dtype is None and node is not None and node.op_type == "Cast":
        return ir.DataType(attribute(node, "to")).is_floating_point()
    return value.dtype is None or value.dtype.is_floating_point()


def constant_array(value: ir.Value | None) -> Array | None:
    """The elements of an initializer or a Constant node; None for a computed value."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def constant_integers(value: ir.Value | None) -> list[int] | None:
    """The elements of a constant as integers, for axes, sizes and the like."""
    data = constant_array(value)
    return None if data is None else [int(number) for number in data.reshape(-1)]


def constant_scalar(value: ir.Value | None) -> float | None:
    """The single number of a constant, even if it was cast, reshaped or repeated; None if there is none."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in VALUE_KEEPING_OPS:
        value = node.inputs[0]
        node = None if value is None else value.producer()
    if node is not None and node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return 0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0])
    data = constant_array(value)
    return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None


def is_all_ones(value: ir.Value | None) -> bool:
    """Whether a value is a constant with 1 in every element, as in `torch.ones_like(t) - t`."""
    if (number := constant_scalar(value)) is not None:
        return number == 1.0
    data = constant_array(value)
    return data is not None and data.size > 0 and bool((data == 1).all())


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, or the default."""
    entry = node.attributes.get(name)
    return default if entry is None else entry.value


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze, Unsqueeze or the like: an input in new opsets, an attribute in old ones."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return constant_integers(node.inputs[1])
    axes = attribute(node, "axes")
    return None if axes is None else [int(axis) for axis in axes]


def first_input(node: ir.Node) -> ir.Value:
    """The first input of a node; a ValueError for operators that have none."""
    if not node.inputs or node.inputs[0] is None:
        raise ValueError(f"{node.op_type}: expected a first input, got none")
    return node.inputs[0]


def present_inputs(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node without the optional ones that were left out."""
    return [value for value in node.inputs if value is not None]
