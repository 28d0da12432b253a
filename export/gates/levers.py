"""Adds levers: gate biases as graph inputs with a default, so that a caller can close, open or shift a gate.

An ONNX graph input with an initializer of the same name is a default that callers may override. A bias of
-1e4 closes a gate and +1e4 opens it, without any operator more in the graph. A lever must move its own gate
only, so a bias is used as it is if nothing else depends on its elements; otherwise a bias of zeros is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from turnpike.export.gates.algebra.logits import CHANNEL_OPS, NO_BIAS, BiasTerm, Logit, LogitTracer
from turnpike.export.gates.gate_names import rename
from turnpike.export.gates.graph.element_moves import shape_of
from turnpike.export.gates.graph.view import GraphView
from turnpike.service.artifact.manifest import Lever

# operators that take a part of a value: a fused map for H and the gate goes through them, and H does not
# depend on the elements of the gate
SLICING_OPS = frozenset({"Slice", "Split", "Gather", "Shape"})
# a bias whose elements for one gate are in more ranges than this is not used: each range is one lever
MAX_BIAS_RANGES = 4


class LeverFactory:
    """Makes the levers of one graph."""

    def __init__(self, graph: ir.Graph, view: GraphView, logits: LogitTracer) -> None:
        self._graph = graph
        self._view = view
        self._logits = logits
        self._bias_of_gemm: dict[ir.Node, ir.Value] = {}
        self._bias_of_logit: dict[ir.Value, ir.Value] = {}

    def create(
        self, gates: Sequence[ir.Value], neighbours: Iterable[ir.Value], *, sign: int, name: str
    ) -> tuple[Lever, ...]:
        """The levers of one gate.

        Args:
            gates: The gate at each of its times; all share the lever.
            neighbours: The other gates of its layer, which may share its bias tensor.
            sign: 1 if a larger bias is to open the transform gate, -1 if it closes it.
            name: Name of the bias, should a new one be needed.
        """
        for gate in gates:
            self._merge_repeats(gate)
        logits = [self._logits.logit(gate) for gate in gates]
        layer_values = {value for gate in (*gates, *neighbours) for value in self._values_on_the_way(gate)}
        usable = [
            term
            for term in logits[0].bias_terms
            if _is_usable(term, logits[0]) and self._is_exclusive(term, layer_values)
        ]
        # Convolutions last: onnxruntime chooses their layout by their weights. Networks with overridable
        # convolution biases took 1.4 times as long.
        not_convolution = [
            term for term in usable if term.added_by is None or term.added_by.op_type not in CHANNEL_OPS
        ]
        return (
            self._use_existing_bias(not_convolution, sign)
            or self._add_bias_to_gemm(logits, not_convolution, sign, name)
            or self._add_bias_to_logit(gates, logits, sign, name)
            or self._use_existing_bias(usable, sign)
        )

    def _merge_repeats(self, gate: ir.Value) -> None:
        """Let all nodes read the first computation of a gate, which a new bias moves."""
        for repeat in self._view.repeats(gate):
            for user, number in tuple(repeat.uses()):
                user.replace_input_with(number, gate)

    def _values_on_the_way(self, gate: ir.Value) -> set[ir.Value]:
        """The values between the biases of a gate and the gate, and the gate itself."""
        logit = self._logits.logit(gate)
        values = {gate, *logit.between, *(value for term in logit.bias_terms for value in term.path)}
        return {self._view.canonical(value) for value in values}

    def _is_exclusive(self, term: BiasTerm, layer_values: set[ir.Value]) -> bool:
        """Whether a bias has no effect on anything but the gates of its layer."""
        if term.tensor is not None and not (
            term.tensor.is_initializer()
            and all(self._computes_any(user, layer_values) for user, _ in term.tensor.uses())
        ):
            return False
        return all(
            self._computes_any(user, layer_values) or user.op_type in SLICING_OPS
            for value in term.path[:-1]
            for user, _ in value.uses()
        )

    def _computes_any(self, node: ir.Node, values: set[ir.Value]) -> bool:
        return any(self._view.canonical(output) in values for output in node.outputs)

    def _use_existing_bias(self, terms: Iterable[BiasTerm], sign: int) -> tuple[Lever, ...]:
        for term in terms:
            if term.tensor is not None:
                return self._levers(term.tensor, term, sign)
        return ()

    def _add_bias_to_gemm(
        self, logits: Sequence[Logit], usable: Sequence[BiasTerm], sign: int, name: str
    ) -> tuple[Lever, ...]:
        """Give the Gemm of the gate, at all of its times, the bias that it lacks: this adds no operator."""
        for number, term in enumerate(logits[0].bias_terms):
            gemms = [_gemm_without_bias(logit, number) for logit in logits]
            first_gemm = gemms[0]
            if term not in usable or first_gemm is None or not all(gemms):
                continue
            if first_gemm not in self._bias_of_gemm:
                units = (shape_of(first_gemm.outputs[0]) or [])[-1]
                bias = self._add_zeros(name, (units or 0,), first_gemm.outputs[0])
                for gemm in filter(None, gemms):
                    gemm.resize_inputs(3)
                    gemm.replace_input_with(2, bias)
                    self._bias_of_gemm[gemm] = bias
            return self._levers(self._bias_of_gemm[first_gemm], term, sign)
        return ()

    def _add_bias_to_logit(
        self, gates: Sequence[ir.Value], logits: Sequence[Logit], sign: int, name: str
    ) -> tuple[Lever, ...]:
        """Add zeros to the logit of the gate, at all of its times: this adds an operator for each."""
        term = logits[0].new_bias
        if (
            term is None
            or not _is_usable(term, logits[0], any_scale=True)
            or any(logit.value is None for logit in logits)
        ):
            return ()
        first_logit = term.path[0]
        if first_logit not in self._bias_of_logit:
            bias = self._add_zeros(name, logits[0].new_bias_shape, first_logit)
            for number, (gate, logit) in enumerate(zip(gates, logits, strict=True)):
                if logit.value is not None:
                    sum_name = name.removesuffix("bias") + (f"logit.{number}" if number else "logit")
                    addend = self._divided(bias, abs(term.scale), logit.value)
                    self._insert_addition(addend, logit.value, {gate, *logit.between}, sum_name)
                    self._bias_of_logit[logit.value] = bias
        return self._levers(self._bias_of_logit[first_logit], term, sign)

    def _insert_addition(
        self, addend: ir.Value, logit: ir.Value, gate_values: set[ir.Value], name: str
    ) -> None:
        """Add a value to a logit for the nodes that compute the gate, not for other users of the logit."""
        users = {user for user, _ in logit.uses() if gate_values.intersection(user.outputs)}
        if not users:
            # the same gate occurs twice: it reads the sum already
            return
        node = ir.node("Add", [logit, addend])
        (biased_logit,) = node.outputs
        biased_logit.type, biased_logit.shape = logit.type, logit.shape
        rename(biased_logit, name)
        self._graph.insert_before(min(users, key=self._view.positions.__getitem__), node)
        for user in users:
            for number, value in enumerate(user.inputs):
                if value is logit:
                    user.replace_input_with(number, biased_logit)

    def _divided(self, bias: ir.Value, divisor: float, logit: ir.Value) -> ir.Value:
        """A bias divided by a number, for a logit that is multiplied by it: sigmoid(2 x), for example."""
        if divisor == 1.0:
            return bias
        dtype = (bias.dtype or ir.DataType.FLOAT).numpy()
        constant = ir.node("Constant", [], {"value": ir.tensor(np.array(divisor, dtype))})
        node = ir.node("Div", [bias, constant.outputs[0]])
        producer = logit.producer()
        if producer is None:
            self._graph.insert_before(self._view.nodes[0], [constant, node])
        else:
            self._graph.insert_after(producer, [constant, node])
        return node.outputs[0]

    def _levers(self, bias: ir.Value, term: BiasTerm, sign: int) -> tuple[Lever, ...]:
        if bias not in self._graph.inputs:
            self._graph.inputs.append(bias)
        lever_sign: Literal[1, -1] = 1 if sign * term.scale > 0 else -1
        return tuple(
            Lever(tensor=str(bias.name), start=start, stop=stop, sign=lever_sign)
            for start, stop in term.ranges
        )

    def _add_zeros(self, name: str, shape: tuple[int, ...], like: ir.Value) -> ir.Value:
        """A new initializer of zeros with the dtype of another value."""
        dtype = like.dtype or ir.DataType.FLOAT
        data = ir.tensor(np.zeros(shape, dtype=dtype.numpy()), name=name)
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=data)
        self._graph.register_initializer(value)
        return value


def _gemm_without_bias(logit: Logit, number: int) -> ir.Node | None:
    """The Gemm behind a bias term that could have a bias and has none."""
    term = logit.bias_terms[number] if number < len(logit.bias_terms) else None
    node = None if term is None or term.tensor is not None else term.added_by
    return node if node is not None and node.op_type == "Gemm" else None


def _is_usable(term: BiasTerm, logit: Logit, *, any_scale: bool = False) -> bool:
    """Whether a bias can shift every unit separately, and the logit by the same amount or `any_scale`."""
    units = term.index.shape[logit.unit_axis] if term.index.ndim else 1
    all_units = max((other.index.shape[logit.unit_axis] for other in logit.bias_terms), default=1)
    if units != all_units or len(term.ranges) > MAX_BIAS_RANGES or (term.index == NO_BIAS).any():
        return False
    return any_scale or abs(term.scale) == 1.0


def drop_levers(model: ir.Model) -> None:
    """Turn levers (biases that a caller may override) into plain weights; unused nodes are removed."""
    for value in [value for value in model.graph.inputs if value.name in model.graph.initializers]:
        model.graph.inputs.remove(value)
    passes.RemoveUnusedNodesPass()(model)
