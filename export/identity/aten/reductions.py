"""Reductions of ATen: sums, means, extrema, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from turnpike.export.identity.algebra import reductions
from turnpike.export.identity.algebra.arithmetic.terms import Sizes, Term, UndecidedError, Value, shape_of
from turnpike.export.identity.aten.operator_table import Call, OperatorTable

table = OperatorTable()
Dims = Any


@table.operators("sum")
def sum_of(
    call: Call,
    self_: Value | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
    **primitive: Any,
) -> Value:
    """prims.sum calls the input `inp`."""
    x = primitive["inp"] if self_ is None else self_
    return reductions.sum_of(call.algebra, x, primitive.get("dims", dim), keepdims=keepdim)


@table.operators("mean")
def mean(call: Call, self_: Value, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return reductions.mean(call.algebra, self_, dim, keepdims=keepdim)


@table.operators("var", "std", "var_mean", "std_mean")
def variance(
    call: Call,
    self_: Value | None = None,
    dim: Dims = None,
    correction: float | None = 1,
    keepdim: bool = False,
    unbiased: bool = True,
    **primitive: Any,
) -> Any:
    """The variance divides by the number of values less the correction. prims.var calls the input `inp`."""
    x = primitive["inp"] if self_ is None else self_
    dim = primitive.get("dims", dim)
    if "correction" not in call.overload and self_ is not None:
        correction = int(unbiased)
    number = 1 if correction is None else correction
    if number != int(number):
        raise UndecidedError(f"a variance with correction {correction}")
    example = call.node.args[0].meta["val"] if isinstance(call.node.args[0], fx.Node) else None
    axes = reductions.axes_of(x, dim)
    # torch.onnx reads all sizes if one of them is dynamic
    is_read = example is not None and any(isinstance(example.shape[axis], torch.SymInt) for axis in axes)
    value = reductions.variance(
        call.algebra, x, dim, keepdims=keepdim, correction=int(number), count_is_read=is_read
    )
    value = call.algebra.sqrt(value) if call.operator.startswith("std") else value
    if call.operator.endswith("mean"):
        return value, reductions.mean(call.algebra, x, dim, keepdims=keepdim)
    return value


@table.operators("amax", "amin", "max.default", "min.default", "max.dim", "min.dim")
def extremum(call: Call, self_: Value, dim: Dims = None, keepdim: bool = False) -> Any:
    is_largest = "max" in call.operator
    reduce = reductions.maximum_of if is_largest else reductions.minimum_of
    value = reduce(call.algebra, self_, dim, keepdims=keepdim)
    if call.overload != "dim":
        return value
    if all(user.args[1] == 0 for user in call.node.users):
        return value, None
    signed = self_ if is_largest else call.algebra.negate(self_)
    return value, reductions.argmax(call.algebra, signed, dim, keepdims=keepdim)


@table.operators("argmax", "argmin")
def argmax(call: Call, self_: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    signed = self_ if call.operator == "argmax" else call.algebra.negate(self_)
    if dim is None:
        signed, dim = call.algebra.move(signed, lambda data: data.reshape(-1)), 0
    return reductions.argmax(call.algebra, signed, dim, keepdims=keepdim)


@table.operators("topk", "sort")
def sorted_along(
    call: Call,
    self_: Value,
    k: int | None = None,
    dim: int = -1,
    largest: bool = True,
    descending: bool = False,
    **_: Any,
) -> tuple[Value, Value]:
    """`sort` begins with the smallest by default, and `topk` with the largest."""
    from_largest = largest if call.operator == "topk" else descending
    count = shape_of(self_)[dim] if k is None else k
    return reductions.largest_of(call.algebra, self_, count, dim % len(shape_of(self_)), largest=from_largest)


@table.operators("any", "all")
def any_of(call: Call, self_: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    if not isinstance(self_, Term | Sizes):
        axis = tuple(dim) if isinstance(dim, list) else dim
        return np.asarray((np.any if call.operator == "any" else np.all)(self_, axis=axis, keepdims=keepdim))
    reduce = reductions.any_of if call.operator == "any" else reductions.all_of
    if not isinstance(dim, list) or len(dim) < 2:
        return reduce(call.algebra, self_, dim, keepdims=keepdim)
    # one axis after the other, as torch.onnx writes it
    result: Value = self_
    for axis in dim:
        result = reduce(call.algebra, result, axis, keepdims=True)
    places = tuple(axis % len(shape_of(self_)) for axis in dim)
    return result if keepdim else call.algebra.move(result, lambda data: data.squeeze(places))


@table.operators("prod")
def product(call: Call, self_: Value, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return reductions.product_of(call.algebra, self_, dim, keepdims=keepdim)


@table.operators("softmax", "_softmax")
def softmax(call: Call, self_: Value, dim: int, **_: Any) -> Value:
    return reductions.softmax(call.algebra, self_, dim)


@table.operators("log_softmax", "_log_softmax")
def log_softmax(call: Call, self_: Value, dim: int, **_: Any) -> Value:
    return reductions.log_softmax(call.algebra, self_, dim)


@table.operators("logsumexp")
def log_sum_exp(call: Call, self_: Value, dim: Dims, keepdim: bool = False) -> Value:
    return reductions.log_sum_exp(call.algebra, self_, dim, keepdims=keepdim)


@table.operators("cumsum")
def cumulative_sum(call: Call, self_: Value, dim: int, dtype: Any = None) -> Value:
    return reductions.cumulative_sum(call.algebra, self_, dim)


@table.operators("logcumsumexp")
def cumulative_log_sum_exp(call: Call, self_: Value, dim: int) -> Value:
    """With the maximum of all numbers, as torch.onnx has it."""
    algebra = call.algebra
    largest = reductions.maximum_of(algebra, self_, dim, keepdims=True)
    powers = algebra.exp(algebra.subtract(self_, largest))
    return algebra.add(algebra.log(reductions.cumulative_sum(algebra, powers, dim)), largest)


# `ord` is the name in the schema
@table.operators("linalg_vector_norm")
def norm(
    call: Call,
    self_: Value,
    ord: float = 2,  # noqa: A002
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Value:
    algebra, order = call.algebra, float(ord)
    if order == 0:
        nonzero = algebra.cast(algebra.cast(self_, np.bool_), call.dtype)
        return reductions.sum_of(algebra, nonzero, dim, keepdims=keepdim)
    if order in (1, 2) or np.isinf(order):
        return reductions.norm(algebra, self_, order, dim, keepdims=keepdim)
    # an even power needs no absolute value
    size = self_ if order > 0 and order % 2 == 0 else algebra.absolute(self_)
    total = reductions.sum_of(algebra, algebra.power(size, np.float32(order)), dim, keepdims=keepdim)
    return algebra.power(total, np.float32(1 / order))
