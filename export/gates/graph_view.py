"""The order in which data flows through a graph, what is computed alike, and what is made of what."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]

# what a literal may pass through without becoming another number
VALUE_KEEPING_OPS = frozenset({"Identity", "Cast", "CastLike", "Expand", "Reshape", "Unsqueeze", "Squeeze"})


def constant_array(value: ir.Value | None) -> Array | None:
    """The elements of an initializer or a Constant node; None for what is computed."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor.numpy()


def constant_integers(value: ir.Value | None) -> list[int] | None:
    """The elements as integers, of axes, sizes and the like."""
    data = constant_array(value)
    return None if data is None else [int(number) for number in data.reshape(-1)]


def constant_scalar(value: ir.Value | None) -> float | None:
    """The one number that a literal holds, however often it was repeated."""
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
    """Whether every element is 1, as in `torch.ones_like(t) - t`."""
    if (number := constant_scalar(value)) is not None:
        return number == 1.0
    data = constant_array(value)
    return data is not None and data.size > 0 and bool((data == 1).all())


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, or the default."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def axes_of(node: ir.Node) -> list[int] | None:
    """The axes of a Squeeze, Unsqueeze or the like: an input in new opsets, an attribute in old ones."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return constant_integers(node.inputs[1])
    axes = attribute(node, "axes")
    return None if axes is None else [int(axis) for axis in axes]


def first_input(node: ir.Node) -> ir.Value:
    """What a node is made of in the first place; a ValueError for operators that take nothing."""
    if not node.inputs or node.inputs[0] is None:
        raise ValueError(f"{node.op_type}: expected a first input, got none")
    return node.inputs[0]


def present_inputs(node: ir.Node) -> list[ir.Value]:
    """The inputs of a node without those that were left out."""
    return [value for value in node.inputs if value is not None]


RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
# literals up to this size are compared by what they hold, weights by who they are
MAX_LITERAL_ELEMENTS = 16


class GraphView:
    """A graph in its order. `twin` leads from a value to the first that is computed in just the same way."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.nodes = list(graph)
        self.place: dict[ir.Node, int] = {node: number for number, node in enumerate(self.nodes)}
        self.twin: dict[ir.Value, ir.Value] = {}
        self._made: dict[Any, ir.Value] = {}
        for value in (*graph.inputs, *graph.initializers.values()):
            self.twin[value] = self._literal(value)
        for node in self.nodes:
            self._number(node)

    def first(self, value: ir.Value) -> ir.Value:
        """The first value that is computed just as this one is."""
        return self.twin.get(value, value)

    def alike(self, node: ir.Node, value: ir.Value) -> ir.Value | None:
        """What this node would have made of another first input, where the graph makes it."""
        return self._made.get(self._key(node, 0, [self.first(value), *node.inputs[1:]]))

    def order(self, value: ir.Value) -> int:
        """Where in the order a value is made; -1 for inputs and initializers."""
        node = value.producer()
        return -1 if node is None else self.place.get(node, -1)

    def apart(
        self, left: Iterable[ir.Value], right: Iterable[ir.Value]
    ) -> tuple[list[ir.Node] | None, list[ir.Node] | None]:
        """The nodes that only the left values come from, and those that only the right ones do.

        Where one of the two is empty the other is not searched to its end, and is None.
        """
        sides: dict[int, int] = {}
        lone = {1: 0, 2: 0}
        queue: list[int] = []
        found: dict[int, list[ir.Node]] = {1: [], 2: []}

        def meet(value: ir.Value | None, side: int) -> None:
            place = -1 if value is None else self.order(value)
            if place < 0:
                return
            before = sides.get(place, 0)
            if before == 0:
                heapq.heappush(queue, -place)
            after = sides[place] = before | side
            for one in lone:
                lone[one] += (after == one) - (before == one)

        for side, values in ((1, left), (2, right)):
            for value in values:
                meet(value, side)
        while queue and any(lone.values()):
            for one, other in ((1, 2), (2, 1)):
                if not lone[one] and not found[one]:
                    return ([], None) if one < other else (None, [])
            place = -heapq.heappop(queue)
            side = sides[place]
            node = self.nodes[place]
            if side in lone:
                lone[side] -= 1
                found[side].append(node)
            for made_of in node.inputs:
                meet(made_of, side)
        return found[1], found[2]

    def _literal(self, value: ir.Value) -> ir.Value:
        data = constant_array(value)
        if data is None or data.size > (MAX_LITERAL_ELEMENTS if data.dtype.kind in "iub" else 1):
            return value
        key = ("literal", str(value.dtype), data.shape, data.tobytes())
        return self._made.setdefault(key, value)

    def _number(self, node: ir.Node) -> None:
        if is_pass_through(node):
            self.twin[node.outputs[0]] = self.first(first_input(node))
            return
        if node.op_type == "Constant":
            self.twin[node.outputs[0]] = self._literal(node.outputs[0])
            return
        for number, value in enumerate(node.outputs):
            key = self._key(node, number, node.inputs)
            self.twin[value] = value if key is None else self._made.setdefault(key, value)

    def _key(self, node: ir.Node, number: int, inputs: Iterable[ir.Value | None]) -> Any:
        attributes = []
        for name, one in sorted(node.attributes.items()):
            if one.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS, ir.AttributeType.TENSORS}:
                return None
            content = one.value
            if one.type == ir.AttributeType.TENSOR:
                content = one.as_tensor().tobytes()
            attributes.append((name, tuple(content) if isinstance(content, list) else content))
        if node.op_type in RANDOM_OPS:
            return None
        made_of = tuple(None if value is None else self.first(value) for value in inputs)
        return node.domain, node.op_type, number, tuple(attributes), made_of


def is_pass_through(node: ir.Node) -> bool:
    """Whether a node hands on its first input as it is: the same numbers, perhaps in another float type."""
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        training = constant_array(node.inputs[2]) if len(node.inputs) > 2 else None
        return training is None or not training.any()
    if node.op_type in {"Cast", "CastLike"}:
        return is_float(first_input(node)) and is_float(node.outputs[0])
    return False


def is_float(value: ir.Value) -> bool:
    """Whether a value is of real numbers; so it is where the graph does not say."""
    node = value.producer()
    if value.dtype is None and node is not None and node.op_type == "Cast":
        return ir.DataType(attribute(node, "to")).is_floating_point()
    return value.dtype is None or value.dtype.is_floating_point()
