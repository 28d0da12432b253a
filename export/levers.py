"""Biases of gates made into inputs with a default, so that a caller may close, open or shift a gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir

from export.constants import first_input
from export.flow import Flow
from export.logits import Logit, Logits
from export.movement import sizes
from export.naming import call
from export.offsets import Offset
from export.squash import SQUASHES
from service.manifest import Lever

# what takes a part of a value, for gates and other things that are computed as one
PARTS = frozenset({"Slice", "Split", "Gather", "Shape"})
# a gate whose bias lies in more pieces than this is given another
PIECES = 4
# maps that can be given a bias without another operator
ROOM_FOR_BIAS = frozenset({"Gemm", "Conv"})


class Levers:
    """Offers the levers of one graph."""

    def __init__(self, graph: ir.Graph, flow: Flow, logits: Logits) -> None:
        self._graph = graph
        self._flow = flow
        self._logits = logits
        self._given: dict[ir.Node, ir.Value] = {}

    def offer(
        self, gates: Sequence[ir.Value], beside: Iterable[ir.Value], *, sign: int, name: str
    ) -> tuple[Lever, ...]:
        """The levers of one gate, given at all of its times; `beside` are the other gates of its layer.

        A bias that offsets anything but these gates is let be. A new bias, of zeros, is called `name`.
        """
        logits = [self._logits.of(gate) for gate in gates]
        near = {value for gate in (*gates, *beside) for value in self._way(gate)}
        for offset in logits[0].biases:
            if offset.tensor is not None and _fits(offset, logits[0]) and self._own(offset, near):
                return self._levers(offset.tensor, offset, sign)
        return self._give(logits, near, sign, name) or self._insert(gates, logits, sign, name)

    def _way(self, gate: ir.Value) -> set[ir.Value]:
        """The values between the biases of a gate and the gate."""
        offsets = self._logits.of(gate).offsets
        return {self._flow.first(value) for offset in offsets for value in offset.path}

    def _own(self, offset: Offset, near: set[ir.Value]) -> bool:
        """Whether a bias has no part in anything but these gates."""
        if offset.tensor is not None and not (
            offset.tensor.is_initializer() and all(self._near(user, near) for user, _ in offset.tensor.uses())
        ):
            return False
        return all(
            self._near(user, near) or user.op_type in PARTS
            for value in offset.path[:-1]
            for user, _ in value.uses()
        )

    def _near(self, user: ir.Node, near: set[ir.Value]) -> bool:
        return any(self._flow.first(value) in near for value in user.outputs)

    def _levers(self, tensor: ir.Value, offset: Offset, sign: int) -> tuple[Lever, ...]:
        if tensor not in self._graph.inputs:
            self._graph.inputs.append(tensor)
        way: Literal[1, -1] = 1 if sign * offset.scale > 0 else -1
        return tuple(Lever(tensor=str(tensor.name), start=a, stop=b, sign=way) for a, b in offset.runs)

    def _give(self, logits: Sequence[Logit], near: set[ir.Value], sign: int, name: str) -> tuple[Lever, ...]:
        """A bias for a map that has none, at all times of the gate."""
        for number, offset in enumerate(logits[0].offsets):
            maker = offset.maker
            if maker is None or offset.tensor is not None or maker.op_type not in ROOM_FOR_BIAS:
                continue
            if not (_fits(offset, logits[0]) and self._own(offset, near)):
                continue
            if maker not in self._given:
                makers = [logit.offsets[number].maker for logit in logits]
                units = (sizes(maker.outputs[0]) or [])[1]
                bias = self._zeros(name, (units or 0,), maker.outputs[0])
                for one in filter(None, makers):
                    one.resize_inputs(3)
                    one.replace_input_with(2, bias)
                    self._given[one] = bias
            return self._levers(self._given[maker], offset, sign)
        return ()

    def _insert(
        self, gates: Sequence[ir.Value], logits: Sequence[Logit], sign: int, name: str
    ) -> tuple[Lever, ...]:
        """An addition of zeros to what a gate squashes, at all of its times."""
        axis = logits[0].unit_axis
        shape = sizes(gates[0])
        units = None if shape is None else shape[axis]
        ends = [_end(gate, logit) for gate, logit in zip(gates, logits, strict=True)]
        if units is None or not all(ends):
            return ()
        spread = (units,) + (1,) * (-1 - axis)
        bias = self._zeros(name, spread, gates[0])
        for number, end in enumerate(filter(None, ends)):
            logit = first_input(end)
            node = ir.node("Add", [logit, bias])
            (made,) = node.outputs
            made.type, made.shape = logit.type, logit.shape
            call(made, name.removesuffix("bias") + (f"logit.{number}" if number else "logit"))
            self._graph.insert_before(end, node)
            end.replace_input_with(0, made)
        return self._levers(bias, Offset(bias, np.arange(units).reshape(spread)), sign)

    def _zeros(self, name: str, shape: tuple[int, ...], like: ir.Value) -> ir.Value:
        dtype = like.dtype or ir.DataType.FLOAT
        data = ir.tensor(np.zeros(shape, dtype=dtype.numpy()), name=name)
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=data)
        self._graph.register_initializer(value)
        return value


def _fits(offset: Offset, logit: Logit) -> bool:
    """Whether a bias can be shifted for each unit by itself, by as much as what is squashed shall be."""
    units = offset.index.shape[logit.unit_axis] if offset.index.ndim >= -logit.unit_axis else 1
    whole = max((one.index.shape[logit.unit_axis] for one in logit.offsets), default=1)
    return abs(offset.scale) == 1.0 and units == whole and len(offset.runs) <= PIECES


def _end(gate: ir.Value, logit: Logit) -> ir.Node | None:
    """The sigmoid that makes a gate and nothing else."""
    node = gate.producer()
    if node is None or node.op_type not in SQUASHES - {"Softmax"} or first_input(node) is not logit.squashed:
        return None
    return node
