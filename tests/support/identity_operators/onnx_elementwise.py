"""Cases of elementwise ONNX operators."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.support.identity_operators.onnx_case import (
    Known,
    OnnxCases,
    booleans,
    floats,
    integers,
    known,
    known_floats,
    number,
)

CASES = OnnxCases()

# operators of one argument, and the range in which they run
for operators, low, high in (
    ("Neg Exp Abs Sign Sigmoid Tanh Erf Relu Softplus Softsign Mish Identity Sinh Cosh Asinh", -2.0, 2.0),
    ("Floor Ceil Round Sin Cos HardSwish HardSigmoid LeakyRelu Elu Celu Selu Gelu", -7.0, 7.0),
    ("Log Sqrt Reciprocal", 0.1, 3.0),
    ("Tan Asin Acos Atan Atanh", -0.9, 0.9),
    ("Acosh", 1.1, 3.0),
):
    for operator in operators.split():
        CASES.node(operator, operator, floats(3, 8, low=low, high=high))
CASES.node("Round halves", "Round", np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32))
CASES.node("Reciprocal of few known", "Reciprocal", Known(np.array([0.5, -3, 10], np.float32)))
CASES.node("Reciprocal of many known", "Reciprocal", known_floats(80, low=0.5))
CASES.node("Abs, integers", "Abs", integers(9, low=-5))
CASES.node("Abs, known integers", "Abs", known(3, -2, 0))
CASES.node("Neg, known integers", "Neg", known(3, -2, 0))
CASES.node("Sign of 0", "Sign", np.array([-1.5, 0, 2], np.float32))
CASES.node("Not", "Not", booleans(9))
CASES.node("Not, known", "Not", Known(booleans(9)))
numbers = np.array([1, -2, np.nan, np.inf, -np.inf], np.float32)
CASES.node("IsNaN", "IsNaN", numbers)
CASES.node("IsInf", "IsInf", numbers)

# operators of two arguments, with broadcasting
for operator in ("Add", "Sub", "Mul", "Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"):
    CASES.node(operator, operator, floats(2, 1, 4, low=0.5), floats(3, 1, low=0.5))
    CASES.node(f"{operator}, integers", operator, integers(4, 5, low=1), integers(5, low=1))
    CASES.node(f"{operator}, known", operator, floats(3, 4), known_floats(4, low=0.5))
    CASES.node(f"{operator}, known integers", operator, known(-7, 0, 5, 7), known(2, 3, 5, -2))
for operator in ("And", "Or", "Xor"):
    CASES.node(operator, operator, booleans(4, 5), booleans(5))
    CASES.node(f"{operator}, known", operator, Known(booleans(4, 5)), Known(booleans(5)))
CASES.node("Equal, booleans", "Equal", booleans(4, 5), booleans(5))
CASES.node("Div, negative integers", "Div", integers(20, low=-9, high=9), integers(20, low=-4, high=0))
for operator in ("Max", "Min", "Sum", "Mean"):
    CASES.node(operator, operator, floats(3, 4), floats(4), floats(3, 1))
    CASES.node(f"{operator} of one", operator, floats(3, 4))
for operator in ("Max", "Min"):
    CASES.node(f"{operator}, integers", operator, integers(3, 4), integers(4))
    CASES.node(f"{operator}, known", operator, known(1, 5, 2), known(3))
CASES.node("Mod", "Mod", integers(20, low=-9, high=9), integers(20, low=-4, high=0))
CASES.node("Mod, known", "Mod", known(-7, 7, 5, -5), known(3, -3, 3, -3))
CASES.node("Mod, fmod", "Mod", floats(20, low=-9, high=9), floats(20, low=1), fmod=1)
CASES.node("Mod, known fmod", "Mod", known(-7, 7, 5, -5), known(3, -3, 3, -3), fmod=1)
for exponent in (2.0, 3.0, -1.0, -2.0, 0.0, 0.5, -0.5, 1.5):
    CASES.node(f"Pow {exponent}", "Pow", floats(9, low=0.5), number(exponent, np.float32))
CASES.node("Pow", "Pow", floats(3, 4, low=0.5), floats(4))
CASES.node("Pow, an integer", "Pow", floats(9), number(3))
CASES.node("Pow, integers", "Pow", integers(9), number(2))
CASES.node("Where", "Where", booleans(3, 4), floats(3, 4), floats(4))
CASES.node("Where, known", "Where", Known(booleans(4)), floats(3, 4), floats(3, 1))
CASES.node("Where, masks", "Where", booleans(3, 4), floats(3, 4), Known(np.array(-1e9, np.float32)))
CASES.node("Where, integers", "Where", booleans(4), integers(3, 4), known(7))
for name, low_limit, high_limit in (
    ("both", number(-0.5, np.float32), number(0.25, np.float32)),
    ("min", number(0.5, np.float32), None),
    ("max", None, number(-0.5, np.float32)),
    ("min above max", number(0.5, np.float32), number(-0.5, np.float32)),
):
    CASES.node(f"Clip {name}", "Clip", floats(3, 8), low_limit, high_limit)
CASES.node("Clip without limits", "Clip", floats(4))
CASES.node(
    "Clip, limits of the input", "Clip", floats(3, 8), *(np.array(limit, np.float32) for limit in (-0.5, 0.5))
)
CASES.node("Clip attributes", "Clip", floats(3, 8), opset=10, min=-0.5, max=0.25)
CASES.node("Clip, one attribute", "Clip", floats(3, 8), opset=10, max=0.25)
CASES.node("Clip, integers", "Clip", integers(9), number(1), number(3))

# activations with attributes
CASES.node("LeakyRelu alpha", "LeakyRelu", floats(9), alpha=0.25)
CASES.node("Elu alpha", "Elu", floats(9), alpha=0.25)
CASES.node("Celu alpha", "Celu", floats(9), alpha=0.25)
CASES.node("Selu alpha and gamma", "Selu", floats(9), alpha=0.25, gamma=3.0)
CASES.node("Gelu tanh", "Gelu", floats(9), approximate="tanh")
CASES.node("HardSigmoid alpha and beta", "HardSigmoid", floats(20, low=-5, high=5), alpha=0.3, beta=0.25)
CASES.node("HardSigmoid of PyTorch", "HardSigmoid", floats(20, low=-5, high=5), alpha=1 / 6, beta=0.5)
CASES.node("PRelu", "PRelu", floats(2, 3, 4), known_floats(3, 1))
CASES.node("PRelu, one slope", "PRelu", floats(2, 3, 4), floats(1))
CASES.node("Swish", "Swish", floats(9), opset=24)
CASES.node("Swish alpha", "Swish", floats(9), opset=24, alpha=0.5)

CASES.node("Dropout", "Dropout", floats(9))
CASES.node("Dropout, not in training", "Dropout", floats(9), number(0.5, np.float32), number(False, np.bool_))
thirds = np.array([-1.75, -0.5, 0, 0.5, 1.75], np.float32)
for name, values in {"floats": thirds, "integers": integers(5, low=-1), "booleans": booleans(5)}.items():
    for target in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL):
        CASES.node(f"Cast {name} to {TensorProto.DataType.Name(target)}", "Cast", values, to=target)
        CASES.node(
            f"Cast known {name} to {TensorProto.DataType.Name(target)}", "Cast", Known(values), to=target
        )
CASES.node("Cast to float16", "Cast", thirds, to=TensorProto.FLOAT16)
CASES.node("Cast to double", "Cast", thirds, to=TensorProto.DOUBLE)
CASES.node("CastLike", "CastLike", thirds, integers(1))
CASES.node("CastLike, known", "CastLike", thirds, Known(np.zeros(1, np.bool_)))
CASES.node("OneHot", "OneHot", integers(2, 3), number(6), Known(np.array([0.5, 2], np.float32)))
CASES.node("OneHot, known", "OneHot", known(0, 3, -1), number(6), Known(np.array([0, 1], np.float32)))
