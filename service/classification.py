"""Class probabilities, and the classification extension: the best classes of each row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnpike.service.inference_types import Array


def probabilities(values: Array, *, distribution: bool, axis: int = -1) -> Array:
    """Probabilities along an axis: the softmax of logits, or a distribution as it is, in float64."""
    values = values.astype(np.float64)
    if distribution:
        return values
    # in place: the copy of float64 is ours
    values -= values.max(axis=axis, keepdims=True, initial=-np.inf)
    np.exp(values, out=values)
    values /= values.sum(axis=axis, keepdims=True)
    return values


def top_classes(values: Array, count: int) -> Array:
    """Indices of the `count` greatest values of each row, the greatest first; of equal values, the first."""
    # reversed before and after sorting, so that a stable sort puts the first of equal values first
    reversed_order = np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return values.shape[1] - 1 - reversed_order[:, :count]


def classification(
    array: Array, rows: int, count: int, labels: Sequence[str]
) -> tuple[tuple[int, int], list[str]]:
    """The best classes of each row as strings `value:index[:label]`.

    Args:
        array: The output.
        rows: The rows of the request. An output without a batch axis counts as one row.
        count: How many classes to return for each row.
        labels: The model's labels; used if the output has one value for each.

    Returns:
        The shape (rows, classes), and the strings in a flat list.
    """
    shape = array.shape if array.shape[:1] == (rows,) else (1, *array.shape)
    width = math.prod(shape[1:])
    values = array.reshape(shape[0], width)
    classes = top_classes(values, count)
    has_labels = len(labels) == width
    return classes.shape, [
        f"{value:.6f}:{index}:{labels[index]}" if has_labels else f"{value:.6f}:{index}"
        for row, best in zip(values, classes, strict=True)
        for value, index in zip(row[best].tolist(), best.tolist(), strict=True)
    ]
