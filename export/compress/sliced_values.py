"""Computes some units of a value of a graph, from as few operators on whole values as possible."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from export.gates.graph.element_moves import shape_of
from export.gates.graph.nodes import Array, attribute, constant_array, first_input

# operators whose result at an element depends on their inputs at the same element
ELEMENTWISE_OPS = frozenset(
    {
        "Abs", "Add", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Div", "Dropout", "Elu", "Erf",
        "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max",
        "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
        "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu", "Where",
    }
)  # fmt: skip


class SlicedValues:
    """Values of one layer for its kept units.

    The operators of a value are followed back: an elementwise one is repeated on the kept units, a matrix
    loses its other rows. Any other operator is computed whole, and the kept units are taken from its result.

    Args:
        state: The layer's input x.
        kept: Ascending indices of the units.
        units: The number of units of the whole layer.
        axis: The axis of the units in the state, counted from the end.
        own_levers: Names of the weights that callers may override to move the gates of this layer alone.

    Attributes:
        nodes: The new nodes, in an order in which they can be computed.
        initializers: The new weights.
        levers: The new weight in place of each of `own_levers` that lost units.
        macs: Multiplications of the matrices that lost rows, for one row of data, before and after.
    """

    def __init__(
        self, state: ir.Value, kept: Sequence[int], units: int, axis: int, own_levers: Collection[str]
    ) -> None:
        self.kept, self.units, self.axis = np.array(kept, np.int64), units, axis
        self._rank = len(state.shape or ())
        self._own_levers = own_levers
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self.levers: dict[str, ir.Value] = {}
        self.macs = (0, 0)
        self._known: dict[ir.Value, ir.Value] = {}

    def know(self, value: ir.Value, kept: ir.Value) -> None:
        """Use `kept` for the kept units of a value."""
        self._known[value] = kept

    def of(self, value: ir.Value) -> ir.Value:
        """The kept units of a value."""
        if value not in self._known:
            self._known[value] = self._slice(value)
        return self._known[value]

    def weight(self, name: str, array: Array) -> ir.Value:
        """A new weight."""
        data = ir.tensor(np.ascontiguousarray(array), name=name)
        value = ir.Value(
            name=name, shape=ir.Shape(array.shape), type=ir.TensorType(data.dtype), const_value=data
        )
        self.initializers.append(value)
        return value

    def compute(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        like: ir.Value,
        attributes: Sequence[ir.Attr] = (),
        units: int | None = None,
    ) -> ir.Value:
        """The output of a new node: its shape is that of `like`, with `units` (by default the kept ones)."""
        node = ir.Node("", op_type, list(inputs), list(attributes))
        output = node.outputs[0]
        output.type = like.type
        if like.shape is not None:
            dims = list(like.shape)
            dims[self.axis] = len(self.kept) if units is None else units
            output.shape = ir.Shape(dims)
        self.nodes.append(node)
        return output

    def forget_nodes(self) -> None:
        """Let go of the values that the new nodes use, if these are not put into the graph."""
        for node in self.nodes:
            for position in range(len(node.inputs)):
                node.replace_input_with(position, None)

    @property
    def axis_attribute(self) -> ir.Attr:
        """The axis of the units, as an attribute of a node."""
        return ir.AttrInt64("axis", self.axis)

    def _slice(self, value: ir.Value) -> ir.Value:
        array = _constant(value)
        if array is not None:
            if array.ndim < -self.axis or array.shape[self.axis] == 1:
                # the same number for all units
                return value
            return self._taken_rows(value, self.axis) or self._taken(value)
        shape = shape_of(value)
        node = value.producer()
        if shape is not None and (len(shape) < -self.axis or shape[self.axis] == 1):
            return value
        if node is None or node.domain or value is not node.outputs[0] or shape is None:
            return self._taken(value)
        inputs = self._sliced_inputs(node, value)
        if inputs is None:
            return self._taken(value)
        return self.compute(node.op_type, inputs, value, list(node.attributes.values()))

    def _sliced_inputs(self, node: ir.Node, value: ir.Value) -> list[ir.Value | None] | None:
        """The inputs from which a node computes the kept units alone; None for other operators."""
        is_last, is_channels = self.axis == -1, self.axis == 1 - self._rank
        if node.op_type in ELEMENTWISE_OPS:
            return [None if source is None else self.of(source) for source in node.inputs]
        if node.op_type == "BatchNormalization" and is_channels:
            numbers = [self._taken_rows(source, 0) for source in node.inputs[1:]]
            return None if None in numbers else [self.of(first_input(node)), *numbers]
        if node.op_type == "Gemm" and is_last:
            weights = self._matrix(node, value, 0 if attribute(node, "transB", 0) else 1)
        elif node.op_type == "MatMul" and is_last:
            weights = self._matrix(node, value, -1)
        elif node.op_type == "Conv" and is_channels and attribute(node, "group", 1) == 1:
            weights = self._matrix(node, value, 0)
        else:
            return None
        if weights is None:
            return None
        bias: list[ir.Value | None] = []
        if len(node.inputs) > 2 and (addend := node.inputs[2]) is not None:
            sliced_bias = self._taken_rows(addend, 0) if node.op_type == "Conv" else self.of(addend)
            if sliced_bias is None:
                return None
            bias = [sliced_bias]
        return [first_input(node), weights, *bias]

    def _matrix(self, node: ir.Node, value: ir.Value, axis: int) -> ir.Value | None:
        """The rows of a matrix that compute the kept units; None unless it is a weight of the whole layer."""
        matrix = node.inputs[1]
        array = None if matrix is None else _constant(matrix)
        if matrix is None or array is None or array.ndim < 2 or array.shape[axis] != self.units:
            return None
        # the matrix is applied once for each position (a pixel, or a step in time)
        dims = [dim for number, dim in enumerate(shape_of(value) or []) if number != self._rank + self.axis]
        positions = prod(dim for dim in dims[1:] if dim is not None)
        before = array.size * positions
        self.macs = (self.macs[0] + before, self.macs[1] + before * len(self.kept) // self.units)
        return self._taken_rows(matrix, axis)

    def _taken_rows(self, value: ir.Value | None, axis: int) -> ir.Value | None:
        """The kept units of a weight; None if it is none of this layer alone, or has other units."""
        array = None if value is None else _constant(value)
        if value is None or array is None or not array.ndim or array.shape[axis] != self.units:
            return None
        name = str(value.name)
        if value.is_graph_input() and name not in self._own_levers:
            return None
        sliced = self.weight(f"{name}.kept", array.take(self.kept, axis=axis))
        if name in self._own_levers:
            self.levers[name] = sliced
        return sliced

    def _taken(self, value: ir.Value) -> ir.Value:
        """The kept units of a value that is computed whole."""
        indices = self.weight(f"{value.name}.kept_units", self.kept)
        return self.compute("Gather", [value, indices], value, [self.axis_attribute])


def _constant(value: ir.Value) -> Array | None:
    """The numbers of a weight or constant, None for a computed value. Levers are weights too."""
    if value.is_initializer() and value.const_value is not None:
        return value.const_value.numpy()
    return constant_array(value)
