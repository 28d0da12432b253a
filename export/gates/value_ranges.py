"""Between which bounds the values of a graph lie whatever the input, and which of them can be gates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from export.gates.element_moves import MOVE_OPS
from export.gates.graph_view import GraphView, attribute, constant_scalar

INF = math.inf
MAX_EXPONENT = 700.0


@dataclass(frozen=True)
class ValueRange:
    """Bounds; `data` where a value depends on the numbers of an input, `soft` where it does so by degrees.

    A mask that is cast from yes and no lies in [0, 1] and depends on data too, but is not soft.
    """

    low: float = -INF
    high: float = INF
    data: bool = False
    soft: bool = False


FIXED_RANGES = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Softsign": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "Sin": (-1.0, 1.0),
    "Cos": (-1.0, 1.0),
    "Softplus": (0.0, INF),
}
# elements are moved, chosen, repeated or averaged, never made larger
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
# of these the number of elements counts, not what they are
SHAPE_ONLY_OPS = frozenset({"Shape", "Size", "EyeLike"})


# what these make is read off them
LITERAL_OPS = frozenset({"Constant", "ConstantOfShape"})
# whatever these are given, weights make numbers of it
CONTINUOUS_OPS = frozenset({"Gather", "GatherND", "Gemm", "MatMul", "Conv", "ConvTranspose", "Einsum"})


class ValueRanges:
    """The range of every value of a graph, from its inputs on."""

    def __init__(self, flow: GraphView) -> None:
        self._ranges: dict[ir.Value, ValueRange] = {}
        for value in flow.graph.inputs:
            # an input with an initializer is a weight that may be overridden
            given = value.const_value is None
            soft = given and (value.dtype is None or value.dtype.is_floating_point())
            self._ranges[value] = ValueRange(data=given, soft=soft)
        for node in flow.nodes:
            if node.op_type in LITERAL_OPS:
                continue
            made = self._of(node)
            for value in node.outputs:
                self._ranges[value] = made

    def __getitem__(self, value: ir.Value) -> ValueRange:
        if (found := self._ranges.get(value)) is not None:
            return found
        number = constant_scalar(value)
        return ValueRange() if number is None else ValueRange(number, number)

    def gate(self, value: ir.Value) -> bool:
        """Whether a value is between 0 and 1, and is so by degrees and by the data: what a gate has to be."""
        found = self[value]
        return 0 <= found.low < found.high <= 1 and found.soft

    def data(self, value: ir.Value) -> bool:
        """Whether a value depends on the numbers of an input."""
        return self[value].data

    def _of(self, node: ir.Node) -> ValueRange:
        inputs = [self[value] for value in node.inputs if value is not None]
        data = any(one.data for one in inputs) and node.op_type not in SHAPE_ONLY_OPS
        if any(a.type in {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS} for a in node.attributes.values()):
            return ValueRange(data=True, soft=True)
        kind = node.outputs[0].dtype if node.outputs else None
        real = kind is None or kind.is_floating_point()
        soft = data and real and (node.op_type in CONTINUOUS_OPS or any(one.soft for one in inputs))
        low, high = self._bounds(node, inputs)
        return ValueRange(low, high, data, soft)

    def _bounds(self, node: ir.Node, inputs: list[ValueRange]) -> tuple[float, float]:
        op = node.op_type
        if op in FIXED_RANGES:
            return FIXED_RANGES[op]
        if node.outputs and node.outputs[0].dtype == ir.DataType.BOOL:
            return 0.0, 1.0
        if op in RANGE_KEEPING_OPS:
            return self._hull(node, inputs)
        if op == "Clip":
            return self._clipped(node, inputs)
        match op, inputs:
            case "Relu", [x]:
                return max(x.low, 0.0), max(x.high, 0.0)
            case "Neg", [x]:
                return -x.high, -x.low
            case "Exp", [x]:
                return _exp(x.low), _exp(x.high)
            case "Sqrt", [x]:
                return math.sqrt(max(x.low, 0.0)), math.sqrt(max(x.high, 0.0))
            case "Pow", [x, power] if x.low >= 0 and power.low == power.high >= 0:
                return x.low**power.low, x.high**power.low
            case "Log", [x] if x.low >= 0:
                return _log(x.low), _log(x.high)
            case "Add" | "Sum", [_, *_]:
                return sum(x.low for x in inputs), sum(x.high for x in inputs)
            case "Sub", [a, b]:
                return a.low - b.high, a.high - b.low
            case "Mul", [a, b]:
                return _span(_times(p, q) for p in (a.low, a.high) for q in (b.low, b.high))
            case "Div", [a, b] if b.low > 0:
                return _span(_times(p, 1 / q) for p in (a.low, a.high) for q in (b.low, b.high))
            case "Reciprocal", [x] if x.low > 0:
                return 1 / x.high, 1 / x.low
        return -INF, INF

    def _hull(self, node: ir.Node, inputs: list[ValueRange]) -> tuple[float, float]:
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

    def _clipped(self, node: ir.Node, inputs: list[ValueRange]) -> tuple[float, float]:
        bounds = []
        for position, name, none in ((1, "min", -INF), (2, "max", INF)):
            given = node.inputs[position] if len(node.inputs) > position else None
            number = attribute(node, name) if given is None else constant_scalar(given)
            bounds.append(none if number is None else number)
        low, high = bounds
        return min(max(inputs[0].low, low), high), max(min(inputs[0].high, high), low)


def _span(ends: Iterable[float]) -> tuple[float, float]:
    numbers = list(ends)
    return min(numbers), max(numbers)


def _exp(x: float) -> float:
    return INF if x > MAX_EXPONENT else math.exp(x)


def _log(x: float) -> float:
    return -INF if x == 0 else math.log(x)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b
