"""Traces gates back to their logits: the biases and weights behind each gate, and the axis of its units.

For G = sigmoid(W x + b), the logit is W x + b. The bias is reported in the manifest and becomes the lever of
the gate; the weights tell which gates are repeats of one layer. Between bias and gate there may be slices,
reshapes, constants and more additions, and one bias may be shared by a gate and H: so each bias is tracked
element by element (`BiasTerm`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.algebra.sigmoids import intermediate_values, match_scaling, match_sigmoid
from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.element_moves import MOVE_OPS, Indices, before_moves, move_indices, shape_of
from turnpike.export.gates.graph.nodes import Array, attribute, constant_array, first_input, present_inputs
from turnpike.export.gates.graph.view import GraphView

# operators that combine data with weights
AFFINE_OPS = frozenset({"Gemm", "MatMul", "Conv", "BatchNormalization", "LayerNormalization"})
# affine operators whose second axis is that of the units; for the others it is the last one
CHANNEL_OPS = frozenset({"Conv", "BatchNormalization"})
# operators each of whose inputs is a part of the logit
MIXING_OPS = frozenset({"Add", "Sum", "Sub", "Neg", "Mul", "Div", "Concat"})
MAX_LOGIT_DEPTH = 64  # nodes between a logit and its biases, against graphs built to be slow
# index of an element of a value to which a bias adds nothing, as in the other parts of a Concat
NO_BIAS = -1


@dataclass(frozen=True, eq=False)
class BiasTerm:
    """A bias that is added to a value: to each element, `scale` times the element `index` of the bias.

    Attributes:
        tensor: The bias; None for one that does not exist, where a node could have one.
        index: Element of the bias for each element of the value: an array with the rank of the value, and
            size 1 along axes on which it is constant.
        scale: Factor between the bias and what it adds to the value.
        path: The values from the first that the bias was added to, up to this value.
    """

    tensor: ir.Value | None
    index: Indices
    scale: float = 1.0
    path: tuple[ir.Value, ...] = ()

    @property
    def added_by(self) -> ir.Node | None:
        """The node that adds the bias, or that could."""
        return self.path[0].producer()

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The elements of the flat bias in use, as ranges from start to stop."""
        used = np.unique(self.index[self.index != NO_BIAS])
        breaks = np.flatnonzero(np.diff(used) != 1)
        return [(int(run[0]), int(run[-1]) + 1) for run in np.split(used, breaks + 1) if run.size]

    def at(self, value: ir.Value, index: Indices | None = None, factor: float = 1.0) -> BiasTerm:
        """The same bias as a term of `value`, which is computed from the last value of the path."""
        return BiasTerm(
            self.tensor, self.index if index is None else index, self.scale * factor, (*self.path, value)
        )


@dataclass(frozen=True)
class Logit:
    """The logit of a gate. All fields are empty if the gate is no known sigmoid.

    Attributes:
        value: The logit itself.
        between: The values after the logit and before the gate.
        bias_terms: The biases in the logit, and those that could be there, in terms of the gate's elements.
        new_bias: How a bias of shape `new_bias_shape`, added to the logit, would reach the gate; None if that
            shape cannot be known.
        new_bias_shape: One element for each unit, and for each part of a softmax.
        weights: The weights that the logit is computed with.
    """

    value: ir.Value | None = None
    between: frozenset[ir.Value] = frozenset()
    bias_terms: tuple[BiasTerm, ...] = ()
    new_bias: BiasTerm | None = None
    new_bias_shape: tuple[int, ...] = ()
    weights: frozenset[ir.Value] = frozenset()

    @property
    def bias(self) -> Array | None:
        """The sum of all existing biases, with the rank of the gate; None if there are none."""
        parts = []
        for term in self.bias_terms:
            data = constant_array(term.tensor)
            if data is not None:
                elements = data.astype(np.float64).reshape(-1)[term.index]
                parts.append(np.where(term.index == NO_BIAS, 0.0, term.scale * elements))
        return sum(parts[1:], parts[0]) if parts else None

    @property
    def unit_axis(self) -> int:
        """The axis of the gate's units, counted from the end."""
        return _unit_axis(self.bias_terms)

    @property
    def identity(self) -> Hashable:
        """Equal for gates with the same weights and bias elements; None for a gate without weights."""
        names = frozenset(str(weight.name) for weight in self.weights)
        ranges = frozenset(bias_range for term in self.bias_terms for bias_range in term.ranges)
        return (tuple(sorted(names)), tuple(sorted(ranges))) if names else None


class LogitTracer:
    """Finds the logits of the gates of one graph, and remembers them."""

    def __init__(self, view: GraphView, ranges: ValueRanges) -> None:
        self._view = view
        self._ranges = ranges
        self._logits: dict[ir.Value, Logit] = {}

    def logit(self, gate: ir.Value) -> Logit:
        """The logit of a gate, as far as it can be known."""
        gate = self._view.canonical(gate)
        if gate not in self._logits:
            match = match_sigmoid(before_moves(gate))
            self._logits[gate] = Logit() if match is None else self._trace(gate, match.logit)
        return self._logits[gate]

    def softmax_node(self, gate: ir.Value) -> ir.Node | None:
        """The softmax that a gate is a part of."""
        node = before_moves(gate).producer()
        if node is not None and node.op_type == "Exp":
            # exp(log_softmax(x))
            node = first_input(node).producer()
            return node if node is not None and node.op_type == "LogSoftmax" else None
        return node if node is not None and node.op_type == "Softmax" else None

    def _trace(self, gate: ir.Value, logit: ir.Value) -> Logit:
        terms = list(find_bias_terms(logit))
        softmax = self.softmax_node(gate)
        shape = _bias_shape(logit, terms, None if softmax is None else attribute(softmax, "axis", -1))
        new_bias = None if shape is None else BiasTerm(None, _bias_index(shape, logit), path=(logit,))
        return Logit(
            value=logit,
            between=frozenset(intermediate_values(gate, logit)),
            bias_terms=tuple(_terms_of_gate(gate, terms)),
            new_bias=None if new_bias is None else next(iter(_terms_of_gate(gate, [new_bias])), None),
            new_bias_shape=shape or (),
            weights=frozenset(self._weights(logit)),
        )

    def _weights(self, value: ir.Value, depth: int = 0) -> Iterator[ir.Value]:
        """The weights between a logit and the data that it is computed from."""
        node = value.producer()
        if node is None or node.op_type == "Constant":
            yield from _initializers(value)
        elif depth > MAX_LOGIT_DEPTH or (depth and not belongs_to_one_logit(value, node)):
            return
        elif node.op_type in MOVE_OPS:
            yield from self._weights(first_input(node), depth + 1)
        elif node.op_type in AFFINE_OPS:
            for number, source in enumerate(present_inputs(node)):
                # a constant first input, in front of a constant second one, is no weight but an initial
                # state: at the first time step it is in the place of the data
                if not self._ranges.depends_on_input(source) and (
                    number or self._ranges.depends_on_input(present_inputs(node)[1])
                ):
                    yield from _initializers(source)
        elif node.op_type in MIXING_OPS:
            for source in present_inputs(node):
                yield from self._weights(source, depth + 1)


def find_bias_terms(value: ir.Value, depth: int = 0) -> Iterator[BiasTerm]:
    """The biases among the summands of a value."""
    node = value.producer()
    data = constant_array(value)
    if data is not None:
        yield BiasTerm(value, np.arange(data.size).reshape(data.shape))
    elif node is not None and depth < MAX_LOGIT_DEPTH and (not depth or belongs_to_one_logit(value, node)):
        yield from _terms_of_node(node, value, depth + 1)


def belongs_to_one_logit(value: ir.Value, node: ir.Node) -> bool:
    """Whether a value, computed by `node`, is a part of one logit only.

    A value with several users is something else, such as a residual stream, unless it is the output of an
    affine operator, or is only cut into pieces: then it is one fused map for H and the gate.
    """
    users = [user for user, _ in value.uses() if user.op_type != "Shape"]
    return (
        len(users) < 2
        or node.op_type in AFFINE_OPS | MOVE_OPS
        or all(user.op_type in MOVE_OPS for user in users)
    )


def move_bias_terms(node: ir.Node, output: ir.Value, terms: Iterable[BiasTerm]) -> Iterator[BiasTerm]:
    """Follow the bias terms of a node's first input to its output, if the node only moves elements."""
    for term in terms:
        index = move_indices(node, output, term.index)
        if index is not None and (index != NO_BIAS).any():
            yield term.at(output, index)


def _terms_of_node(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    match node.op_type:
        case "Add" | "Sum" | "Sub":
            yield from _terms_of_addition(node, value, depth)
        case "Neg" | "Mul" | "Div":
            if (scaled := match_scaling(node)) is not None:
                for term in find_bias_terms(scaled.value, depth):
                    yield term.at(value, factor=scaled.factor)
        case op if op in AFFINE_OPS:
            yield from _terms_of_affine(node, value, depth)
        case "Concat":
            yield from _terms_of_concat(node, value, depth)
        case op if op in MOVE_OPS:
            yield from move_bias_terms(node, value, find_bias_terms(first_input(node), depth))


def _terms_of_addition(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    shape = shape_of(value)
    if shape is None:
        return
    for number, source in enumerate(present_inputs(node)):
        sign = -1.0 if number and node.op_type == "Sub" else 1.0
        for term in find_bias_terms(source, depth):
            if term.index.ndim <= len(shape):
                broadcast = (1,) * (len(shape) - term.index.ndim)
                yield term.at(value, term.index.reshape(broadcast + term.index.shape), sign)


def _terms_of_affine(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    """The bias of an affine operator; a term without a tensor if it has none but could have one."""
    shape = shape_of(value)
    if shape is None:
        return
    unit_axis = 1 if node.op_type in CHANNEL_OPS else len(shape) - 1
    index_shape = [1] * len(shape)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        beta = float(attribute(node, "beta", 1.0))
        for term in find_bias_terms(node.inputs[2], depth):
            if term.index.size == max(term.index.shape, default=1):
                index_shape[unit_axis] = term.index.size
                yield term.at(value, term.index.reshape(index_shape), beta)
    elif node.op_type in {"Gemm", "MatMul", "Conv"} and (units := shape[unit_axis]) is not None:
        index_shape[unit_axis] = units
        yield BiasTerm(None, np.arange(units).reshape(index_shape), path=(value,))


def _terms_of_concat(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    """The bias terms of each part, which add nothing to the other parts."""
    axis = int(attribute(node, "axis"))
    shapes = [shape_of(source) for source in present_inputs(node)]
    lengths = [0 if shape is None else shape[axis] or 0 for shape in shapes]
    if not all(lengths):
        return
    for number, source in enumerate(present_inputs(node)):
        for term in find_bias_terms(source, depth):
            part_shape = [*term.index.shape]
            part_shape[axis] = lengths[number]
            padding = [(0, 0)] * len(part_shape)
            padding[axis] = (sum(lengths[:number]), sum(lengths[number + 1 :]))
            part = np.broadcast_to(term.index, part_shape)
            yield term.at(value, np.pad(part, padding, constant_values=NO_BIAS))


def _terms_of_gate(gate: ir.Value, terms: Iterable[BiasTerm]) -> list[BiasTerm]:
    """The bias terms of a logit, followed through the sigmoid and the moves after it to the gate."""
    moves: list[tuple[ir.Node, ir.Value]] = []
    value = gate
    while (match := match_sigmoid(value)) is None and (node := value.producer()) is not None:
        moves.append((node, value))
        value = first_input(node)
    gate_terms = [] if match is None else [term.at(value, factor=match.slope) for term in terms]
    for node, output in reversed(moves):
        gate_terms = list(move_bias_terms(node, output, gate_terms))
    return gate_terms


def _bias_shape(value: ir.Value, terms: list[BiasTerm], softmax_axis: int | None) -> tuple[int, ...] | None:
    """The shape of a bias with one element per unit of a value, along the unit axis of its other biases.

    The parts of a softmax are gates of their own: each has its own elements.
    """
    shape = shape_of(value)
    if shape is None or not terms:
        return None
    axes = {_unit_axis(terms)} | (set() if softmax_axis is None else {softmax_axis % len(shape) - len(shape)})
    if any(shape[axis] is None for axis in axes):
        return None
    return tuple(shape[axis] or 1 if axis in axes else 1 for axis in range(min(axes), 0))


def _bias_index(bias_shape: tuple[int, ...], value: ir.Value) -> Indices:
    """The elements of a bias of this shape, with the rank of the value."""
    rank = len(shape_of(value) or bias_shape)
    return np.arange(math.prod(bias_shape)).reshape((1,) * (rank - len(bias_shape)) + bias_shape)


def _unit_axis(terms: Iterable[BiasTerm]) -> int:
    """The axis of a value along which its biases change, counted from the end: that of its units."""
    unit_axis = -1
    for term in terms:
        if long_axes := [axis for axis, size in enumerate(term.index.shape) if size > 1]:
            return long_axes[-1] - term.index.ndim
        if term.added_by is not None and term.added_by.op_type in CHANNEL_OPS:
            # a single channel: its bias changes along no axis
            unit_axis = 1 - term.index.ndim
    return unit_axis


def _initializers(value: ir.Value) -> Iterator[ir.Value]:
    """The weights that a value is computed from, without single numbers, which unrelated gates may share."""
    waiting = [value]
    seen: set[ir.Value] = set()
    while waiting:
        source = waiting.pop()
        node = source.producer()
        data = constant_array(source)
        if data is not None and data.size > 1 and data.dtype.kind not in "iub":
            yield source
        elif node is not None and source not in seen:
            seen.add(source)
            waiting.extend(present_inputs(node))
