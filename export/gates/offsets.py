"""The biases that are added to a value on its way, and which of their elements goes to which of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from export.gates.constants import array, attribute, first_input, given
from export.gates.element_moves import MOVES, Indices, moved, sizes
from export.gates.sigmoids import multiple

# operators of data and weights
MAPS = frozenset({"Gemm", "MatMul", "Conv", "BatchNormalization", "LayerNormalization"})
# sums of sums deeper than this are no logit of a gate
DEEPEST = 64
# an element of a joined tensor that this bias does not offset
NOWHERE = -1
# maps from channels to channels, the second axis; others map from the last axis to the last
CHANNELS = frozenset({"Conv", "BatchNormalization"})


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


def offsets(value: ir.Value, depth: int = 0) -> Iterator[Offset]:
    """The biases that a value is the sum of, beside what is not a bias."""
    node = value.producer()
    data = array(value)
    if data is not None:
        yield Offset(value, np.arange(data.size).reshape(data.shape))
    elif node is not None and depth < DEEPEST and (not depth or own(value, node)):
        yield from _through(node, value, depth + 1)


def own(value: ir.Value, node: ir.Node) -> bool:
    """Whether a value belongs to one logit: if it is used for more, a map made it or it is cut up."""
    uses = value.uses()
    return len(uses) < 2 or node.op_type in MAPS | MOVES or all(user.op_type in MOVES for user, _ in uses)


def rearranged(node: ir.Node, value: ir.Value, offsets: Iterable[Offset]) -> Iterator[Offset]:
    """What offsets a value whose elements were moved about, given what offset them before."""
    for offset in offsets:
        index = moved(node, value, offset.index)
        if index is not None and (index != NOWHERE).any():
            yield offset.on(value, index)


def _through(node: ir.Node, value: ir.Value, depth: int) -> Iterator[Offset]:
    match node.op_type:
        case "Add" | "Sum" | "Sub":
            yield from _added(node, value, depth)
        case "Neg" | "Mul" | "Div":
            if (found := multiple(node)) is not None:
                for offset in offsets(found[0], depth):
                    yield offset.on(value, factor=found[1])
        case "Gemm" | "MatMul" | "Conv" | "BatchNormalization" | "LayerNormalization":
            yield from _mapped(node, value, depth)
        case "Concat":
            yield from _joined(node, value, depth)
        case op if op in MOVES:
            yield from rearranged(node, value, offsets(first_input(node), depth))


def _added(node: ir.Node, value: ir.Value, depth: int) -> Iterator[Offset]:
    shape = sizes(value)
    if shape is None:
        return
    for number, source in enumerate(given(node)):
        sign = -1.0 if number and node.op_type == "Sub" else 1.0
        for offset in offsets(source, depth):
            if offset.index.ndim <= len(shape):
                missing = (1,) * (len(shape) - offset.index.ndim)
                yield offset.on(value, offset.index.reshape(missing + offset.index.shape), sign)


def _mapped(node: ir.Node, value: ir.Value, depth: int) -> Iterator[Offset]:
    shape = sizes(value)
    if shape is None:
        return
    axis = 1 if node.op_type in CHANNELS else len(shape) - 1
    spread = [1] * len(shape)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        beta = float(attribute(node, "beta", 1.0))
        for offset in offsets(node.inputs[2], depth):
            if offset.index.size == max(offset.index.shape, default=1):
                spread[axis] = offset.index.size
                yield offset.on(value, offset.index.reshape(spread), beta)
    elif node.op_type in {"Gemm", "MatMul", "Conv"} and (units := shape[axis]) is not None:
        spread[axis] = units
        yield Offset(None, np.arange(units).reshape(spread), path=(value,))


def _joined(node: ir.Node, value: ir.Value, depth: int) -> Iterator[Offset]:
    """One part of a joined tensor is offset, the others are not."""
    axis = int(attribute(node, "axis"))
    shapes = [sizes(source) for source in given(node)]
    lengths = [0 if shape is None else shape[axis] or 0 for shape in shapes]
    if not all(lengths):
        return
    for number, source in enumerate(given(node)):
        for offset in offsets(source, depth):
            whole = [*offset.index.shape]
            whole[axis] = lengths[number]
            margins = [(0, 0)] * len(whole)
            margins[axis] = (sum(lengths[:number]), sum(lengths[number + 1 :]))
            inner = np.broadcast_to(offset.index, whole)
            yield offset.on(value, np.pad(inner, margins, constant_values=NOWHERE))
