"""Normalizations of terms."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Value, shape_of
from turnpike.export.identity.algebra.reductions import mean, variance


def normalize(algebra: Algebra, x: Value, center: Value, spread: Value, epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon); programs have epsilon in float32."""
    root = algebra.sqrt(algebra.add(spread, np.float32(epsilon)))
    return algebra.divide(algebra.subtract(x, center), root)


def affine(algebra: Algebra, x: Value, weight: Value | None, bias: Value | None) -> Value:
    x = x if weight is None else algebra.multiply(x, weight)
    return x if bias is None else algebra.add(x, bias)


def layer_norm(
    algebra: Algebra, x: Value, axes: Iterable[int], weight: Value | None, bias: Value | None, epsilon: float
) -> Value:
    chosen = list(axes)
    center = mean(algebra, x, chosen, keepdims=True)
    spread = variance(algebra, x, chosen, keepdims=True)
    return affine(algebra, normalize(algebra, x, center, spread, epsilon), weight, bias)


def rms_norm(algebra: Algebra, x: Value, axes: Iterable[int], weight: Value | None, epsilon: float) -> Value:
    square = mean(algebra, algebra.multiply(x, x), list(axes), keepdims=True)
    root = algebra.sqrt(algebra.add(square, np.float32(epsilon)))
    return affine(algebra, algebra.divide(x, root), weight, None)


def per_channel(algebra: Algebra, vector: Value | None, rank: int) -> Value | None:
    """A vector shaped so that it is broadcast along the channels of (rows, channels, ...)."""
    if vector is None:
        return None
    return algebra.move(vector, lambda data: data.reshape(-1, *(1,) * (rank - 2)))


def batch_norm(
    algebra: Algebra,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    center: Value,
    spread: Value,
    epsilon: float,
) -> Value:
    """With the statistics of the training."""
    rank = len(shape_of(x))
    center, spread = (
        algebra.move(vector, lambda data: data.reshape(-1, *(1,) * (rank - 2))) for vector in (center, spread)
    )
    normalized = normalize(algebra, x, center, spread, epsilon)
    return affine(algebra, normalized, per_channel(algebra, weight, rank), per_channel(algebra, bias, rank))


def group_norm(
    algebra: Algebra, x: Value, groups: int, weight: Value | None, bias: Value | None, epsilon: float
) -> Value:
    shape = shape_of(x)
    parts = algebra.move(x, lambda data: data.reshape(shape[0], groups, -1))
    normalized = layer_norm(algebra, parts, [-1], None, None, epsilon)
    whole = algebra.move(normalized, lambda data: data.reshape(shape))
    weight, bias = (per_channel(algebra, vector, len(shape)) for vector in (weight, bias))
    return affine(algebra, whole, weight, bias)
