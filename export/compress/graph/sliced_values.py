"""Computes some units of a value of a graph, from as few operators on whole values as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.graph.element_moves import move_indices, shape_of
from turnpike.export.gates.graph.nodes import Array, attribute, constant_array, constant_integers, first_input

# operators whose result at an element depends on their inputs at the same element
ELEMENTWISE_OPS = frozenset(
    {
        "Abs", "Add", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Div", "Dropout", "Elu", "Erf",
        "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max",
        "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
        "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu", "Where",
    }
)  # fmt: skip

# the end of a Slice to the last element: exporters write the largest number of 32 or 64 bits
MAX_SIZE = 2**31 - 1


@dataclass(frozen=True)
class _Places:
    """Where the kept units are along an axis.

    The axis is longer than the layer if a value has H and T together: there, the kept units of H are at other
    places than those of T.
    """

    indices: tuple[int, ...]
    length: int


class SlicedValues:
    """Values of one layer for its kept units.

    The operators of a value are followed back: an elementwise one is repeated on the kept units, a matrix
    loses its other rows. A matrix for H and T together, whose product is split, becomes two. Any other
    operator is computed whole, and the kept units are taken from its result.

    Args:
        state: The layer's input x.
        kept: Ascending indices of the units.
        units: The number of units of the whole layer.
        axis: The axis of the units in the state, counted from the end.
        own_levers: The elements that move the gates of this layer alone, of each weight that callers may
            override and that moves no other gates.

    Attributes:
        nodes: The new nodes, in an order in which they can be computed.
        initializers: The new weights.
        levers: The new weight in place of each of `own_levers` that lost units.
        macs: Multiplications of the matrices that lost rows, for one row of data.
        macs_whole: The same before they lost rows.
    """

    def __init__(
        self, state: ir.Value, kept: Sequence[int], units: int, axis: int, own_levers: Mapping[str, range]
    ) -> None:
        self.kept, self.units, self.axis = np.array(kept, np.int64), units, axis
        self._rank = len(state.shape or ())
        self._own_levers = own_levers
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self.levers: dict[str, ir.Value] = {}
        self.macs, self.macs_whole = 0, 0
        self._places = _Places(tuple(self.kept.tolist()), units)
        self._known: dict[tuple[ir.Value, _Places], ir.Value] = {}

    def know(self, value: ir.Value, kept_value: ir.Value) -> None:
        """Use `kept_value` for the kept units of a value."""
        self._known[value, self._places] = kept_value

    def of(self, value: ir.Value) -> ir.Value:
        """The kept units of a value."""
        return self._at(value, self._places)

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

    def _at(self, value: ir.Value, places: _Places) -> ir.Value:
        """A value at the places of the kept units."""
        if (value, places) not in self._known:
            self._known[value, places] = self._slice(value, places)
        return self._known[value, places]

    def _slice(self, value: ir.Value, places: _Places) -> ir.Value:
        array = _constant(value)
        if array is not None:
            if array.ndim < -self.axis or array.shape[self.axis] == 1:
                # the same number for all units
                return value
            return self._taken_rows(value, self.axis, places) or self._taken(value, places)
        shape = shape_of(value)
        node = value.producer()
        if shape is not None and (len(shape) < -self.axis or shape[self.axis] == 1):
            return value
        if node is None or node.domain or shape is None:
            return self._taken(value, places)
        if _keeps_shape(node, value):
            return self._at(first_input(node), places)
        if (source := self._before_split(node, value, places)) is not None:
            return self._at(*source)
        inputs = self._sliced_inputs(node, value, places) if value is node.outputs[0] else None
        if inputs is None:
            return self._taken(value, places)
        return self.compute(node.op_type, inputs, value, list(node.attributes.values()))

    def _before_split(
        self, node: ir.Node, value: ir.Value, places: _Places
    ) -> tuple[ir.Value, _Places] | None:
        """The value that a Split, Slice or Gather takes units from, and the places of the kept ones in it."""
        if node.op_type not in {"Split", "Slice", "Gather"}:
            return None
        source, rank = first_input(node), len(value.shape or ())
        shape, axis = shape_of(source), rank + self.axis
        if shape is None or len(shape) != rank or (length := shape[axis]) is None:
            return None
        if not _keeps_other_axes(node, axis, rank):
            return None
        index = np.arange(length).reshape([length if number == axis else 1 for number in range(rank)])
        moved = move_indices(node, value, index)
        if moved is None or moved.size != places.length:
            return None
        return source, _Places(tuple(moved.reshape(-1)[list(places.indices)].tolist()), length)

    def _sliced_inputs(self, node: ir.Node, value: ir.Value, places: _Places) -> list[ir.Value | None] | None:
        """The inputs from which a node computes the kept units alone; None for other operators."""
        is_last, is_channels = self.axis == -1, self.axis == 1 - self._rank
        if node.op_type in ELEMENTWISE_OPS:
            return [None if source is None else self._at(source, places) for source in node.inputs]
        if node.op_type == "BatchNormalization" and is_channels:
            numbers = [self._taken_rows(source, 0, places) for source in node.inputs[1:]]
            return None if None in numbers else [self._at(first_input(node), places), *numbers]
        if node.op_type == "Gemm" and is_last:
            weights = self._matrix(node, value, 0 if attribute(node, "transB", 0) else 1, places)
        elif node.op_type == "MatMul" and is_last:
            weights = self._matrix(node, value, -1, places)
        elif node.op_type == "Conv" and is_channels and attribute(node, "group", 1) == 1:
            weights = self._matrix(node, value, 0, places)
        else:
            return None
        if weights is None:
            return None
        bias: list[ir.Value | None] = []
        if len(node.inputs) > 2 and (addend := node.inputs[2]) is not None:
            is_convolution = node.op_type == "Conv"
            sliced_bias = self._taken_rows(addend, 0, places) if is_convolution else self._at(addend, places)
            if sliced_bias is None:
                return None
            bias = [sliced_bias]
        return [first_input(node), weights, *bias]

    def _matrix(self, node: ir.Node, value: ir.Value, axis: int, places: _Places) -> ir.Value | None:
        """The rows of a matrix that compute the kept units; None unless it is a weight of the whole layer."""
        matrix = node.inputs[1]
        array = None if matrix is None else _constant(matrix)
        if matrix is None or array is None or array.ndim < 2 or array.shape[axis] != places.length:
            return None
        # the matrix is applied once for each position (a pixel, or a step in time)
        dims = [dim for number, dim in enumerate(shape_of(value) or []) if number != self._rank + self.axis]
        positions = prod(dim for dim in dims[1:] if dim is not None)
        macs_of_unit = array.size // places.length * positions
        self.macs += macs_of_unit * len(self.kept)
        self.macs_whole += macs_of_unit * self.units
        return self._taken_rows(matrix, axis, places)

    def _taken_rows(self, value: ir.Value | None, axis: int, places: _Places) -> ir.Value | None:
        """The kept units of a weight; None if it is none of this layer alone, or has other units."""
        array = None if value is None else _constant(value)
        if value is None or array is None or not array.ndim or array.shape[axis] != places.length:
            return None
        name, is_lever = str(value.name), False
        if value.is_graph_input():
            lever = self._own_levers.get(name, range(0))
            is_lever = lever == range(array.size)
            if not is_lever:
                # the lever is a part of the tensor, of the kept units all or none
                moved = {place in lever for place in places.indices}
                if not lever or len(moved) > 1 or array.size != places.length:
                    return None
                is_lever = True in moved
        sliced = self.weight(f"{name}.kept", array.take(places.indices, axis=axis))
        if is_lever:
            self.levers[name] = sliced
        return sliced

    def _taken(self, value: ir.Value, places: _Places) -> ir.Value:
        """The kept units of a value that is computed whole."""
        indices = self.weight(f"{value.name}.kept_units", np.array(places.indices, np.int64))
        return self.compute("Gather", [value, indices], value, [self.axis_attribute])


def _keeps_shape(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node is a Reshape to the shape that its input has, which changes nothing."""
    if node.op_type != "Reshape" or value.shape is None or first_input(node).shape != value.shape:
        return False
    # if one size alone is unknown, it follows from the others
    return sum(not isinstance(dim, int) for dim in value.shape) <= 1


def _keeps_other_axes(node: ir.Node, axis: int, rank: int) -> bool:
    """Whether a Split, Slice or Gather takes all elements along all axes but one."""
    if node.op_type != "Slice":
        return int(attribute(node, "axis", 0)) % rank == axis
    # starts, ends, axes and, perhaps, steps; old opsets have attributes in their place
    bounds = [numbers for bound in node.inputs[1:] if (numbers := constant_integers(bound)) is not None]
    if len(bounds) < max(3, len(node.inputs) - 1):
        return False
    starts, ends, axes, *more = bounds
    steps = more[0] if more else [1] * len(starts)
    return all(
        number % rank == axis or (start == 0 and end >= MAX_SIZE and step == 1)
        for start, end, number, step in zip(starts, ends, axes, steps, strict=True)
    )


def _constant(value: ir.Value) -> Array | None:
    """The numbers of a weight or constant, None for a computed value. Levers are weights too."""
    if value.is_initializer() and value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is not None and node.op_type == "Transpose" and not first_input(node).is_graph_input():
        # a map of rows with several positions multiplies by the transposed weight
        array = _constant(first_input(node))
        return None if array is None else array.transpose(attribute(node, "perm"))
    return constant_array(value)
