"""What a gate is the sigmoid of: the biases that offset it, the weights it is made with, the axis of its units."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from export.constants import Array, array, attribute, scalar
from export.flow import Flow, transparent
from export.movement import MOVES, Indices, moved, sizes
from export.ranges import Ranges

SQUASHES = frozenset({"Sigmoid", "HardSigmoid", "Softmax"})
# an element of a joined tensor that this bias does not offset
NOWHERE = -1


@dataclass(frozen=True)
class Offset:
    """A bias that is added to a value: `scale` times its element `index`, for every element of the value.

    `index` has the value's rank, and 1 for an axis along which it does not change. `tensor` is None where
    a map has no bias, but could have one. `path` are the values from the first that was offset on.
    """

    tensor: ir.Value | None
    index: Indices
    scale: float = 1.0
    path: tuple[ir.Value, ...] = ()

    @property
    def maker(self) -> ir.Node:
        """The node that adds the bias, or could."""
        node = self.path[0].producer()
        assert node is not None
        return node

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The elements in use, flat, as few ranges from a start to a stop."""
        used = np.unique(self.index[self.index != NOWHERE])
        ends = np.flatnonzero(np.diff(used) != 1)
        return [(int(run[0]), int(run[-1]) + 1) for run in np.split(used, ends + 1) if run.size]

    def within(self, value: ir.Value, index: Indices | None) -> Offset | None:
        """The same bias as it offsets a value made of this one."""
        if index is None or not (index != NOWHERE).any():
            return None
        return replace(self, index=index, path=(*self.path, value))


@dataclass(frozen=True)
class Logit:
    """What a gate squashes. `squashed` is the value itself, None where it is not known."""

    squashed: ir.Value | None
    offsets: tuple[Offset, ...]
    weights: frozenset[ir.Value]

    @property
    def biases(self) -> list[Offset]:
        """The offsets that there are."""
        return [offset for offset in self.offsets if offset.tensor is not None]

    def bias(self) -> Array | None:
        """The sum of the biases over the units, in the gate's rank; None where there is none."""
        total: Array | None = None
        for offset in self.biases:
            data = array(offset.tensor)
            if data is not None:
                flat = data.astype(np.float64).reshape(-1)
                part = np.where(offset.index == NOWHERE, 0.0, offset.scale * flat[offset.index])
                total = part if total is None else total + part
        return total

    @property
    def unit_axis(self) -> int:
        """The axis of the gate along which its units lie, from the end."""
        for offset in self.offsets:
            if long := [axis for axis, size in enumerate(offset.index.shape) if size > 1]:
                return long[-1] - offset.index.ndim
        return -1

    @property
    def identity(self) -> Hashable:
        """Equal for two gates that are made with the same weights: one gate at two times. None for no weights."""
        names = frozenset(weight.name for weight in self.weights)
        spans = sorted((str(o.tensor.name if o.tensor else None), *o.runs) for o in self.offsets)
        return (names, tuple(spans)) if names else None


class Logits:
    """Traces gates of a graph back to their weights and biases."""

    def __init__(self, flow: Flow, ranges: Ranges) -> None:
        self._flow = flow
        self._ranges = ranges
        self._known: dict[ir.Value, Logit] = {}

    def of(self, gate: ir.Value) -> Logit:
        """What a gate is the sigmoid of, as far as it can be told."""
        gate = self._flow.first(gate)
        if gate not in self._known:
            squashed = self._squashed(gate)
            weights = frozenset() if squashed is None else frozenset(self._weights(squashed))
            self._known[gate] = Logit(squashed, tuple(self._of_gate(gate)), weights)
        return self._known[gate]

    def softmax(self, gate: ir.Value) -> ir.Node | None:
        """The softmax that a gate is a part of."""
        node = _before_moves(gate).producer()
        return node if node is not None and node.op_type == "Softmax" else None

    def _squashed(self, gate: ir.Value) -> ir.Value | None:
        found = squash(_before_moves(gate))
        return None if found is None else found[0]

    def _of_gate(self, value: ir.Value) -> Iterator[Offset]:
        """The offsets in the shape of the gate, whose squash changes no element's place."""
        if (found := squash(value)) is not None:
            source, scale = found
            for offset in self._of(source):
                yield replace(offset, scale=offset.scale * scale, path=(*offset.path, value))
            return
        node = value.producer()
        if node is not None and node.op_type in MOVES and node.inputs[0] is not None:
            for offset in self._of_gate(node.inputs[0]):
                if (after := offset.within(value, moved(value, offset.index))) is not None:
                    yield after

    def _of(self, value: ir.Value) -> Iterator[Offset]:
        node = value.producer()
        if not self._ranges.data(value):
            data = array(value)
            if data is not None:
                yield Offset(value, np.arange(data.size).reshape(data.shape))
            elif node is not None and node.op_type in MOVES:
                yield from self._moved(node, value)
            return
        if node is None:
            return
        match node.op_type:
            case "Add" | "Sum" | "Sub":
                yield from self._added(node, value)
            case "Neg" | "Mul" | "Div":
                yield from self._scaled(node, value)
            case "Gemm" | "MatMul" | "Conv" | "BatchNormalization" | "LayerNormalization":
                yield from self._mapped(node, value)
            case "Concat":
                yield from self._joined(node, value)
            case op if op in MOVES:
                yield from self._moved(node, value)

    def _moved(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        source = node.inputs[0]
        if source is None:
            return
        for offset in self._of(source):
            if (after := offset.within(value, moved(value, offset.index))) is not None:
                yield after

    def _added(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        shape = sizes(value)
        if shape is None:
            return
        for number, source in enumerate(node.inputs):
            if source is None:
                continue
            sign = -1.0 if number and node.op_type == "Sub" else 1.0
            for offset in self._of(source):
                index = offset.index
                if index.ndim > len(shape):
                    return
                index = index.reshape((1,) * (len(shape) - index.ndim) + index.shape)
                yield replace(offset, index=index, scale=sign * offset.scale, path=(*offset.path, value))

    def _scaled(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        found = _factor(node)
        if found is None:
            return
        source, factor = found
        for offset in self._of(source):
            yield replace(offset, scale=offset.scale * factor, path=(*offset.path, value))

    def _mapped(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        shape = sizes(value)
        if shape is None:
            return
        axis = len(shape) - 1 if node.op_type in {"Gemm", "MatMul", "LayerNormalization"} else 1
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if node.op_type == "MatMul":
            bias = None
        if bias is not None:
            beta = float(attribute(node, "beta", 1.0)) if node.op_type == "Gemm" else 1.0
            for offset in self._of(bias):
                index = offset.index
                if index.ndim > 2 or (index.ndim == 2 and index.shape[0] > 1):
                    return
                spread = [1] * len(shape)
                spread[axis] = index.size
                path = (*offset.path, value)
                yield replace(offset, index=index.reshape(spread), scale=beta * offset.scale, path=path)
        elif node.op_type in {"Gemm", "MatMul", "Conv"} and (units := shape[axis]) is not None:
            spread = [1] * len(shape)
            spread[axis] = units
            yield Offset(None, np.arange(units).reshape(spread), path=(value,))

    def _joined(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        """A part of a joined tensor is offset, the others are not."""
        axis = int(attribute(node, "axis"))
        lengths = []
        for source in node.inputs:
            shape = None if source is None else sizes(source)
            if shape is None or (length := shape[axis]) is None:
                return
            axis += len(shape) if axis < 0 else 0
            lengths.append(length)
        for number, source in enumerate(node.inputs):
            assert source is not None
            for offset in self._of(source):
                whole = [*offset.index.shape]
                whole[axis] = lengths[number]
                inner = np.broadcast_to(offset.index, whole)
                margins = [(0, 0)] * inner.ndim
                margins[axis] = (sum(lengths[:number]), sum(lengths[number + 1 :]))
                index = np.pad(inner, margins, constant_values=NOWHERE)
                yield replace(offset, index=index, path=(*offset.path, value))

    def _weights(self, value: ir.Value) -> Iterator[ir.Value]:
        """The weights on the way from a logit back to the data."""
        node = value.producer()
        if not self._ranges.data(value):
            yield from self._initializers(value)
        elif node is not None and node.op_type in MOVES:
            if node.inputs[0] is not None:
                yield from self._weights(node.inputs[0])
        elif node is not None and node.op_type in MAPS:
            for source in node.inputs[1:]:
                if source is not None and not self._ranges.data(source):
                    yield from self._initializers(source)
        elif node is not None and node.op_type in MIXES:
            for source in node.inputs:
                if source is not None:
                    yield from self._weights(source)

    def _initializers(self, value: ir.Value) -> Iterator[ir.Value]:
        node = value.producer()
        if node is None:
            # a literal number is no weight: many gates share it
            data = array(value)
            if data is not None and data.size > 1:
                yield value
            return
        for source in node.inputs:
            if source is not None:
                yield from self._initializers(source)


MAPS = frozenset({"Gemm", "MatMul", "Conv", "BatchNormalization", "LayerNormalization"})
MIXES = frozenset({"Add", "Sum", "Sub", "Neg", "Mul", "Div", "Concat"})


def squash(value: ir.Value) -> tuple[ir.Value, float] | None:
    """What a value between 0 and 1 is the squashed form of, and how steeply, a sigmoid's steepness being 1."""
    inner, slope = _straight(value)
    node = inner.producer()
    if node is None:
        return None
    way = 1.0 if slope > 0 else -1.0
    source = node.inputs[0] if node.inputs else None
    if source is None:
        return None
    if node.op_type in SQUASHES:
        return source, way
    if node.op_type == "Tanh":
        # (1 + tanh(x)) / 2 is the sigmoid of 2 x
        return source, 2 * way
    if node.op_type == "Clip":
        inner, slope = _straight(source)
        return inner, way if slope > 0 else -way
    exponent = _logistic(node)
    return None if exponent is None else (exponent, -way)


def _logistic(node: ir.Node) -> ir.Value | None:
    """The u of 1 / (1 + exp(u))."""
    if node.op_type == "Div" and scalar(node.inputs[0]) is not None:
        below = node.inputs[1]
    elif node.op_type == "Reciprocal":
        below = node.inputs[0]
    else:
        return None
    if below is None:
        return None
    exponential = _straight(below)[0].producer()
    if exponential is None or exponential.op_type != "Exp":
        return None
    return exponential.inputs[0]


def _straight(value: ir.Value) -> tuple[ir.Value, float]:
    """The value that this is a multiple of, plus a number; and how many times it is counted."""
    slope = 1.0
    while (node := value.producer()) is not None:
        if transparent(node) and node.inputs[0] is not None:
            value = node.inputs[0]
        elif node.op_type in {"Add", "Sub"}:
            a, b = node.inputs
            if a is not None and scalar(b) is not None:
                value = a
            elif b is not None and scalar(a) is not None:
                value, slope = b, slope * (-1.0 if node.op_type == "Sub" else 1.0)
            else:
                break
        elif (found := _factor(node)) is not None and found[1]:
            value, slope = found[0], slope * found[1]
        else:
            break
    return value, slope


def _factor(node: ir.Node) -> tuple[ir.Value, float] | None:
    """What a node multiplies by a number, and the number."""
    if node.op_type == "Neg" and node.inputs[0] is not None:
        return node.inputs[0], -1.0
    if node.op_type not in {"Mul", "Div"}:
        return None
    a, b = node.inputs
    if a is not None and (number := scalar(b)) is not None and number:
        return a, number if node.op_type == "Mul" else 1 / number
    if b is not None and node.op_type == "Mul" and (number := scalar(a)) is not None:
        return b, number
    return None


def _before_moves(value: ir.Value) -> ir.Value:
    while (node := value.producer()) is not None and node.op_type in MOVES and node.inputs[0] is not None:
        value = node.inputs[0]
    return value
