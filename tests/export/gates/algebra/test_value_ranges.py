"""Bounds of values, compared with the numbers that ONNX's reference evaluator computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from turnpike.export.gates.algebra.value_ranges import ValueRanges
from turnpike.export.gates.graph.view import GraphView

# s and r lie between 0 and 1, t and u between -1 and 1, more between 1 and 2; mask is 0 or 1
GRAPH = """
<ir_version: 8, opset_import: ["": 18]>
main (float[n] a, float[n] b, float[n] c, float[n] d) => (float[n] y) {
    zero = Constant <value = float {0}> ()
    one = Constant <value = float {1}> ()
    two = Constant <value = float {2}> ()
    minus = Constant <value = float {-1}> ()
    s = Sigmoid (a)
    r = Sigmoid (b)
    t = Tanh (c)
    u = Tanh (d)
    more = Add (s, one)
    less = Less (a, b)
    mask = Cast <to = 1> (less)
    y = NODE
}
"""
E1, LOG2 = float(np.e), float(np.log(2))


def ranges_and_values(node: str) -> tuple[ValueRanges, ir.Value, np.ndarray]:
    """The ranges of a graph, its output y, and the numbers of y for inputs from very small to very large."""
    proto = onnx.parser.parse_model(GRAPH.replace("NODE", node))
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(proto)).graph
    numbers = np.float32([-50, -3, -1.5, 0.1, 1.5, 3, 50])
    a, b, c, d = (axis.ravel() for axis in np.meshgrid(numbers, numbers, numbers, numbers))
    (y,) = ReferenceEvaluator(proto).run(None, {"a": a, "b": b, "c": c, "d": d})
    return ValueRanges(GraphView(graph)), graph.outputs[0], y


@pytest.mark.parametrize(
    ("node", "low", "high"),
    [
        ("Sin (a)", -1, 1),
        ("Cos (a)", -1, 1),
        ("Softsign (a)", -1, 1),
        ("Softplus (s)", 0, np.inf),
        ("Add (s, mask)", 0, 2),
        ("Relu (t)", 0, 1),
        ("Neg (more)", -2, -1),
        ("Exp (s)", 1, E1),
        ("Sqrt (more)", 1, 2**0.5),
        ("Pow (more, two)", 1, 4),
        ("Pow (s, two)", 0, 1),
        ("Pow (s, zero)", 1, 1),
        ("Pow (t, two)", 0, 1),
        ("Pow (more, minus)", 0.5, 1),
        ("Mul (t, t)", 0, 1),
        ("Abs (t)", 0, 1),
        ("Atan (a)", -np.pi / 2, np.pi / 2),
        ("Log (more)", 0, LOG2),
        ("Add (s, t)", -1, 2),
        ("Sum (s, t, more)", 0, 4),
        ("Sub (more, t)", 0, 3),
        ("Mul (t, more)", -2, 2),
        ("Mul (t, u)", -1, 1),
        ("Div (t, more)", -1, 1),
        ("Div (r, more)", 0, 1),
        ("Div (one, t)", -np.inf, np.inf),
        ("Reciprocal (more)", 0.5, 1),
        ("Max (s, t)", 0, 1),
        ("Min (s, t)", -1, 1),
        ("Clip (t, zero, two)", 0, 1),
        ("Clip (more, zero, one)", 1, 1),
    ],
)
def test_bounds_hold_the_values_of_an_operator(node: str, low: float, high: float) -> None:
    """No value is outside of the bounds."""
    ranges, y, values = ranges_and_values(node)
    assert (ranges[y].low, ranges[y].high) == pytest.approx((low, high))
    assert low - 1e-6 <= values.min() <= values.max() <= high + 1e-6


@pytest.mark.parametrize(
    ("node", "can_be"),
    [
        ("Pow (s, two)", True),
        ("Reciprocal (more)", True),
        ("Mul (s, r)", True),
        ("Sub (one, s)", True),
        ("Identity (mask)", False),
        ("Add (s, mask)", False),
        ("Add (s, r)", False),
        ("Identity (t)", False),
        ("Identity (one)", False),
    ],
)
def test_a_gate_is_continuous_and_between_0_and_1(node: str, can_be: bool) -> None:
    """A mask has these bounds too, but no values between them."""
    ranges, y, _ = ranges_and_values(node)
    assert ranges.can_be_gate(y) == can_be
