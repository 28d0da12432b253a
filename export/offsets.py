"""The biases that are added to a value on its way, and which of their elements goes to which of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from export.constants import array, attribute, first_input, given
from export.movement import MOVES, Indices, moved, sizes
from export.ranges import Ranges
from export.squash import multiple

# an element of a joined tensor that this bias does not offset
NOWHERE = -1
# maps from the last axis to the last; others map from channels to channels, the second axis
LAST_AXIS = frozenset({"Gemm", "MatMul", "LayerNormalization"})


@dataclass(frozen=True, eq=False)
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
    def maker(self) -> ir.Node | None:
        """The node that adds the bias, or could."""
        return self.path[0].producer()

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The elements in use, flat, as few ranges from a start to a stop."""
        used = np.unique(self.index[self.index != NOWHERE])
        ends = np.flatnonzero(np.diff(used) != 1)
        return [(int(run[0]), int(run[-1]) + 1) for run in np.split(used, ends + 1) if run.size]

    def on(self, value: ir.Value, index: Indices | None = None, factor: float = 1.0) -> Offset:
        """The same bias as it offsets a value made of this one."""
        where = self.index if index is None else index
        return Offset(self.tensor, where, self.scale * factor, (*self.path, value))


class Offsets:
    """Traces the values of a graph back to the biases that offset them."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges

    def of(self, value: ir.Value) -> Iterator[Offset]:
        """The biases that a value is the sum of, beside what is not a bias."""
        node = value.producer()
        if not self._ranges.data(value):
            data = array(value)
            if data is not None:
                yield Offset(value, np.arange(data.size).reshape(data.shape))
            elif node is not None and node.op_type in MOVES:
                yield from self.moved(node, value, self.of(first_input(node)))
        elif node is not None:
            yield from self._through(node, value)

    def moved(self, node: ir.Node, value: ir.Value, offsets: Iterator[Offset]) -> Iterator[Offset]:
        """What offsets a value whose elements were moved about, given what offset them before."""
        for offset in offsets:
            index = moved(node, value, offset.index)
            if index is not None and (index != NOWHERE).any():
                yield offset.on(value, index)

    def _through(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        match node.op_type:
            case "Add" | "Sum" | "Sub":
                yield from self._added(node, value)
            case "Neg" | "Mul" | "Div":
                if (found := multiple(node)) is not None:
                    for offset in self.of(found[0]):
                        yield offset.on(value, factor=found[1])
            case "Gemm" | "MatMul" | "Conv" | "BatchNormalization" | "LayerNormalization":
                yield from self._mapped(node, value)
            case "Concat":
                yield from self._joined(node, value)
            case op if op in MOVES:
                yield from self.moved(node, value, self.of(first_input(node)))

    def _added(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        shape = sizes(value)
        if shape is None:
            return
        for number, source in enumerate(given(node)):
            sign = -1.0 if number and node.op_type == "Sub" else 1.0
            for offset in self.of(source):
                if offset.index.ndim <= len(shape):
                    missing = (1,) * (len(shape) - offset.index.ndim)
                    yield offset.on(value, offset.index.reshape(missing + offset.index.shape), sign)

    def _mapped(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        shape = sizes(value)
        if shape is None:
            return
        axis = len(shape) - 1 if node.op_type in LAST_AXIS else 1
        spread = [1] * len(shape)
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            beta = float(attribute(node, "beta", 1.0))
            for offset in self.of(node.inputs[2]):
                if offset.index.size == offset.index.shape[-1]:
                    spread[axis] = offset.index.size
                    yield offset.on(value, offset.index.reshape(spread), beta)
        elif node.op_type in {"Gemm", "MatMul", "Conv"} and (units := shape[axis]) is not None:
            spread[axis] = units
            yield Offset(None, np.arange(units).reshape(spread), path=(value,))

    def _joined(self, node: ir.Node, value: ir.Value) -> Iterator[Offset]:
        """One part of a joined tensor is offset, the others are not."""
        axis = int(attribute(node, "axis"))
        shapes = [sizes(source) for source in given(node)]
        lengths = [0 if shape is None else shape[axis] or 0 for shape in shapes]
        if not all(lengths):
            return
        for number, source in enumerate(given(node)):
            for offset in self.of(source):
                whole = [*offset.index.shape]
                whole[axis] = lengths[number]
                margins = [(0, 0)] * len(whole)
                margins[axis] = (sum(lengths[:number]), sum(lengths[number + 1 :]))
                inner = np.broadcast_to(offset.index, whole)
                yield offset.on(value, np.pad(inner, margins, constant_values=NOWHERE))
