"""Read-only view of a graph: its nodes in order, and which of its values are computed in the same way.

Exporters write the same computation more than once, pass values through casts, and repeat constants.
`GraphView.canonical` maps all values that are computed in the same way to the first of them (common
subexpression elimination, without changing the graph), so that the gate search can compare values with `is`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any

import onnx_ir as ir

from turnpike.export.gates.graph.nodes import constant_array, first_input, is_pass_through
from turnpike.export.gates.graph.unstacked_forms import UnstackedForms

# In elements. Integer constants up to this size (axes, shapes) and single floats are equal if their contents
# are. Larger constants are weights. They identify a layer, so each is equal to itself only.
MAX_LITERAL_ELEMENTS = 16

# the two sides of `GraphView.exclusive_ancestors`, as bits
LEFT, RIGHT = 1, 2


class GraphView:
    """A graph in topological order, with its equal computations identified."""

    def __init__(self, graph: ir.Graph, unstacked: UnstackedForms | None = None) -> None:
        self.graph = graph
        self._unstacked = unstacked
        self.nodes = list(graph)
        self.positions: dict[ir.Node, int] = {node: position for position, node in enumerate(self.nodes)}
        self._canonical: dict[ir.Value, ir.Value] = {}
        self._first_with_key: dict[Any, ir.Value] = {}
        self._repeats: defaultdict[ir.Value, list[ir.Value]] = defaultdict(list)
        for value in (*graph.inputs, *graph.initializers.values()):
            self._canonical[value] = self._canonical_literal(value)
        for node in self.nodes:
            self._register(node)

    def canonical(self, value: ir.Value) -> ir.Value:
        """The first value in the graph that is computed in the same way as this one."""
        return self._canonical.get(value, value)

    def unstacked_node(self, value: ir.Value) -> ir.Node | None:
        """The node that was added to the graph as the unstacked form of a value; None if there is none."""
        form = None if self._unstacked is None else self._unstacked.get(value)
        node = None if form is None else form.producer()
        return node if node is not None and self.is_added(node) else None

    def is_added(self, node: ir.Node) -> bool:
        """Whether a node was added to the graph for a unstacked form."""
        return self._unstacked is not None and node in self._unstacked

    def repeats(self, value: ir.Value) -> list[ir.Value]:
        """The values with the dtype of a canonical value that other nodes compute from equal inputs."""
        return [repeat for repeat in self._repeats.get(value, []) if repeat.dtype == value.dtype]

    def key_with(self, node: ir.Node, first_input: ir.Value) -> Hashable:
        """Identifies what `node` would compute from another first input."""
        return self._key(node, 0, [self.canonical(first_input), *node.inputs[1:]])

    def first_with_key(self, key: Hashable) -> ir.Value | None:
        """The first value that is computed in this way; None if the graph has none."""
        return self._first_with_key.get(key)

    def position(self, value: ir.Value) -> int:
        """The position of the node that computes a value; -1 for inputs and initializers."""
        node = value.producer()
        return -1 if node is None else self.positions[node]

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
            position = -1 if value is None else self.position(self.canonical(value))
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
            form = None if self._unstacked is None else self._unstacked.get(value)
            if form is not None and self.unstacked_node(value) is None:
                # operators that only take apart what others put together
                self._canonical[value] = self.canonical(form)
                continue
            key = self._key(node, number, node.inputs)
            first = value if key is None else self._first_with_key.setdefault(key, value)
            self._canonical[value] = first
            if first is not value:
                self._repeats[first].append(value)

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
        sources = tuple(None if value is None else self.canonical(value) for value in inputs)
        return node.domain, node.op_type, output_number, tuple(attributes), sources
