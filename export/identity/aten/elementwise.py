"""Elementwise operators of ATen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from turnpike.export.identity.algebra import activations
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Term,
    UndecidedError,
    Value,
    joint_kind,
    kind_of,
    shape_of,
)
from turnpike.export.identity.algebra.normalizations import per_channel
from turnpike.export.identity.aten.operator_table import DTYPES, Call, OperatorTable

table = OperatorTable()

# operators of one argument: the same in the algebra
UNARY: dict[str, Callable[[Algebra, Value], Value]] = {
    "neg": Algebra.negate,
    "exp": Algebra.exp,
    "log": Algebra.log,
    "sqrt": Algebra.sqrt,
    "rsqrt": lambda algebra, a: algebra.reciprocal(algebra.sqrt(a)),
    "abs": Algebra.absolute,
    "sign": Algebra.sign,
    "sgn": Algebra.sign,
    "sigmoid": Algebra.sigmoid,
    "tanh": Algebra.tanh,
    "reciprocal": Algebra.reciprocal,
    "square": lambda algebra, a: algebra.multiply(a, a),
    "log1p": lambda algebra, a: algebra.log(algebra.add(1, a)),
    "expm1": lambda algebra, a: algebra.subtract(algebra.exp(a), 1),
    "trunc": Algebra.truncate,
    "fix": Algebra.truncate,
    "frac": lambda algebra, a: algebra.subtract(a, algebra.truncate(a)),
    "exp2": lambda algebra, a: algebra.power(np.float32(2), a),
    "isposinf": lambda algebra, a: algebra.both(
        algebra.compare(a, 0, "gt"), algebra.function("isinf", a, kind="b")
    ),
    "isneginf": lambda algebra, a: algebra.both(
        algebra.compare(a, 0, "lt"), algebra.function("isinf", a, kind="b")
    ),
    "logical_not": lambda algebra, a: algebra.negation(algebra.cast(a, np.bool_)),
    "bitwise_not": lambda algebra, a: (
        algebra.negation(a) if kind_of(a) == "b" else algebra.subtract(np.int64(-1), a)
    ),
    "erf": lambda algebra, a: algebra.odd_function("erf", a),
    "cos": lambda algebra, a: algebra.even_function("cos", a),
    "relu": activations.relu,
    "relu6": lambda algebra, a: algebra.clip(a, 0, 6),
    "silu": activations.silu,
    "selu": activations.selu,
    "mish": activations.mish,
    "hardsigmoid": activations.hard_sigmoid,
    "hardswish": lambda algebra, a: algebra.multiply(a, activations.hard_sigmoid(algebra, a)),
}
# random functions of their own
FUNCTIONS = [
    "floor",
    "ceil",
    "round.default",
    "sin",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
]
FUNCTIONS += ["atanh", "isnan", "isinf"]
BINARY: dict[str, Callable[[Algebra, Value, Value], Value]] = {
    "mul": Algebra.multiply,
    "maximum": Algebra.maximum,
    "minimum": Algebra.minimum,
}
LOGICAL: dict[str, Callable[[Algebra, Value, Value], Value]] = {
    "and": Algebra.both,
    "or": Algebra.either,
    "xor": lambda algebra, a, b: algebra.compare(a, b, "ne"),
}
BITWISE: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


QUOTIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "floor": np.floor_divide,
    "trunc": lambda a, b: np.trunc(a / b).astype(a.dtype),
}


@table.operators(*UNARY)
def unary(call: Call, self_: Value) -> Value:
    return UNARY[call.operator](call.algebra, self_)


@table.operators("round.decimals")
def round_decimals(call: Call, self_: Value, decimals: int) -> Value:
    algebra, shift = call.algebra, np.float32(10.0**decimals)
    return algebra.divide(algebra.function("round", algebra.multiply(self_, shift)), shift)


@table.operators(*FUNCTIONS)
def function(call: Call, self_: Value) -> Value:
    kind = "b" if call.operator.startswith("is") else "f"
    return call.algebra.function(call.operator, self_, kind=kind)


@table.operators("log2", "log10")
def log_of_base(call: Call, self_: Value) -> Value:
    """Divided by the logarithm of the base, which torch.onnx rounds."""
    base = np.float32(call.operator.removeprefix("log"))
    return call.algebra.divide(call.algebra.log(self_), np.log(base))


@table.operators("logaddexp")
def log_of_two_powers(call: Call, self_: Value, other: Value) -> Value:
    powers = call.algebra.add(call.algebra.exp(self_), call.algebra.exp(other))
    return call.algebra.log(powers)


@table.operators("logit")
def logit(call: Call, self_: Value, eps: Any = None) -> Value:
    if eps is not None:
        raise UndecidedError("logit with eps")
    return call.algebra.log(call.algebra.divide(self_, call.algebra.subtract(1, self_)))


@table.operators("sinc")
def sinc(call: Call, self_: Value) -> Value:
    """sin(pi x) / (pi x), and 1 at 0."""
    algebra = call.algebra
    angle = algebra.multiply(self_, np.float32(np.pi))
    ratio = algebra.divide(algebra.function("sin", angle), angle)
    return algebra.where(algebra.compare(self_, 0, "eq"), 1, ratio)


@table.operators(*BINARY, "max.other", "min.other")
def binary(call: Call, self_: Value, other: Value) -> Value:
    name = {"max": "maximum", "min": "minimum"}.get(call.operator, call.operator)
    return BINARY[name](call.algebra, self_, other)


@table.operators(*(f"logical_{name}" for name in LOGICAL), *(f"bitwise_{name}" for name in BITWISE))
def combine_bits(call: Call, self_: Value, other: Value) -> Value:
    name = call.operator.partition("_")[2]
    if call.operator.startswith("bitwise") and joint_kind(self_, other) != "b":
        if isinstance(self_, Term) or isinstance(other, Term):
            raise UndecidedError(f"{call.operator} of integers")
        return np.asarray(BITWISE[name](self_, other))
    a, b = (call.algebra.cast(value, np.bool_) for value in (self_, other))
    return LOGICAL[name](call.algebra, a, b)


@table.operators("add", "sub")
def add(call: Call, self_: Value, other: Value, alpha: Value = 1) -> Value:
    if call.operator == "add" and alpha == 1 and joint_kind(self_, other) == "b":
        # PyTorch's sum of booleans is a boolean
        return call.algebra.either(self_, other)
    if alpha != 1:
        other = call.algebra.multiply(other, alpha)
    return (call.algebra.add if call.operator == "add" else call.algebra.subtract)(self_, other)


@table.operators("rsub")
def subtract_from(call: Call, self_: Value, other: Value, alpha: Value = 1) -> Value:
    if alpha != 1:
        self_ = call.algebra.multiply(self_, alpha)
    return call.algebra.subtract(other, self_)


@table.operators("div", "floor_divide")
def divide(call: Call, self_: Value, other: Value, rounding_mode: str | None = None) -> Value:
    rounding = "floor" if call.operator == "floor_divide" else rounding_mode
    if rounding is None:
        return call.algebra.divide(self_, other)
    if joint_kind(self_, other) == "f":
        if rounding == "floor":
            return call.algebra.floor_quotient(self_, other)
        return call.algebra.truncate(call.algebra.divide(self_, other))
    return _rounded_quotient(call, self_, other, rounding)


@table.operators("__rshift__.Scalar", "bitwise_right_shift.Tensor_Scalar")
def shift_right(call: Call, self_: Value, other: int) -> Value:
    """floor(a / 2^n). PyTorch shifts no further than all bits: then the sign remains."""
    limits = np.iinfo(call.dtype)
    if 0 <= other < limits.bits - (limits.min < 0):
        return _rounded_quotient(call, self_, np.asarray(2**other, np.int64), "floor")
    is_negative = call.algebra.compare(self_, 0, "lt") if limits.min < 0 else np.asarray(False)
    return call.algebra.subtract(call.algebra.multiply(self_, 0), call.algebra.cast(is_negative, np.int64))


def _rounded_quotient(call: Call, a: Value, b: Value, rounding: str) -> Value:
    """Of integers."""
    if np.dtype(call.dtype).kind == "u":
        rounding = "trunc"
    if rounding == "floor" and (isinstance(a, Term) or isinstance(b, Term)):
        return _floor_quotient(call.algebra, a, b)
    return call.algebra.integer_function(f"div {rounding}", QUOTIENTS[rounding], a, b)


def _floor_quotient(algebra: Algebra, a: Value, b: Value) -> Value:
    """Of integers: one less than the truncated quotient if the signs differ and the remainder is not 0."""
    quotient = algebra.integer_function("div trunc", QUOTIENTS["trunc"], a, b)
    differ = algebra.compare(algebra.compare(a, 0, "lt"), algebra.compare(b, 0, "gt"), "eq")
    rest = algebra.cast(algebra.integer_function("remainder", np.mod, a, b), np.bool_)
    return algebra.subtract(quotient, algebra.cast(algebra.both(differ, rest), np.int64))


@table.operators("remainder", "fmod")
def remainder(call: Call, self_: Value, other: Value) -> Value:
    if call.operator == "remainder" and joint_kind(self_, other) == "f":
        whole = call.algebra.floor_quotient(self_, other)
        return call.algebra.subtract(self_, call.algebra.multiply(whole, other))
    function = np.mod if call.operator == "remainder" else np.fmod
    return call.algebra.integer_function(call.operator, function, self_, other)


@table.operators("pow")
def power(call: Call, exponent: Value, self_: Value) -> Value:
    return call.algebra.power(self_, exponent)


@table.operators("gt", "ge", "lt", "le", "eq", "ne")
def compare(call: Call, self_: Value, other: Value) -> Value:
    return call.algebra.compare(self_, other, call.operator)


@table.operators("where")
def where(call: Call, condition: Value, self_: Value, other: Value) -> Value:
    return call.algebra.where(condition, self_, other)


@table.operators("masked_fill")
def masked_fill(call: Call, self_: Value, mask: Value, value: Value) -> Value:
    return call.algebra.where(mask, value, self_)


@table.operators("lerp")
def interpolate(call: Call, self_: Value, end: Value, weight: Value) -> Value:
    step = call.algebra.multiply(weight, call.algebra.subtract(end, self_))
    return call.algebra.add(self_, step)


@table.operators("addcmul", "addcdiv")
def add_product(call: Call, self_: Value, tensor1: Value, tensor2: Value, value: Value = 1) -> Value:
    combine = call.algebra.multiply if call.operator == "addcmul" else call.algebra.divide
    return call.algebra.add(self_, call.algebra.multiply(combine(tensor1, tensor2), value))


@table.operators("leaky_relu")
def leaky_relu(call: Call, self_: Value, negative_slope: Value) -> Value:
    return activations.leaky_relu(call.algebra, self_, negative_slope)


@table.operators("prelu", "_prelu_kernel")
def prelu(call: Call, self_: Value, weight: Value) -> Value:
    if len(shape_of(weight)) == 1:
        slopes = per_channel(call.algebra, weight, len(shape_of(self_)))
        weight = weight if slopes is None else slopes
    return activations.leaky_relu(call.algebra, self_, weight)


@table.operators("elu")
def elu(call: Call, self_: Value, alpha: Value, scale: Value, input_scale: Value) -> Value:
    return activations.elu(call.algebra, self_, alpha, scale, input_scale)


@table.operators("celu")
def celu(call: Call, self_: Value, alpha: Value) -> Value:
    return activations.celu(call.algebra, self_, alpha)


@table.operators("log_sigmoid", "log_sigmoid_forward")
def log_sigmoid(call: Call, self_: Value) -> Any:
    value = call.algebra.log(call.algebra.sigmoid(self_))
    return (value, None) if call.operator == "log_sigmoid_forward" else value


@table.operators("softplus")
def softplus(call: Call, self_: Value, beta: Value, threshold: Value) -> Value:
    """PyTorch's own is linear above the threshold."""
    algebra = call.algebra
    scaled = algebra.multiply(beta, self_)
    curved = algebra.divide(activations.softplus(algebra, scaled), beta)
    return algebra.where(algebra.compare(scaled, threshold, "gt"), self_, curved)


@table.operators("gelu")
def gelu(call: Call, self_: Value, approximate: str) -> Value:
    return activations.gelu(call.algebra, self_, approximate)


@table.operators("hardtanh", "clamp", "clamp_min", "clamp_max")
def clamp(call: Call, self_: Value, **limits: Value) -> Value:
    low, high = limits.get("min_val", limits.get("min")), limits.get("max_val", limits.get("max"))
    return call.algebra.clip(self_, low, high)


@table.operators("glu")
def glu(call: Call, self_: Value, dim: int) -> Value:
    half = shape_of(self_)[dim] // 2
    a = call.algebra.move(self_, lambda data: data.take(range(half), dim))
    b = call.algebra.move(self_, lambda data: data.take(range(half, 2 * half), dim))
    return call.algebra.multiply(a, call.algebra.sigmoid(b))


@table.operators("convert_element_type")
def convert(call: Call, a: Value, dtype: Any) -> Value:
    return call.algebra.cast(a, DTYPES[dtype])


@table.operators("_to_copy", "to", "type_as")
def to(call: Call, self_: Value, **_: Any) -> Value:
    return call.algebra.cast(self_, call.dtype)


@table.operators("one_hot")
def one_hot(call: Call, self_: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise UndecidedError("one_hot without a number of classes")
    ids = call.algebra.move(self_, lambda data: data[..., None])
    hot = call.algebra.compare(ids, np.arange(num_classes), "eq")
    return call.algebra.cast(hot, np.int64)


@table.operators("isfinite")
def is_finite(call: Call, self_: Value) -> Value:
    algebra = call.algebra
    strange = [algebra.function(name, self_, kind="b") for name in ("isinf", "isnan")]
    return algebra.both(*map(algebra.negation, strange))


@table.operators("heaviside")
def step(call: Call, self_: Value, values: Value) -> Value:
    algebra = call.algebra
    side = algebra.where(algebra.compare(self_, 0, "lt"), np.float32(0), np.float32(1))
    return algebra.where(algebra.compare(self_, 0, "eq"), values, side)


@table.operators("atan2")
def angle_of(call: Call, self_: Value, other: Value) -> Value:
    algebra = call.algebra
    half_turn = np.array(math.pi, call.dtype)
    angle = algebra.function("atan", algebra.divide(self_, other))
    behind = algebra.where(
        algebra.compare(self_, 0, "lt"),
        algebra.subtract(angle, half_turn),
        algebra.add(angle, half_turn),
    )
    is_origin = algebra.both(algebra.compare(other, 0, "eq"), algebra.compare(self_, 0, "eq"))
    forward = algebra.where(algebra.compare(other, 0, "lt"), behind, angle)
    return algebra.where(is_origin, 0, forward)


@table.operators("xlogy")
def product_with_log(call: Call, self_: Value, other: Value) -> Value:
    algebra = call.algebra
    product = algebra.multiply(self_, algebra.log(other))
    product = algebra.where(algebra.function("isnan", other, kind="b"), other, product)
    return algebra.where(algebra.compare(self_, 0, "eq"), self_, product)


@table.operators("erfc")
def complement_of_erf(call: Call, self_: Value) -> Value:
    return call.algebra.subtract(1, call.algebra.odd_function("erf", self_))
