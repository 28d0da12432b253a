"""What a gate is the sigmoid of: its biases, its weights, and the axis of its units."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from export.gates.element_moves import MOVE_OPS, Indices, move_indices, shape_of
from export.gates.graph_view import Array, GraphView, attribute, constant_array, first_input, present_inputs
from export.gates.sigmoids import intermediate_values, match_scaling, match_sigmoid
from export.gates.value_ranges import ValueRanges

# operators of data and weights
AFFINE_OPS = frozenset({"Gemm", "MatMul", "Conv", "BatchNormalization", "LayerNormalization"})
# sums of sums deeper than this are no logit of a gate
MAX_LOGIT_DEPTH = 64
# an element of a joined tensor that this bias does not offset
NO_BIAS = -1
# maps from channels to channels, the second axis; others map from the last axis to the last
CHANNEL_OPS = frozenset({"Conv", "BatchNormalization"})


@dataclass(frozen=True, eq=False)
class BiasTerm:
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
        used = np.unique(self.index[self.index != NO_BIAS])
        ends = np.flatnonzero(np.diff(used) != 1)
        return [(int(run[0]), int(run[-1]) + 1) for run in np.split(used, ends + 1) if run.size]

    def on(self, value: ir.Value, index: Indices | None = None, factor: float = 1.0) -> BiasTerm:
        """The same bias as it offsets a value made of this one."""
        where = self.index if index is None else index
        return BiasTerm(self.tensor, where, self.scale * factor, (*self.path, value))


def find_bias_terms(value: ir.Value, depth: int = 0) -> Iterator[BiasTerm]:
    """The biases that a value is the sum of, beside what is not a bias."""
    node = value.producer()
    data = constant_array(value)
    if data is not None:
        yield BiasTerm(value, np.arange(data.size).reshape(data.shape))
    elif node is not None and depth < MAX_LOGIT_DEPTH and (not depth or belongs_to_one_logit(value, node)):
        yield from _through(node, value, depth + 1)


def belongs_to_one_logit(value: ir.Value, node: ir.Node) -> bool:
    """Whether a value belongs to one logit: if it is used for more, a map made it or it is cut up."""
    uses = value.uses()
    return (
        len(uses) < 2
        or node.op_type in AFFINE_OPS | MOVE_OPS
        or all(user.op_type in MOVE_OPS for user, _ in uses)
    )


def move_bias_terms(
    node: ir.Node, value: ir.Value, find_bias_terms: Iterable[BiasTerm]
) -> Iterator[BiasTerm]:
    """What offsets a value whose elements were moved about, given what offset them before."""
    for offset in find_bias_terms:
        index = move_indices(node, value, offset.index)
        if index is not None and (index != NO_BIAS).any():
            yield offset.on(value, index)


def _through(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    match node.op_type:
        case "Add" | "Sum" | "Sub":
            yield from _added(node, value, depth)
        case "Neg" | "Mul" | "Div":
            if (found := match_scaling(node)) is not None:
                for offset in find_bias_terms(found[0], depth):
                    yield offset.on(value, factor=found[1])
        case "Gemm" | "MatMul" | "Conv" | "BatchNormalization" | "LayerNormalization":
            yield from _mapped(node, value, depth)
        case "Concat":
            yield from _joined(node, value, depth)
        case op if op in MOVE_OPS:
            yield from move_bias_terms(node, value, find_bias_terms(first_input(node), depth))


def _added(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    shape = shape_of(value)
    if shape is None:
        return
    for number, source in enumerate(present_inputs(node)):
        sign = -1.0 if number and node.op_type == "Sub" else 1.0
        for offset in find_bias_terms(source, depth):
            if offset.index.ndim <= len(shape):
                missing = (1,) * (len(shape) - offset.index.ndim)
                yield offset.on(value, offset.index.reshape(missing + offset.index.shape), sign)


def _mapped(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    shape = shape_of(value)
    if shape is None:
        return
    axis = 1 if node.op_type in CHANNEL_OPS else len(shape) - 1
    spread = [1] * len(shape)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        beta = float(attribute(node, "beta", 1.0))
        for offset in find_bias_terms(node.inputs[2], depth):
            if offset.index.size == max(offset.index.shape, default=1):
                spread[axis] = offset.index.size
                yield offset.on(value, offset.index.reshape(spread), beta)
    elif node.op_type in {"Gemm", "MatMul", "Conv"} and (units := shape[axis]) is not None:
        spread[axis] = units
        yield BiasTerm(None, np.arange(units).reshape(spread), path=(value,))


def _joined(node: ir.Node, value: ir.Value, depth: int) -> Iterator[BiasTerm]:
    """One part of a joined tensor is offset, the others are not."""
    axis = int(attribute(node, "axis"))
    shapes = [shape_of(source) for source in present_inputs(node)]
    lengths = [0 if shape is None else shape[axis] or 0 for shape in shapes]
    if not all(lengths):
        return
    for number, source in enumerate(present_inputs(node)):
        for offset in find_bias_terms(source, depth):
            whole = [*offset.index.shape]
            whole[axis] = lengths[number]
            margins = [(0, 0)] * len(whole)
            margins[axis] = (sum(lengths[:number]), sum(lengths[number + 1 :]))
            inner = np.broadcast_to(offset.index, whole)
            yield offset.on(value, np.pad(inner, margins, constant_values=NO_BIAS))


# operators each of whose inputs has a part in a logit
MIXING_OPS = frozenset({"Add", "Sum", "Sub", "Neg", "Mul", "Div", "Concat"})


@dataclass(frozen=True)
class Logit:
    """What a gate squashes. `squashed` is the value itself, None where it is not known.

    `inside` are the values that come after it and before the gate. `added` is how a bias of the shape
    `room`, added to what is squashed, would offset the gate; None where no such shape can be told.
    """

    squashed: ir.Value | None = None
    inside: frozenset[ir.Value] = frozenset()
    offsets: tuple[BiasTerm, ...] = ()
    added: BiasTerm | None = None
    room: tuple[int, ...] = ()
    weights: frozenset[ir.Value] = frozenset()

    @property
    def biases(self) -> list[BiasTerm]:
        """The offsets that there are, not those that there could be."""
        return [offset for offset in self.offsets if offset.tensor is not None]

    @property
    def bias(self) -> Array | None:
        """The sum of the biases, in the gate's rank; None where there is none."""
        parts = []
        for offset in self.biases:
            data = constant_array(offset.tensor)
            if data is not None:
                numbers = data.astype(np.float64).reshape(-1)[offset.index]
                parts.append(np.where(offset.index == NO_BIAS, 0.0, offset.scale * numbers))
        return sum(parts[1:], parts[0]) if parts else None

    @property
    def unit_axis(self) -> int:
        """The axis of the gate along which its units lie, from the end."""
        return _unit_axis(self.offsets)

    @property
    def identity(self) -> Hashable:
        """Equal for gates of the same weights, one gate at several times; None for no weights."""
        names = frozenset(str(weight.name) for weight in self.weights)
        runs = frozenset(run for offset in self.offsets for run in offset.runs)
        return (tuple(sorted(names)), tuple(sorted(runs))) if names else None


class LogitTracer:
    """Traces the gates of a graph back to their weights and biases."""

    def __init__(self, flow: GraphView, ranges: ValueRanges) -> None:
        self._flow = flow
        self._ranges = ranges
        self._known: dict[ir.Value, Logit] = {}

    def of(self, gate: ir.Value) -> Logit:
        """What a gate is the sigmoid of, as far as it can be told."""
        gate = self._flow.first(gate)
        if gate not in self._known:
            found = match_sigmoid(_unmoved(gate))
            self._known[gate] = Logit() if found is None else self._traced(gate, found[0])
        return self._known[gate]

    def softmax(self, gate: ir.Value) -> ir.Node | None:
        """The softmax that a gate is a part of."""
        node = _unmoved(gate).producer()
        return node if node is not None and node.op_type == "Softmax" else None

    def _traced(self, gate: ir.Value, squashed: ir.Value) -> Logit:
        before = list(find_bias_terms(squashed))
        room = _room(squashed, before)
        added = None if room is None else BiasTerm(None, _spread(room, squashed), path=(squashed,))
        return Logit(
            squashed=squashed,
            inside=frozenset(intermediate_values(gate, squashed)),
            offsets=tuple(_in_gate(gate, before)),
            added=None if added is None else next(iter(_in_gate(gate, [added])), None),
            room=room or (),
            weights=frozenset(self._weights(squashed)),
        )

    def _weights(self, value: ir.Value, depth: int = 0) -> Iterator[ir.Value]:
        """The weights on the way from a logit back to the data."""
        node = value.producer()
        if node is None or node.op_type == "Constant":
            yield from _initializers(value)
        elif depth > MAX_LOGIT_DEPTH or (depth and not belongs_to_one_logit(value, node)):
            return
        elif node.op_type in MOVE_OPS:
            yield from self._weights(first_input(node), depth + 1)
        elif node.op_type in AFFINE_OPS:
            for number, source in enumerate(present_inputs(node)):
                # what stands where data does is a state that does not depend on any yet
                if not self._ranges.data(source) and (number or self._ranges.data(present_inputs(node)[1])):
                    yield from _initializers(source)
        elif node.op_type in MIXING_OPS:
            for source in present_inputs(node):
                yield from self._weights(source, depth + 1)


def _in_gate(gate: ir.Value, before: Iterable[BiasTerm]) -> list[BiasTerm]:
    """The offsets of what is squashed as those of the gate: squashing moves no element."""
    moves: list[tuple[ir.Node, ir.Value]] = []
    value = gate
    while (found := match_sigmoid(value)) is None and (node := value.producer()) is not None:
        moves.append((node, value))
        value = first_input(node)
    made = [] if found is None else [offset.on(value, factor=found[1]) for offset in before]
    for node, output in reversed(moves):
        made = list(move_bias_terms(node, output, made))
    return made


def _room(value: ir.Value, before: list[BiasTerm]) -> tuple[int, ...] | None:
    """The shape of a bias for the units of a value, which lie where those of another offset do."""
    shape = shape_of(value)
    if shape is None or not before:
        return None
    axis = _unit_axis(before)
    units = shape[axis]
    return None if units is None else (units,) + (1,) * (-1 - axis)


def _spread(room: tuple[int, ...], value: ir.Value) -> Indices:
    """The elements of a bias in the rank of a value."""
    rank = len(shape_of(value) or room)
    return np.arange(room[0]).reshape((1,) * (rank - len(room)) + room)


def _unit_axis(found: Iterable[BiasTerm]) -> int:
    """The axis of a value along which its biases change, from the end: that of its units."""
    axis = -1
    for offset in found:
        if long := [at for at, size in enumerate(offset.index.shape) if size > 1]:
            return long[-1] - offset.index.ndim
        if offset.maker is not None and offset.maker.op_type in CHANNEL_OPS:
            # of one unit, which no bias shows
            axis = 1 - offset.index.ndim
    return axis


def _initializers(value: ir.Value) -> Iterator[ir.Value]:
    """The weights that a value is made of; a literal number is none, as many gates share it."""
    waiting = [value]
    seen: set[ir.Value] = set()
    while waiting:
        one = waiting.pop()
        node = one.producer()
        data = constant_array(one)
        if data is not None and data.size > 1 and data.dtype.kind not in "iub":
            yield one
        elif node is not None and one not in seen:
            seen.add(one)
            waiting.extend(present_inputs(node))


def _unmoved(value: ir.Value) -> ir.Value:
    while (node := value.producer()) is not None and node.op_type in MOVE_OPS:
        value = first_input(node)
    return value
