"""The best classes of a row, and how sure the model is of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from service.inference_types import Array


def probabilities(values: Array, *, distribution: bool) -> Array:
    """Values per class, along the last axis, as probabilities: logits by softmax, a distribution as it is."""
    wide = values.astype(np.float64)
    if distribution:
        return wide
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=-1, keepdims=True)


def top_classes(values: Array, count: int) -> Array:
    """The places of the `count` greatest values of each row, the greatest first; of equal ones the first."""
    turned = np.argsort(values[:, ::-1], axis=1, kind="stable")[:, ::-1]
    return values.shape[1] - 1 - turned[:, :count]


def classification(
    array: Array, rows: int, count: int, labels: Sequence[str]
) -> tuple[tuple[int, int], list[str]]:
    """The best classes of each row as `value:index[:label]`, in a flat list, and the shape of that.

    Labels are those of an output that has as many values a row.
    """
    # an output without a batch axis is one row
    shape = array.shape if array.shape[:1] == (rows,) else (1, *array.shape)
    width = math.prod(shape[1:])
    values = array.reshape(shape[0], width)
    places = top_classes(values, count)
    named = len(labels) == width
    return places.shape, [
        f"{value:.6f}:{place}:{labels[place]}" if named else f"{value:.6f}:{place}"
        for row, chosen in zip(values, places, strict=True)
        for value, place in zip(row[chosen].tolist(), chosen.tolist(), strict=True)
    ]
