"""Interval analysis: bounds of every value of a graph, and which values can be gates.

Bounds are propagated from the inputs to the outputs, operator by operator: a sigmoid is in [0, 1], a sum
is between the sums of the bounds. Beside the bounds, a value is marked as depending on the input data, and
as doing so continuously. A gate must be in [0, 1] and vary continuously with the data: this leaves out
learned constants, and masks, which are 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from turnpike.export.gates.algebra.quotients import QuotientBounds
from turnpike.export.gates.algebra.sigmoids import match_softplus
from turnpike.export.gates.graph.element_moves import MOVE_OPS
from turnpike.export.gates.graph.nodes import attribute, constant_scalar, subgraphs
from turnpike.export.gates.graph.view import GraphView

INF = math.inf
MAX_EXPONENT = 700.0  # exp overflows float64 shortly above: counted as infinite
# By how much a gate may leave [0, 1]: 0.5 + atan(x) / pi does, since pi is rounded.
ROUNDING = 1e-6


@dataclass(frozen=True)
class ValueRange:
    """Bounds of a value over all inputs.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        input_dependent: Whether the value depends on the numbers of an input.
        continuous: Whether it varies continuously with them, unlike a mask that is cast from a bool.
    """

    low: float = -INF
    high: float = INF
    input_dependent: bool = False
    continuous: bool = False


FIXED_RANGES = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "LogSoftmax": (-INF, 0.0),
    "Tanh": (-1.0, 1.0),
    "Softsign": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "Atan": (-math.pi / 2, math.pi / 2),
    "Sin": (-1.0, 1.0),
    "Cos": (-1.0, 1.0),
}
# operators that move, choose, repeat or average elements: the result stays within the bounds of its inputs
RANGE_KEEPING_OPS = MOVE_OPS | {
    "Tile",
    "GatherElements",
    "GatherND",
    "Concat",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "MaxPool",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Max",
    "Min",
    "Where",
}
# the result depends on the shape of the input, not on its numbers
SHAPE_ONLY_OPS = frozenset({"Shape", "Size", "EyeLike"})
# the range is read from the constant itself
LITERAL_OPS = frozenset({"Constant", "ConstantOfShape"})
# the result is continuous even for discrete inputs, which select or combine weights: an embedding of ids
CONTINUOUS_OPS = frozenset({"Gather", "GatherND", "Gemm", "MatMul", "Conv", "ConvTranspose", "Einsum"})


class ValueRanges:
    """The range of every value of a graph."""

    def __init__(self, view: GraphView) -> None:
        self._ranges: dict[ir.Value, ValueRange] = {}
        self._quotients = QuotientBounds(view, lambda value: self[value].low)
        for value in view.graph.inputs:
            # an input with an initializer is a weight that a caller may override
            is_data = value.const_value is None
            continuous = is_data and (value.dtype is None or value.dtype.is_floating_point())
            self._ranges[value] = ValueRange(input_dependent=is_data, continuous=continuous)
        for node in view.nodes:
            if node.op_type in LITERAL_OPS:
                continue
            node_range = self._range_of(node)
            for value in node.outputs:
                self._ranges[value] = node_range

    def __getitem__(self, value: ir.Value) -> ValueRange:
        if (value_range := self._ranges.get(value)) is not None:
            return value_range
        number = constant_scalar(value)
        return ValueRange() if number is None else ValueRange(number, number)

    def can_be_gate(self, value: ir.Value) -> bool:
        """Whether a value is in [0, 1] and varies continuously with the input data."""
        bounds = self[value]
        return -ROUNDING <= bounds.low < bounds.high <= 1 + ROUNDING and bounds.continuous

    def can_be_signed_gate(self, value: ir.Value) -> bool:
        """Whether a value is in [-1, 1], may be negative, and varies continuously with the input data."""
        bounds = self[value]
        return -1 - ROUNDING <= bounds.low < 0 < bounds.high <= 1 + ROUNDING and bounds.continuous

    def depends_on_input(self, value: ir.Value) -> bool:
        """Whether a value depends on the numbers of an input."""
        return self[value].input_dependent

    def _range_of(self, node: ir.Node) -> ValueRange:
        inputs = [self[value] for value in node.inputs if value is not None]
        input_dependent = any(source.input_dependent for source in inputs) and (
            node.op_type not in SHAPE_ONLY_OPS
        )
        # loops and branches are not analysed
        if subgraphs(node):
            return ValueRange(input_dependent=True, continuous=True)
        dtype = node.outputs[0].dtype if node.outputs else None
        is_float = dtype is None or dtype.is_floating_point()
        continuous = (
            input_dependent
            and is_float
            and (node.op_type in CONTINUOUS_OPS or any(source.continuous for source in inputs))
        )
        low, high = self._bounds(node, inputs)
        if (quotient := self._quotients.of(node)) is not None:
            low, high = max(low, quotient[0]), min(high, quotient[1])
        return ValueRange(low, high, input_dependent, continuous)

    def _bounds(self, node: ir.Node, inputs: list[ValueRange]) -> tuple[float, float]:
        op = node.op_type
        if op in FIXED_RANGES:
            return FIXED_RANGES[op]
        if node.outputs and node.outputs[0].dtype == ir.DataType.BOOL:
            return 0.0, 1.0
        if match_softplus(node) is not None:
            return 0.0, INF
        if op in RANGE_KEEPING_OPS:
            return self._bounds_of_range_keeping(node, inputs)
        if op == "Clip":
            return self._bounds_of_clip(node, inputs)
        if self._quotients.is_square(node):
            op, inputs = "Mul", [_absolute(inputs[0])] * 2
        match op, inputs:
            case "Abs", [x]:
                return _absolute(x).low, _absolute(x).high
            case "Relu", [x]:
                return max(x.low, 0.0), max(x.high, 0.0)
            case "Neg", [x]:
                return -x.high, -x.low
            case "Exp", [x]:
                return _bounded_exp(x.low), _bounded_exp(x.high)
            case "Sqrt", [x]:
                return math.sqrt(max(x.low, 0.0)), math.sqrt(max(x.high, 0.0))
            case "Pow", [x, power] if x.low >= 0 and power.low == power.high >= 0:
                return x.low**power.low, x.high**power.low
            case "Pow", [x, power] if x.low > 0 and power.low == power.high < 0:
                return x.high**power.low, x.low**power.low
            case "Log", [x] if x.low >= 0:
                return _log_or_minus_infinity(x.low), _log_or_minus_infinity(x.high)
            case "Add" | "Sum", [_, *_]:
                return sum(x.low for x in inputs), sum(x.high for x in inputs)
            case "Sub", [a, b]:
                return a.low - b.high, a.high - b.low
            case "Mul", [a, b]:
                return _extremes(_product(p, q) for p in (a.low, a.high) for q in (b.low, b.high))
            case "Div", [a, b] if b.low > 0:
                return _extremes(_product(p, 1 / q) for p in (a.low, a.high) for q in (b.low, b.high))
            case "Reciprocal", [x] if x.low > 0:
                return 1 / x.high, 1 / x.low
        return -INF, INF

    def _bounds_of_range_keeping(self, node: ir.Node, inputs: list[ValueRange]) -> tuple[float, float]:
        match node.op_type:
            case "Where":
                inputs = inputs[1:]
            case "Max":
                return max(x.low for x in inputs), max(x.high for x in inputs)
            case "Min":
                return min(x.low for x in inputs), min(x.high for x in inputs)
            case "Concat":
                pass
            case _:
                inputs = inputs[:1]
        return min(x.low for x in inputs), max(x.high for x in inputs)

    def _bounds_of_clip(self, node: ir.Node, inputs: list[ValueRange]) -> tuple[float, float]:
        bounds = []
        # bounds are inputs in new opsets, attributes in old ones
        for position, name, unbounded in ((1, "min", -INF), (2, "max", INF)):
            source = node.inputs[position] if len(node.inputs) > position else None
            number = attribute(node, name) if source is None else constant_scalar(source)
            bounds.append(unbounded if number is None else number)
        low, high = bounds
        return min(max(inputs[0].low, low), high), max(min(inputs[0].high, high), low)


def _absolute(x: ValueRange) -> ValueRange:
    return ValueRange(max(x.low, -x.high, 0.0), max(-x.low, x.high))


def _extremes(candidates: Iterable[float]) -> tuple[float, float]:
    numbers = list(candidates)
    return min(numbers), max(numbers)


def _bounded_exp(x: float) -> float:
    return INF if x > MAX_EXPONENT else math.exp(x)


def _log_or_minus_infinity(x: float) -> float:
    return -INF if x == 0 else math.log(x)


def _product(a: float, b: float) -> float:
    """As in interval arithmetic, 0 times infinity is 0."""
    return 0.0 if a == 0 or b == 0 else a * b
