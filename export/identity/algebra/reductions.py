"""Reductions of terms along axes. Axes of None, or none at all, are all axes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import (
    Sizes,
    Term,
    UndecidedError,
    Value,
    kind_of,
    known_integers,
    shape_of,
)
from turnpike.export.identity.algebra.joining import stack
from turnpike.export.identity.numbers.error_bound import ATOM

# the dtypes of kinds
KINDS = {"f": np.float32, "i": np.int64}

Axes = int | Iterable[int] | None


def axes_of(value: Value, axes: Axes) -> tuple[int, ...]:
    """Axes of a value in order, counted from the first."""
    rank = len(shape_of(value))
    chosen = [axes] if isinstance(axes, int | np.integer) else list(axes or ())
    return tuple(sorted(int(axis) % max(rank, 1) for axis in chosen)) or tuple(range(rank))


def sum_of(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    chosen = axes_of(a, axes)
    result = algebra.integers(
        lambda array: np.sum(array, axis=chosen, keepdims=keepdims),
        lambda term: sum_of(algebra, term, axes, keepdims=keepdims),
        a,
    )
    if isinstance(result, Sizes):
        return Sizes(result.numbers, algebra.function("of this run: sum", result), result.ledger)
    if result is not None:
        return algebra.of_this_run("sum", np.asarray(result))
    term = algebra.term(a)
    size = term.size.summed(math.prod(term.shape[axis] for axis in chosen))
    data = algebra.numbers.sum(term.data, chosen, keepdims=keepdims)
    total = Term(data, "f" if term.kind == "f" else "i", size)
    algebra.note_sum(total, a, chosen, keepdims=keepdims)
    return total


def mean(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    count = math.prod(shape_of(a)[axis] for axis in axes_of(a, axes))
    return algebra.scale(sum_of(algebra, a, axes, keepdims=keepdims), 1, count)


def variance(
    algebra: Algebra,
    a: Value,
    axes: Axes = None,
    *,
    keepdims: bool = False,
    correction: int = 0,
    count_is_read: bool = False,
) -> Value:
    """The sum of the squared distances from the mean, divided by their number less the correction.

    With `count_is_read`, the program reads the number from the sizes of the tensor.
    """
    count = math.prod(shape_of(a)[axis] for axis in axes_of(a, axes))
    if count <= correction:
        raise UndecidedError(f"a variance of {count} numbers with correction {correction}")
    centered = algebra.subtract(a, mean(algebra, a, axes, keepdims=True))
    if count_is_read and correction:
        chosen = list(axes_of(a, axes))
        read = product_of(algebra, algebra.move(algebra.sizes_of(a), lambda data: data[chosen]))
        square = mean(algebra, algebra.multiply(centered, centered), axes, keepdims=keepdims)
        return algebra.divide(algebra.multiply(square, read), algebra.subtract(read, correction))
    total = sum_of(algebra, algebra.multiply(centered, centered), axes, keepdims=keepdims)
    return algebra.scale(total, 1, count - correction)


def product_of(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    if (integers := known_integers(a)) is not None:
        product = np.prod(integers[0], axis=axes_of(a, axes), keepdims=keepdims)
        return algebra.of_this_run("product", np.asarray(product))
    for axis in reversed(axes_of(a, axes)):
        factors = [_at(algebra, a, axis, index) for index in range(shape_of(a)[axis])]
        a = factors[0] if factors else np.ones((), np.float32)
        for factor in factors[1:]:
            a = algebra.multiply(a, factor)
        if keepdims:
            a = algebra.move(a, lambda data, axis=axis: np.expand_dims(data, axis))
    return a


def _at(algebra: Algebra, a: Value, axis: int, index: int) -> Value:
    return algebra.move(a, lambda data: np.asarray(data.take(index, axis)))


def maximum_of(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    chosen = axes_of(a, axes)
    if (integers := known_integers(a)) is not None:
        largest = np.asarray(np.max(integers[0], axis=chosen, keepdims=keepdims))
        return algebra.of_this_run("maximum", largest)
    term = algebra.term(a)
    kept = [axis for axis in range(term.ndim) if axis not in chosen]
    last = algebra.move(
        term, lambda data: data.transpose(*kept, *chosen).reshape([data.shape[axis] for axis in kept] + [-1])
    )
    result = maximum_of_last(algebra, last)
    sizes = [1 if axis in chosen else size for axis, size in enumerate(term.shape)]
    shape = sizes if keepdims else [term.shape[axis] for axis in kept]
    data = result.data.reshape(-1, *shape)
    return Term(data, term.kind, result.size, term.is_binary)


def maximum_of_last(algebra: Algebra, term: Term) -> Term:
    """The maximum along the last axis: a function of the set of its numbers.

    That of two numbers is made as `maximum` makes it.
    """
    count = term.shape[-1]
    if count <= 2:
        parts = [_at(algebra, term, -1, index) for index in range(count)]
        return algebra.term(parts[0] if count == 1 else algebra.maximum(*parts))
    # numbers of one set are compared with those of others
    algebra.bound.count_function("maximum: element", term.data[0].size, term.size)
    return Term(algebra.numbers.set_function("maximum", term.data), "f", ATOM)


def minimum_of(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    if kind_of(a) == "b":
        return all_of(algebra, a, axes, keepdims=keepdims)
    if isinstance(a, Term) and a.is_binary:
        # torch.onnx writes `all` so
        return algebra.cast(all_of(algebra, a, axes, keepdims=keepdims), KINDS[a.kind])
    return algebra.negate(maximum_of(algebra, algebra.negate(a), axes, keepdims=keepdims))


def any_of(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    result = algebra.term(maximum_of(algebra, algebra.cast(a, np.bool_), axes, keepdims=keepdims))
    return Term(result.data, "b", result.size, is_binary=True)


def all_of(algebra: Algebra, a: Value, axes: Axes = None, *, keepdims: bool = False) -> Value:
    inverted = algebra.negation(algebra.cast(a, np.bool_))
    return algebra.negation(any_of(algebra, inverted, axes, keepdims=keepdims))


def argmax(algebra: Algebra, a: Value, axis: int, *, keepdims: bool) -> Value:
    """Where the largest number is: a function of all numbers in their order."""
    if not isinstance(a, Term):
        raise UndecidedError("argmax of a constant")
    parts = [_at(algebra, a, axis, index) for index in range(a.shape[axis])]
    result = algebra.function("argmax", *parts, kind="i")
    return algebra.move(result, lambda data: np.expand_dims(data, axis)) if keepdims else result


def largest_of(
    algebra: Algebra, a: Value, count: int, axis: int, *, largest: bool = True
) -> tuple[Value, Value]:
    """The largest or smallest numbers along an axis, in order, and their places.

    The first and the last of all are extrema. Each other one is a function of all numbers in their order.
    """
    if not isinstance(a, Term):
        raise UndecidedError("the largest numbers of a constant")
    signed = a if largest else algebra.negate(a)
    total = a.shape[axis]
    parts = [_at(algebra, signed, axis, index) for index in range(total)]
    values: list[Value] = []
    places: list[Value] = []
    for rank in range(count):
        if rank in (0, total - 1):
            extremum = maximum_of if rank == 0 else minimum_of
            values.append(extremum(algebra, signed, axis))
        else:
            values.append(algebra.function(f"number of rank {rank}", *parts))
        if rank == 0:
            places.append(argmax(algebra, signed, axis, keepdims=False))
        else:
            places.append(algebra.function(f"place of rank {rank}", *parts, kind="i"))
    joined = stack(algebra, values, axis)
    return joined if largest else algebra.negate(joined), stack(algebra, places, axis)


def softmax(algebra: Algebra, a: Value, axis: int) -> Value:
    return algebra.softmax(a, axis)


def log_softmax(algebra: Algebra, a: Value, axis: int) -> Value:
    return algebra.log_softmax(a, axis)


def log_sum_exp(algebra: Algebra, a: Value, axes: Axes, *, keepdims: bool = False) -> Value:
    return algebra.log_sum_exp(a, axes_of(a, axes), keepdims=keepdims)


def cumulative_sum(algebra: Algebra, a: Value, axis: int) -> Value:
    if (integers := known_integers(a)) is not None:
        return algebra.of_this_run("cumulative sum", np.cumsum(integers[0], axis))
    term = algebra.function("of this run: addend", a, kind="i") if isinstance(a, Sizes) else algebra.term(a)
    size = term.size.summed(term.shape[axis])
    kind = "f" if term.kind == "f" else "i"
    return Term(algebra.numbers.cumulative_sum(term.data, axis % term.ndim), kind, size)


def norm(algebra: Algebra, a: Value, order: float, axes: Axes, *, keepdims: bool) -> Value:
    if order == 2:
        return algebra.sqrt(sum_of(algebra, algebra.multiply(a, a), axes, keepdims=keepdims))
    if order == 1:
        return sum_of(algebra, algebra.absolute(a), axes, keepdims=keepdims)
    if math.isinf(order):
        reduce = maximum_of if order > 0 else minimum_of
        return reduce(algebra, algebra.absolute(a), axes, keepdims=keepdims)
    raise UndecidedError(f"a norm of order {order}")
