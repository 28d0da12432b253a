"""Adds the bounds of its interval to a predicted number."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnpike.service.artifact.manifest import Interval
from turnpike.service.inference_types import Array


def interval_bounds(values: Array, interval: Interval) -> tuple[Array, Array]:
    """The lowest and the highest number of the interval of each predicted number, in its dtype."""
    numbers = values.reshape(-1)
    wide = numbers.astype(np.float64)
    low, high = wide - interval.half_width, wide + interval.half_width
    # a sum beyond the dtype's largest number would be infinite, which JSON cannot represent
    limits = np.finfo(numbers.dtype)
    return (
        np.clip(low, limits.min, limits.max).astype(numbers.dtype),
        np.clip(high, limits.min, limits.max).astype(numbers.dtype),
    )


def numbers_of(values: Array, interval: Interval | None) -> list[dict[str, Any]]:
    """For each row its predicted number, and the bounds of its interval if there is one."""
    if interval is None:
        return [{"value": value} for value in values.reshape(-1)]
    low, high = interval_bounds(values, interval)
    return [
        dict(zip(("value", "low", "high"), row, strict=True))
        for row in zip(values.reshape(-1), low, high, strict=True)
    ]
