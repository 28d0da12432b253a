"""Biases of gates made into inputs with a default, so that a caller may close, open or shift a gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir

from export.gates.element_moves import shape_of
from export.gates.gate_names import rename
from export.gates.graph_view import GraphView
from export.gates.logits import CHANNEL_OPS, BiasTerm, Logit, LogitTracer
from service.artifact.manifest import Lever

# what takes a part of a value, for gates and other things that are computed as one
SLICING_OPS = frozenset({"Slice", "Split", "Gather", "Shape"})
# a gate whose bias lies in more pieces than this is given another
MAX_BIAS_PIECES = 4


class LeverFactory:
    """Offers the levers of one graph."""

    def __init__(self, graph: ir.Graph, flow: GraphView, logits: LogitTracer) -> None:
        self._graph = graph
        self._flow = flow
        self._logits = logits
        self._given: dict[ir.Node, ir.Value] = {}
        self._added: dict[ir.Value, ir.Value] = {}

    def offer(
        self, gates: Sequence[ir.Value], beside: Iterable[ir.Value], *, sign: int, name: str
    ) -> tuple[Lever, ...]:
        """The levers of one gate, given at all of its times; `beside` are the other gates of its layer.

        A bias that offsets anything but these gates is let be. A new bias, of zeros, is called `name`.
        """
        logits = [self._logits.of(gate) for gate in gates]
        near = {value for gate in (*gates, *beside) for value in self._way(gate)}
        mine = [one for one in logits[0].offsets if _is_usable(one, logits[0]) and self._own(one, near)]
        # onnxruntime plans these by their weights: nets whose biases may change took 1.4 times as long
        ready = [one for one in mine if one.maker is None or one.maker.op_type not in CHANNEL_OPS]
        return (
            self._take(ready, sign)
            or self._give(logits, ready, sign, name)
            or self._add(gates, logits, sign, name)
            or self._take(mine, sign)
        )

    def _way(self, gate: ir.Value) -> set[ir.Value]:
        """The values between the biases of a gate and the gate, and itself."""
        logit = self._logits.of(gate)
        way = {gate, *logit.inside, *(value for offset in logit.offsets for value in offset.path)}
        return {self._flow.first(value) for value in way}

    def _own(self, offset: BiasTerm, near: set[ir.Value]) -> bool:
        """Whether a bias has no part in anything but these gates."""
        if offset.tensor is not None and not (
            offset.tensor.is_initializer() and all(self._near(user, near) for user, _ in offset.tensor.uses())
        ):
            return False
        return all(
            self._near(user, near) or user.op_type in SLICING_OPS
            for value in offset.path[:-1]
            for user, _ in value.uses()
        )

    def _near(self, user: ir.Node, near: set[ir.Value]) -> bool:
        return any(self._flow.first(value) in near for value in user.outputs)

    def _take(self, offsets: Iterable[BiasTerm], sign: int) -> tuple[Lever, ...]:
        """The first bias that there is."""
        for offset in offsets:
            if offset.tensor is not None:
                return self._levers(offset.tensor, offset, sign)
        return ()

    def _give(
        self, logits: Sequence[Logit], ready: Sequence[BiasTerm], sign: int, name: str
    ) -> tuple[Lever, ...]:
        """A bias for a Gemm that has none, at all times of the gate: it costs no operator."""
        for number, offset in enumerate(logits[0].offsets):
            makers = [_gemm_without_bias(logit, number) for logit in logits]
            maker = makers[0]
            if offset not in ready or maker is None or not all(makers):
                continue
            if maker not in self._given:
                width = (shape_of(maker.outputs[0]) or [])[-1]
                bias = self._zeros(name, (width or 0,), maker.outputs[0])
                for one in filter(None, makers):
                    one.resize_inputs(3)
                    one.replace_input_with(2, bias)
                    self._given[one] = bias
            return self._levers(self._given[maker], offset, sign)
        return ()

    def _add(
        self, gates: Sequence[ir.Value], logits: Sequence[Logit], sign: int, name: str
    ) -> tuple[Lever, ...]:
        """An addition of zeros to what a gate squashes, at all of its times."""
        added = logits[0].added
        if (
            added is None
            or not _is_usable(added, logits[0])
            or any(logit.squashed is None for logit in logits)
        ):
            return ()
        source = added.path[0]
        if source not in self._added:
            bias = self._zeros(name, logits[0].room, source)
            for number, (gate, logit) in enumerate(zip(gates, logits, strict=True)):
                if logit.squashed is not None:
                    label = name.removesuffix("bias") + (f"logit.{number}" if number else "logit")
                    self._put(bias, logit.squashed, {gate, *logit.inside}, label)
        return self._levers(self._added[source], added, sign)

    def _put(self, bias: ir.Value, squashed: ir.Value, inside: set[ir.Value], label: str) -> None:
        """Add a bias to what is squashed, for the gate alone and not for others who use it."""
        users = [user for user, _ in squashed.uses() if inside.intersection(user.outputs)]
        node = ir.node("Add", [squashed, bias])
        (made,) = node.outputs
        made.type, made.shape = squashed.type, squashed.shape
        rename(made, label)
        self._graph.insert_before(users[0], node)
        for user in users:
            for place, value in enumerate(user.inputs):
                if value is squashed:
                    user.replace_input_with(place, made)
        self._added[squashed] = bias

    def _levers(self, tensor: ir.Value, offset: BiasTerm, sign: int) -> tuple[Lever, ...]:
        if tensor not in self._graph.inputs:
            self._graph.inputs.append(tensor)
        way: Literal[1, -1] = 1 if sign * offset.scale > 0 else -1
        return tuple(Lever(tensor=str(tensor.name), start=a, stop=b, sign=way) for a, b in offset.runs)

    def _zeros(self, name: str, shape: tuple[int, ...], like: ir.Value) -> ir.Value:
        dtype = like.dtype or ir.DataType.FLOAT
        data = ir.tensor(np.zeros(shape, dtype=dtype.numpy()), name=name)
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=data)
        self._graph.register_initializer(value)
        return value


def _gemm_without_bias(logit: Logit, number: int) -> ir.Node | None:
    """The Gemm that could offset a gate and does not."""
    offset = logit.offsets[number] if number < len(logit.offsets) else None
    maker = None if offset is None or offset.tensor is not None else offset.maker
    return maker if maker is not None and maker.op_type == "Gemm" else None


def _is_usable(offset: BiasTerm, logit: Logit) -> bool:
    """Whether a bias can be shifted for each unit by itself, by as much as what is squashed shall be."""
    units = offset.index.shape[logit.unit_axis] if offset.index.ndim else 1
    whole = max((one.index.shape[logit.unit_axis] for one in logit.offsets), default=1)
    return abs(offset.scale) == 1.0 and units == whole and len(offset.runs) <= MAX_BIAS_PIECES
