"""Selections that other exporters write are the operators of ONNX, and near misses are not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.export.identity.algebra.formulas import decision_about
from turnpike.export.identity.decision import Verdict

ALPHA, SCALE = np.float32(1.6732632423543772), np.float32(1.0507009873554805)
CONSTANTS = {
    "alpha": ALPHA,
    "scale": SCALE,
    "slopes": np.arange(6, dtype=np.float32) / 7,
    "slope_and_ulp": np.nextafter(np.float32(0.1), np.float32(1)),
}
EQUAL = [
    ("Where(Greater(x, 0.0), x, 0.0)", "Relu(x)"),
    ("Where(GreaterOrEqual(x, 0.0), x, 0.0)", "Relu(x)"),
    ("Where(Less(x, 0.0), 0.0, x)", "Relu(x)"),
    ("Where(LessOrEqual(x, 0.0), 0.0, x)", "Relu(x)"),
    ("Where(Less(0.0, x), x, 0.0)", "Relu(x)"),
    ("Where(LessOrEqual(0.0, x), x, 0.0)", "Relu(x)"),
    ("Where(Not(Greater(x, 0.0)), 0.0, x)", "Relu(x)"),
    ("Mul(x, Cast(Greater(x, 0.0), to=1))", "Relu(x)"),
    ("Mul(Cast(GreaterOrEqual(x, 0.0), to=1), x)", "Relu(x)"),
    ("Mul(Sub(1.0, Cast(Less(x, 0.0), to=1)), x)", "Relu(x)"),
    ("Mul(Add(x, Abs(x)), 0.5)", "Relu(x)"),
    ("Where(Greater(x, 0.0), Relu(x), 0.0)", "Relu(x)"),
    ("Where(Greater(x, 0.0), x, Mul(x, 0.1))", "LeakyRelu(x, alpha=0.1)"),
    ("Where(Less(x, 0.0), Mul(0.1, x), x)", "LeakyRelu(x, alpha=0.1)"),
    ("Max(x, Mul(x, 0.1))", "LeakyRelu(x, alpha=0.1)"),
    ("Where(GreaterOrEqual(x, 0.0), x, Div(x, 8.0))", "LeakyRelu(x, alpha=0.125)"),
    ("Where(Greater(x, 0.0), x, Mul(x, slopes))", "PRelu(x, slopes)"),
    ("Where(Greater(x, 0.0), x, Mul(0.7, Sub(Exp(x), 1.0)))", "Elu(x, alpha=0.7)"),
    ("Add(Relu(x), Mul(0.7, Sub(Exp(Min(x, 0.0)), 1.0)))", "Elu(x, alpha=0.7)"),
    ("Where(Greater(x, 0.0), x, Mul(0.7, Sub(Exp(Min(x, 0.0)), 1.0)))", "Elu(x, alpha=0.7)"),
    ("Add(Relu(x), Min(0.0, Mul(0.7, Sub(Exp(x), 1.0))))", "Elu(x, alpha=0.7)"),
    ("Mul(scale, Where(Greater(x, 0.0), x, Mul(alpha, Sub(Exp(x), 1.0))))", "Selu(x)"),
    ("Mul(scale, Where(LessOrEqual(x, 0.0), Sub(Mul(alpha, Exp(x)), alpha), x))", "Selu(x)"),
    ("Where(Greater(x, 0.0), x, Mul(1.5, Sub(Exp(Div(x, 1.5)), 1.0)))", "Celu(x, alpha=1.5)"),
    ("Add(Max(x, 0.0), Min(0.0, Mul(1.5, Sub(Exp(Div(x, 1.5)), 1.0))))", "Celu(x, alpha=1.5)"),
    ("Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)", "HardSwish(x)"),
    ("Where(Less(x, -3.0), 0.0, Where(Greater(x, 3.0), x, Div(Mul(x, Add(x, 3.0)), 6.0)))", "HardSwish(x)"),
    ("Mul(x, Div(Min(Relu(Add(x, 3.0)), 6.0), 6.0))", "HardSwish(x)"),
    (
        "Where(Less(x, -3.0), 0.0, Where(Greater(x, 3.0), 1.0, Add(Div(x, 6.0), 0.5)))",
        "HardSigmoid(x, alpha=1 / 6)",
    ),
    ("Max(0.0, Min(1.0, Add(Mul(x, 0.2), 0.5)))", "HardSigmoid(x)"),
    ("Where(Less(x, -1.0), -1.0, Where(Greater(x, 2.0), 2.0, x))", "Clip(x, -1.0, 2.0)"),
    ("Where(Greater(x, 2.0), 2.0, Where(Less(x, -1.0), -1.0, x))", "Clip(x, -1.0, 2.0)"),
    ("Where(Greater(Max(x, -1.0), 2.0), 2.0, Where(Less(x, -1.0), -1.0, x))", "Clip(x, -1.0, 2.0)"),
    ("Max(Min(x, 2.0), -1.0)", "Clip(x, -1.0, 2.0)"),
    ("Sub(Sub(Relu(Add(x, 1.0)), Relu(Sub(x, 2.0))), 1.0)", "Clip(x, -1.0, 2.0)"),
    ("Clip(Clip(x, -1.0, 2.0), -1.0, 2.0)", "Clip(x, -1.0, 2.0)"),
    ("Clip(Relu(x), 0.0, 6.0)", "Clip(x, 0.0, 6.0)"),
    ("Where(Greater(x, y), x, y)", "Max(x, y)"),
    ("Where(LessOrEqual(x, y), y, x)", "Max(x, y)"),
    ("Where(Greater(x, y), y, x)", "Min(x, y)"),
    ("Where(LessOrEqual(x, y), x, y)", "Min(x, y)"),
    ("Neg(Max(Neg(x), Neg(y)))", "Min(x, y)"),
    ("Where(Less(x, 0.0), Neg(x), x)", "Abs(x)"),
    ("Max(x, Neg(x))", "Abs(x)"),
    ("Sqrt(Mul(x, x))", "Abs(x)"),
    ("Sqrt(Pow(x, 2.0))", "Abs(x)"),
    ("Add(Relu(x), Relu(Neg(x)))", "Abs(x)"),
    ("Mul(x, Sign(x))", "Abs(x)"),
    ("Mul(0.5, Abs(Mul(x, -2.0)))", "Abs(x)"),
    ("Where(Greater(x, 0.0), 1.0, Where(Less(x, 0.0), -1.0, 0.0))", "Sign(x)"),
    ("Sub(Cast(Greater(x, 0.0), to=1), Cast(Less(x, 0.0), to=1))", "Sign(x)"),
    ("Div(x, Sqrt(Mul(x, x)))", "Div(x, Abs(x))"),
    ("Mul(x, Cast(Greater(x, 1.0), to=1))", "Where(Greater(x, 1.0), x, 0.0)"),
]
NEAR_MISSES = [
    ("Where(Greater(x, 1e-30), x, 0.0)", "Relu(x)"),
    ("Where(Greater(x, -1e-30), x, 0.0)", "Relu(x)"),
    ("Where(Greater(x, 0.0), x, 1e-30)", "Relu(x)"),
    ("Where(Greater(y, 0.0), x, 0.0)", "Relu(x)"),
    ("Where(Greater(x, 0.0), Where(Greater(x, 1.0), x, 0.0), 0.0)", "Relu(x)"),
    ("Mul(x, Cast(Greater(x, 1e-30), to=1))", "Relu(x)"),
    ("Where(Greater(x, 0.0), 1.0, 0.0)", "Where(GreaterOrEqual(x, 0.0), 1.0, 0.0)"),
    ("Where(Greater(x, 0.0), y, 0.0)", "Where(GreaterOrEqual(x, 0.0), y, 0.0)"),
    ("Where(Greater(x, 0.0), Exp(x), 0.0)", "Where(GreaterOrEqual(x, 0.0), Exp(x), 0.0)"),
    ("Where(Greater(x, 1.0), x, 0.0)", "Where(GreaterOrEqual(x, 1.0), x, 0.0)"),
    ("Where(Greater(x, 0.0), x, Mul(x, slope_and_ulp))", "LeakyRelu(x, alpha=0.1)"),
    ("Max(x, Mul(x, slope_and_ulp))", "LeakyRelu(x, alpha=0.1)"),
    ("Where(Greater(x, 0.0), x, Sub(Exp(x), 0.9999999))", "Elu(x)"),
    ("Mul(scale, Where(Greater(x, 0.0), x, Mul(1.6732634, Sub(Exp(x), 1.0))))", "Selu(x)"),
    ("Where(Less(x, -1.0), -1.0, Where(Greater(x, 2.0000002), 2.0, x))", "Clip(x, -1.0, 2.0)"),
    ("Where(Less(x, -1.0), -1.0, Where(Greater(x, 2.0), 2.0000002, x))", "Clip(x, -1.0, 2.0)"),
    ("Where(Less(x, 2.0), -1.0, Where(Greater(x, 2.0), 2.0, x))", "Clip(x, -1.0, 2.0)"),
    ("Where(Greater(x, 2.0000002), 2.0, x)", "Min(x, 2.0)"),
    ("Where(Greater(x, Add(y, 1e-20)), x, y)", "Max(x, y)"),
    ("Where(Greater(x, y), y, x)", "Max(x, y)"),
    ("Sqrt(Add(Mul(x, x), 1e-30))", "Abs(x)"),
    ("Sqrt(Mul(x, y))", "Abs(x)"),
    ("Mul(x, Sign(y))", "Abs(x)"),
    ("Where(Greater(x, 0.0), 1.0, -1.0)", "Sign(x)"),
    ("Div(x, Abs(x))", "Sign(x)"),
    ("Sign(Sub(Max(x, 2.0), 2.0))", "Sign(Sub(x, 2.0))"),
    ("Sign(Sub(Max(x, 3.0), 2.0))", "Sign(Sub(x, 2.0))"),
]


@pytest.mark.parametrize(("first", "second"), EQUAL)
def test_equal_graphs_are_identical(first: str, second: str) -> None:
    """In both orders: the graph that runs first does not know the values of the other one."""
    for pair in ((first, second), (second, first)):
        decision = decision_about(*pair, CONSTANTS)
        assert decision.verdict is Verdict.IDENTICAL, decision


@pytest.mark.parametrize(("first", "second"), NEAR_MISSES)
def test_near_misses_are_different(first: str, second: str) -> None:
    for pair in ((first, second), (second, first)):
        assert decision_about(*pair, CONSTANTS).verdict is Verdict.DIFFERENT
