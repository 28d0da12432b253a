"""Sigmoids, softmax, logarithms, roots and norms in their usual forms are equal, and near misses are not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.export.identity.algebra.formulas import decision_about
from turnpike.export.identity.decision import Verdict

CONSTANTS = {
    "first": np.array([0]),
    "last": np.array([-1]),
    "groups": np.array([0, 2, 3]),
    "rows": np.array([0, 6]),
    "weight": np.arange(1, 7, dtype=np.float32),
    "bias": np.arange(6, dtype=np.float32) / 3,
    "variance": np.full(6, 4, np.float32),
    "root_2": np.sqrt(np.float32(2)),
    "root_half": np.sqrt(np.float32(0.5)),
    "root_2_pi": np.float32(np.sqrt(2 / np.pi)),
    "tanh": "tanh",
    "microsoft": "com.microsoft",
}
EQUAL = [
    ("Div(Exp(x), Add(1.0, Exp(x)))", "Sigmoid(x)"),
    ("Reciprocal(Add(1.0, Exp(Neg(x))))", "Sigmoid(x)"),
    ("Add(Mul(Tanh(Mul(x, 0.5)), 0.5), 0.5)", "Sigmoid(x)"),
    ("Sub(1.0, Div(1.0, Add(1.0, Exp(x))))", "Sigmoid(x)"),
    (
        "Where(GreaterOrEqual(x, 0.0), Div(1.0, Add(1.0, Exp(Neg(x)))), Div(Exp(x), Add(1.0, Exp(x))))",
        "Sigmoid(x)",
    ),
    (
        "Where(GreaterOrEqual(x, 0.0), Div(1.0, Add(1.0, Exp(Neg(Abs(x))))), "
        "Div(Exp(Neg(Abs(x))), Add(1.0, Exp(Neg(Abs(x))))))",
        "Sigmoid(x)",
    ),
    ("Div(Exp(x), Add(Exp(x), Exp(y)))", "Sigmoid(Sub(x, y))"),
    ("Div(Sub(Exp(Mul(2.0, x)), 1.0), Add(Exp(Mul(2.0, x)), 1.0))", "Tanh(x)"),
    ("Div(Sub(Exp(x), Exp(Neg(x))), Add(Exp(x), Exp(Neg(x))))", "Tanh(x)"),
    ("Softmax(Add(x, 3.0), axis=-1)", "Softmax(x, axis=-1)"),
    ("Softmax(Sub(x, ReduceMax(x, last)), axis=-1)", "Softmax(x, axis=-1)"),
    ("Div(Exp(x), ReduceSum(Exp(x), last))", "Softmax(x, axis=-1)"),
    (
        "Div(Exp(Sub(x, ReduceMax(x, last))), ReduceSum(Exp(Sub(x, ReduceMax(x, last))), last))",
        "Softmax(x, axis=-1)",
    ),
    ("Exp(LogSoftmax(x, axis=-1))", "Softmax(x, axis=-1)"),
    ("Exp(Sub(x, ReduceLogSumExp(x, last)))", "Softmax(x, axis=-1)"),
    ("Exp(Sub(x, Log(ReduceSum(Exp(x), last))))", "Softmax(x, axis=-1)"),
    ("Log(Softmax(x, axis=-1))", "LogSoftmax(x, axis=-1)"),
    ("Log(Div(Exp(x), ReduceSum(Exp(x), last)))", "LogSoftmax(x, axis=-1)"),
    ("Sub(x, ReduceLogSumExp(x, last))", "LogSoftmax(x, axis=-1)"),
    (
        "Sub(Sub(x, ReduceMax(x, last)), Log(ReduceSum(Exp(Sub(x, ReduceMax(x, last))), last)))",
        "LogSoftmax(x, axis=-1)",
    ),
    (
        "Gather(Softmax(Concat(Unsqueeze(x, last), Unsqueeze(y, last), axis=-1), axis=-1), 1, axis=-1)",
        "Sigmoid(Sub(y, x))",
    ),
    (
        "Gather(Softmax(Concat(Unsqueeze(x, last), Unsqueeze(y, last), axis=-1), axis=-1), 0, axis=-1)",
        "Sub(1.0, Sigmoid(Sub(y, x)))",
    ),
    (
        "Gather(LogSoftmax(Concat(Unsqueeze(x, last), Unsqueeze(y, last), axis=-1), axis=-1), 1, axis=-1)",
        "Log(Sigmoid(Sub(y, x)))",
    ),
    ("Neg(Softplus(Neg(x)))", "Log(Sigmoid(x))"),
    ("Sub(x, Softplus(x))", "Log(Sigmoid(x))"),
    ("Sub(Min(x, 0.0), Log(Add(1.0, Exp(Neg(Abs(x))))))", "Log(Sigmoid(x))"),
    ("Add(Max(x, 0.0), Log(Add(1.0, Exp(Neg(Abs(x))))))", "Softplus(x)"),
    ("Neg(Log(Sigmoid(Neg(x))))", "Softplus(x)"),
    ("Neg(Log(Sub(1.0, Sigmoid(x))))", "Softplus(x)"),
    ("Add(Max(x, y), Log(Add(1.0, Exp(Neg(Abs(Sub(x, y)))))))", "Log(Add(Exp(x), Exp(y)))"),
    ("Pow(Sqrt(Add(Mul(x, x), 0.5)), 2.0)", "Add(Mul(x, x), 0.5)"),
    ("Mul(Sqrt(Add(Mul(x, x), 0.5)), Sqrt(Add(Mul(x, x), 0.5)))", "Add(Mul(x, x), 0.5)"),
    ("Exp(Log(Add(Mul(x, x), 0.5)))", "Add(Mul(x, x), 0.5)"),
    ("Pow(x, 0.5)", "Sqrt(x)"),
    ("Pow(x, -0.5)", "Reciprocal(Sqrt(x))"),
    ("Sqrt(Div(1.0, x))", "Reciprocal(Sqrt(x))"),
    ("Pow(x, 1.5)", "Mul(x, Sqrt(x))"),
    ("Mul(Exp(x), Exp(y))", "Exp(Add(x, y))"),
    ("Div(Exp(x), Exp(y))", "Exp(Sub(x, y))"),
    ("Pow(Exp(x), 2.0)", "Exp(Mul(x, 2.0))"),
    ("Log(Exp(x))", "x"),
    ("Mul(Mul(x, 0.5), Add(1.0, Erf(Div(x, root_2))))", "Gelu(x)"),
    ("Mul(x, Mul(0.5, Add(Erf(Mul(x, root_half)), 1.0)))", "Gelu(x)"),
    (
        "Mul(Mul(0.5, x), Add(1.0, Tanh(Mul(root_2_pi, Add(x, Mul(0.044715, Pow(x, 3.0)))))))",
        "Gelu(x, approximate=tanh)",
    ),
    (
        "Mul(x, Sigmoid(Mul(Mul(2.0, Mul(root_2_pi, x)), Add(1.0, Mul(0.044715, Mul(x, x))))))",
        "Gelu(x, approximate=tanh)",
    ),
    ("FastGelu(x, domain=microsoft)", "Gelu(x, approximate=tanh)"),
    ("QuickGelu(x, domain=microsoft, alpha=1.0)", "Mul(x, Sigmoid(x))"),
    ("Div(x, Add(1.0, Exp(Neg(x))))", "Mul(x, Sigmoid(x))"),
    ("Mul(x, Sigmoid(Mul(1.702, x)))", "QuickGelu(x, domain=microsoft)"),
    ("Mul(x, Tanh(Softplus(x)))", "Mish(x)"),
    ("Mul(x, Tanh(Log(Add(1.0, Exp(x)))))", "Mish(x)"),
    ("Mul(x, Div(Sub(Pow(Add(1.0, Exp(x)), 2.0), 1.0), Add(Pow(Add(1.0, Exp(x)), 2.0), 1.0)))", "Mish(x)"),
    ("Div(x, Add(1.0, Abs(x)))", "Softsign(x)"),
    (
        "Add(Mul(Div(Sub(x, ReduceMean(x, last)), Sqrt(Add(ReduceMean(Pow(Sub(x, "
        "ReduceMean(x, last)), 2.0), last), 1e-5))), weight), bias)",
        "LayerNormalization(x, weight, bias)",
    ),
    (
        "Add(Mul(Mul(Sub(x, ReduceMean(x, last)), Reciprocal(Sqrt(Add(ReduceMean(Mul(Sub(x, "
        "ReduceMean(x, last)), Sub(x, ReduceMean(x, last))), last), 1e-5)))), weight), bias)",
        "LayerNormalization(x, weight, bias)",
    ),
    (
        "Add(Mul(Mul(Sub(x, ReduceMean(x, last)), Pow(Add(ReduceMean(Mul(Sub(x, ReduceMean(x, "
        "last)), Sub(x, ReduceMean(x, last))), last), 1e-5), -0.5)), weight), bias)",
        "LayerNormalization(x, weight, bias)",
    ),
    (
        "Add(Mul(Mul(Sub(x, ReduceMean(x, last)), Sqrt(Div(1.0, Add(ReduceMean(Mul(Sub(x, "
        "ReduceMean(x, last)), Sub(x, ReduceMean(x, last))), last), 1e-5)))), weight), bias)",
        "LayerNormalization(x, weight, bias)",
    ),
    ("Mul(Div(x, Sqrt(Add(ReduceMean(Mul(x, x), last), 1e-5))), weight)", "RMSNormalization(x, weight)"),
    (
        "Add(Mul(Reshape(Div(Sub(Reshape(x, groups), ReduceMean(Reshape(x, groups), last)), "
        "Sqrt(Add(ReduceMean(Mul(Sub(Reshape(x, groups), ReduceMean(Reshape(x, groups), "
        "last)), Sub(Reshape(x, groups), ReduceMean(Reshape(x, groups), last))), last), "
        "1e-5))), rows), weight), bias)",
        "GroupNormalization(x, weight, bias, num_groups=2)",
    ),
    (
        "Add(Mul(Div(Sub(x, bias), Sqrt(Add(variance, 1e-5))), weight), bias)",
        "BatchNormalization(x, weight, bias, bias, variance)",
    ),
]
NEAR_MISSES = [
    ("Softmax(x, axis=0)", "Softmax(x, axis=-1)"),
    ("Softmax(Add(x, bias), axis=-1)", "Softmax(x, axis=-1)"),
    ("Softmax(Mul(x, 1.0000001), axis=-1)", "Softmax(x, axis=-1)"),
    ("Div(Exp(x), ReduceSum(Exp(y), last))", "Softmax(x, axis=-1)"),
    ("Div(Exp(x), Add(ReduceSum(Exp(x), last), 1e-12))", "Softmax(x, axis=-1)"),
    ("Div(Exp(x), ReduceSum(Exp(x), first))", "Softmax(x, axis=-1)"),
    (
        "Gather(Softmax(Concat(Unsqueeze(x, last), Unsqueeze(y, last), axis=-1), axis=-1), 1, axis=-1)",
        "Sigmoid(Sub(x, y))",
    ),
    ("Div(Exp(y), Add(Exp(x), Exp(y)))", "Sigmoid(Sub(x, y))"),
    ("Log(Add(Softmax(x, axis=-1), 1e-12))", "LogSoftmax(x, axis=-1)"),
    ("Sub(x, ReduceLogSumExp(y, last))", "LogSoftmax(x, axis=-1)"),
    ("Mul(Sqrt(x), Sqrt(x))", "x"),
    ("Exp(Log(x))", "x"),
    ("Log(Add(Exp(x), 1e-30))", "x"),
    ("Mul(Exp(x), Exp(y))", "Exp(Sub(x, y))"),
    ("Div(1.0, Add(1.0, Exp(x)))", "Sigmoid(x)"),
    ("Div(Exp(x), Add(1.0000001, Exp(x)))", "Sigmoid(x)"),
    ("Div(Sub(Exp(Mul(2.0, x)), 1.0000001), Add(Exp(Mul(2.0, x)), 1.0))", "Tanh(x)"),
    ("Log(Add(1.0, Exp(Abs(x))))", "Softplus(x)"),
    ("Log(Add(1.0000001, Exp(x)))", "Softplus(x)"),
    ("Div(x, x)", "Add(Mul(0.0, x), 1.0)"),
    ("Gelu(x, approximate=tanh)", "Gelu(x)"),
    ("LayerNormalization(x, weight, bias, epsilon=1.1e-5)", "LayerNormalization(x, weight, bias)"),
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
