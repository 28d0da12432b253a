"""Finds the first value of a tensor in JSON that does not fit, for the error message.

Only called for a tensor that was refused. Others are read all at once, without a look at each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from simdjson import Array as JsonArray

from turnpike.service.codec.json_document import kind, quoted, to_json
from turnpike.service.codec.tensors import NUMBER_READERS, is_nested, value_range
from turnpike.service.errors import RequestError

# Arrays and values that are looked at one by one, in less than 20 ms. A fault behind them is not found.
MAX_STEPS = 8192
# the parser counts no further than this
MAX_COUNTED = 2**24 - 1


def first_fault(
    data: object,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    where: str,
    member: str = "",
    features: Sequence[str] = (),
) -> RequestError | None:
    """The error for the first place where values differ from the shape or the dtype; None if none is found.

    Args:
        data: The values, flat or nested like the shape.
        shape: The shape that they should have.
        dtype: The dtype that they should have.
        where: Names the values in the message.
        member: Follows the first index in the message, such as `.x` in `instances[0].x[3]`.
        features: The names of the values of a row, which the message has in place of the last index.
    """
    if not isinstance(data, JsonArray):
        return None
    finder = _FaultFinder(dtype, where, member, features)
    return finder.find(data, shape if is_nested(data) else (prod(shape),), ())


class _FaultFinder:
    def __init__(self, dtype: np.dtype[Any], where: str, member: str, features: Sequence[str]) -> None:
        self._dtype = dtype
        self._where = where
        self._member = member
        self._features = features
        self._steps_left = MAX_STEPS

    def find(self, value: Any, shape: tuple[int, ...], path: tuple[int, ...]) -> RequestError | None:
        """The error for the first fault in `value`, which is at this path of indices."""
        self._steps_left -= 1
        if not shape:
            return self._value_error(value, path)
        if type(value) is not JsonArray:
            return self._error(path, f"an array of {_count(shape[0], shape[1:])}, got {kind(value)}")
        size, *rest = shape
        if len(value) >= MAX_COUNTED:
            return None
        if len(value) != size:
            # values of another type say more than their number
            error = self.find(value[0], (), (*path, 0)) if not rest and len(value) else None
            if error or not (path or rest):
                # the general error has the number of all values
                return error
            return self._error(path, f"{_count(size, rest)}, got {len(value)}")
        if not rest and self._is_good(value):
            return None
        for index, item in enumerate(value):
            if self._steps_left <= 0:
                break
            if error := self.find(item, tuple(rest), (*path, index)):
                return error
        return None

    def _is_good(self, row: JsonArray) -> bool:
        """Whether an array has only values of the dtype. This is much faster than to look at each."""
        reader = NUMBER_READERS.get(self._dtype)
        if reader is None:
            return False
        try:
            reader.read(row, "")
        except RequestError:
            return False
        return to_json(row).count(b"[") == 1

    def _value_error(self, value: Any, path: tuple[int, ...]) -> RequestError | None:
        kind_of_dtype = self._dtype.kind
        if kind_of_dtype == "b":
            return None if type(value) is bool else self._error(path, f"true or false, got {kind(value)}")
        if type(value) not in (int, float):
            return self._error(path, f"a {'' if kind_of_dtype == 'f' else 'whole '}number, got {kind(value)}")
        if kind_of_dtype == "f":
            fits = self._is_finite(value)
        else:
            info = np.iinfo(self._dtype)
            fits = type(value) is int and info.min <= value <= info.max
        return None if fits else self._error(path, f"{value_range(self._dtype)}, got {value}")

    def _is_finite(self, value: float) -> bool:
        try:
            return bool(np.isfinite(np.float64(value).astype(self._dtype)))
        except RuntimeWarning:  # NumPy's warning of an overflow is an error here, see tensors.py
            return False

    def _error(self, path: tuple[int, ...], message: str) -> RequestError:
        if self._features and len(path) == 2:
            row, column = path
            feature = quoted(self._features[column])
            return RequestError(f"{self._where}[{row}], feature {feature}: expected {message}")
        indices = [f"[{index}]" for index in path]
        indices.insert(1, self._member)
        return RequestError(f"{self._where}{''.join(indices)}: expected {message}")


def _count(size: int, rest: Any) -> str:
    """The number of values or arrays in an array."""
    noun = "array" if rest else "value"
    return f"{size} {noun}" if size == 1 else f"{size} {noun}s"
