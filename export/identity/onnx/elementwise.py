"""Elementwise operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra import activations
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Array,
    Sizes,
    Term,
    UndecidedError,
    Value,
    kind_of,
    known,
)
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable, integers

table = OperatorTable()


def softsign(algebra: Algebra, a: Value) -> Value:
    return algebra.divide(a, algebra.add(1, algebra.absolute(a)))


def hard_sigmoid_of(algebra: Algebra, x: Value, alpha: np.float32, beta: np.float32) -> Value:
    """clip(alpha x + beta, 0, 1)."""
    if alpha == np.float32(1 / 6) and beta == 0.5:
        # PyTorch divides by 6
        return activations.hard_sigmoid(algebra, x)
    return algebra.clip(algebra.add(algebra.multiply(alpha, x), beta), 0, 1)


# Operators without attributes: the same in the algebra. `GateAlgebra` has some of its own.
PLAIN: dict[str, Callable[..., Value]] = {
    "Neg": Algebra.negate,
    "Exp": lambda algebra, a: algebra.exp(a),
    "Log": Algebra.log,
    "Sqrt": Algebra.sqrt,
    "Abs": Algebra.absolute,
    "Sign": Algebra.sign,
    "Sigmoid": lambda algebra, a: algebra.sigmoid(a),
    "Tanh": lambda algebra, a: algebra.tanh(a),
    "Reciprocal": lambda algebra, a: algebra.reciprocal(a),
    "Not": Algebra.negation,
    "Add": Algebra.add,
    "Sub": Algebra.subtract,
    "Mul": Algebra.multiply,
    "And": Algebra.both,
    "Or": Algebra.either,
    "Pow": Algebra.power,
    "Where": Algebra.where,
    "Erf": lambda algebra, a: algebra.odd_function("erf", a),
    "Cos": lambda algebra, a: algebra.even_function("cos", a),
    "Relu": activations.relu,
    "Softplus": activations.softplus,
    "Softsign": softsign,
    "Mish": activations.mish,
    "PRelu": activations.leaky_relu,
}
# random functions of their own
FUNCTIONS = {
    **{
        name: name.lower()
        for name in ("Floor", "Ceil", "Round", "Sin", "Tan", "Asin", "Acos", "Atan", "Sinh")
    },
    **{name: name.lower() for name in ("Cosh", "Asinh", "Acosh", "Atanh", "IsNaN", "IsInf")},
}
COMPARISONS = {
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Equal": "eq",
}


@table.operators(*PLAIN)
def plain(call: NodeCall, *inputs: Value) -> Value:
    if call.operator == "Reciprocal":
        _expect_no_zero(call, inputs[0])
    if call.operator == "Mul" and any(
        not isinstance(value, Term | Sizes) and np.isinf(value).any() for value in inputs
    ):
        # NaN at 0, where the field has 0
        call.algebra.sizes.expect(("infinite factor",), "a product with an infinity")
    return PLAIN[call.operator](call.algebra, *inputs)


@table.operators("Clip")
def clip(call: NodeCall, a: Value, low: Value | None = None, high: Value | None = None) -> Value:
    if call.has("min") or call.has("max"):
        # before opset 11, these were attributes
        low, high = call.number("min", -np.inf), call.number("max", np.inf)
    return call.algebra.clip(a, low, high)


@table.operators(*FUNCTIONS)
def function(call: NodeCall, a: Value) -> Value:
    if not (call.get("detect_positive", 1) and call.get("detect_negative", 1)):
        raise UndecidedError("IsInf of one sign")
    kind = "b" if call.operator.startswith("Is") else "f"
    return call.algebra.function(FUNCTIONS[call.operator], a, kind=kind)


@table.operators(*COMPARISONS)
def compare(call: NodeCall, a: Value, b: Value) -> Value:
    return call.algebra.compare(a, b, COMPARISONS[call.operator])


@table.operators("Xor")
def exclusive_or(call: NodeCall, a: Value, b: Value) -> Value:
    if isinstance(a, Term) or isinstance(b, Term):
        return call.algebra.compare(call.algebra.cast(a, np.int64), call.algebra.cast(b, np.int64), "ne")
    return np.asarray(np.logical_xor(known(a, ""), known(b, "")))


@table.operators("Div")
def divide(call: NodeCall, a: Value, b: Value) -> Value:
    if not {kind_of(a), kind_of(b)} <= {"i"}:
        _expect_no_zero(call, b)
        return call.algebra.divide(a, b)
    return call.algebra.integer_function("div trunc", _truncated_quotient, a, b)


def _expect_no_zero(call: NodeCall, divisor: Value) -> None:
    """Note a computed divisor that is 0 for every input: the inverse of 0 is 0 in the field."""
    if isinstance(divisor, Term) and (divisor.data == 0).all(0).any():
        call.algebra.sizes.expect(("zero divisor",), "a division by a value that is always 0")


def _truncated_quotient(a: Array, b: Array) -> Array:
    return np.asarray(np.trunc(a / b).astype(a.dtype))


@table.operators("Mod")
def remainder(call: NodeCall, a: Value, b: Value) -> Value:
    if call.get("fmod", 0):
        return call.algebra.integer_function("fmod", np.fmod, a, b)
    return call.algebra.integer_function("remainder", np.mod, a, b)


@table.operators("Max", "Min", "Sum", "Mean")
def of_several(call: NodeCall, *values: Value) -> Value:
    algebra = call.algebra
    combine = {"Max": algebra.maximum, "Min": algebra.minimum}.get(call.operator, algebra.add)
    result = reduce(combine, values)
    return algebra.scale(result, 1, len(values)) if call.operator == "Mean" else result


@table.operators("LeakyRelu")
def leaky_relu(call: NodeCall, x: Value) -> Value:
    return activations.leaky_relu(call.algebra, x, call.number("alpha", 0.01))


@table.operators("Elu")
def elu(call: NodeCall, x: Value) -> Value:
    return activations.elu(call.algebra, x, call.number("alpha", 1.0))


@table.operators("Celu")
def celu(call: NodeCall, x: Value) -> Value:
    return activations.celu(call.algebra, x, call.number("alpha", 1.0))


@table.operators("Selu")
def selu(call: NodeCall, x: Value) -> Value:
    alpha = call.number("alpha", float(activations.SELU_ALPHA))
    return activations.selu(call.algebra, x, alpha, call.number("gamma", float(activations.SELU_SCALE)))


@table.operators("Gelu")
def gelu(call: NodeCall, x: Value) -> Value:
    return activations.gelu(call.algebra, x, call.get("approximate", "none"))


@table.operators("Swish")
def swish(call: NodeCall, x: Value) -> Value:
    alpha = call.number("alpha", 1.0)
    scaled = x if alpha == 1 else call.algebra.multiply(alpha, x)
    return call.algebra.multiply(x, call.algebra.sigmoid(scaled))


@table.operators("HardSigmoid")
def hard_sigmoid(call: NodeCall, x: Value) -> Value:
    return hard_sigmoid_of(call.algebra, x, call.number("alpha", 0.2), call.number("beta", 0.5))


@table.operators("HardSwish")
def hard_swish(call: NodeCall, x: Value) -> Value:
    return call.algebra.multiply(x, activations.hard_sigmoid(call.algebra, x))


@table.operators("Identity", "Dropout")
def identity(call: NodeCall, x: Value, ratio: Value | None = None, training: Value | None = None) -> Value:
    if training is not None and known(training, "the mode of Dropout").any():
        raise UndecidedError("Dropout in training mode")
    return x


@table.operators("Cast")
def cast(call: NodeCall, x: Value) -> Value:
    dtype = ir.DataType(call.get("to"))
    return call.algebra.cast(x, np.float32 if dtype is ir.DataType.BFLOAT16 else dtype.numpy())


@table.operators("CastLike")
def cast_like(call: NodeCall, x: Value, like: Value) -> Value:
    if isinstance(like, Term):
        return call.algebra.cast(x, {"f": np.float32, "i": np.int64, "b": np.bool_}[like.kind])
    return call.algebra.cast(x, np.asarray(like).dtype)


@table.operators("OneHot")
def one_hot(call: NodeCall, ids: Value, depth: Value, values: Value) -> Value:
    if call.get("axis", -1) != -1:
        raise UndecidedError("OneHot along another axis than the last")
    (count,) = integers(depth, "the depth of OneHot")
    # ids below 0 count from the end; PyTorch has none, so that those of an input are not looked at
    if not isinstance(ids, Term):
        numbers = known(ids, "ids")
        ids = np.where(numbers < 0, numbers + count, numbers)
    places = call.algebra.move(ids, lambda data: data[..., None])
    hot = call.algebra.compare(places, np.arange(count), "eq")
    off, on = known(values, "the values of OneHot")
    return call.algebra.where(hot, on, off)
