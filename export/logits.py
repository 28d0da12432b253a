"""What a gate is the sigmoid of: its biases, its weights, and the axis of its units."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from export.constants import Array, array, first_input, given
from export.flow import Flow
from export.movement import MOVES
from export.offsets import NOWHERE, Offset, Offsets
from export.ranges import Ranges
from export.squash import squash

# operators whose first input is data, and whose others are weights
MAPS = frozenset({"Gemm", "MatMul", "Conv", "BatchNormalization", "LayerNormalization"})
# operators each of whose inputs has a part in a logit
MIXES = frozenset({"Add", "Sum", "Sub", "Neg", "Mul", "Div", "Concat"})


@dataclass(frozen=True)
class Logit:
    """What a gate squashes. `squashed` is the value itself, None where it is not known."""

    squashed: ir.Value | None
    offsets: tuple[Offset, ...]
    weights: frozenset[ir.Value]

    @property
    def biases(self) -> list[Offset]:
        """The offsets that there are, not those that there could be."""
        return [offset for offset in self.offsets if offset.tensor is not None]

    @property
    def bias(self) -> Array | None:
        """The sum of the biases, in the gate's rank; None where there is none."""
        parts = []
        for offset in self.biases:
            data = array(offset.tensor)
            if data is not None:
                numbers = data.astype(np.float64).reshape(-1)[offset.index]
                parts.append(np.where(offset.index == NOWHERE, 0.0, offset.scale * numbers))
        return sum(parts[1:], parts[0]) if parts else None

    @property
    def unit_axis(self) -> int:
        """The axis of the gate along which its units lie, from the end."""
        for offset in self.offsets:
            if long := [axis for axis, size in enumerate(offset.index.shape) if size > 1]:
                return long[-1] - offset.index.ndim
        return -1

    @property
    def identity(self) -> Hashable:
        """Equal for gates of the same weights, one gate at several times; None for no weights."""
        names = frozenset(str(weight.name) for weight in self.weights)
        runs = frozenset(run for offset in self.offsets for run in offset.runs)
        return (tuple(sorted(names)), tuple(sorted(runs))) if names else None


class Logits:
    """Traces the gates of a graph back to their weights and biases."""

    def __init__(self, flow: Flow, ranges: Ranges) -> None:
        self._flow = flow
        self._ranges = ranges
        self._offsets = Offsets(ranges)
        self._known: dict[ir.Value, Logit] = {}

    def of(self, gate: ir.Value) -> Logit:
        """What a gate is the sigmoid of, as far as it can be told."""
        gate = self._flow.first(gate)
        if gate not in self._known:
            found = squash(_unmoved(gate))
            squashed = None if found is None else found[0]
            weights = frozenset(() if squashed is None else self._weights(squashed))
            self._known[gate] = Logit(squashed, tuple(self._of_gate(gate)), weights)
        return self._known[gate]

    def softmax(self, gate: ir.Value) -> ir.Node | None:
        """The softmax that a gate is a part of."""
        node = _unmoved(gate).producer()
        return node if node is not None and node.op_type == "Softmax" else None

    def _of_gate(self, value: ir.Value) -> Iterator[Offset]:
        """The offsets of a logit in the shape of its gate: what squashes it moves no element."""
        node = value.producer()
        if (found := squash(value)) is not None:
            for offset in self._offsets.of(found[0]):
                yield offset.on(value, factor=found[1])
        elif node is not None and node.op_type in MOVES:
            yield from self._offsets.moved(node, value, self._of_gate(first_input(node)))

    def _weights(self, value: ir.Value) -> Iterator[ir.Value]:
        """The weights on the way from a logit back to the data."""
        node = value.producer()
        if not self._ranges.data(value):
            yield from _initializers(value)
        elif node is not None and node.op_type in MOVES:
            yield from self._weights(first_input(node))
        elif node is not None and node.op_type in MAPS:
            for source in given(node)[1:]:
                if not self._ranges.data(source):
                    yield from _initializers(source)
        elif node is not None and node.op_type in MIXES:
            for source in given(node):
                yield from self._weights(source)


def _initializers(value: ir.Value) -> Iterator[ir.Value]:
    """The weights that a value is made of; a literal number is none, as many gates share it."""
    node = value.producer()
    data = array(value)
    if data is not None and data.size > 1 and data.dtype.kind not in "iub":
        yield value
    elif node is not None:
        for source in given(node):
            yield from _initializers(source)


def _unmoved(value: ir.Value) -> ir.Value:
    while (node := value.producer()) is not None and node.op_type in MOVES:
        value = first_input(node)
    return value
