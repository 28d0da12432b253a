"""Tensors of the Open Inference Protocol: shapes, and values as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# size of a dimension that may have any size, in metadata
ANY_SIZE = -1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output in a model's metadata."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def by_row(self) -> bool:
        """Whether the first dimension counts the rows of a request, which it does if its size is free."""
        return bool(self.shape) and self.shape[0] == ANY_SIZE

    def fits(self, shape: Sequence[int], rows: int) -> bool:
        """Whether a tensor of a request with this many rows may have this shape."""
        expected = (rows, *self.shape[1:]) if self.by_row else self.shape
        return len(shape) == len(expected) and all(
            wanted in (ANY_SIZE, size) for size, wanted in zip(shape, expected, strict=True)
        )


def json_numbers(array: Array) -> list[Any]:
    """All values in order, as numbers that JSON can hold without loss."""
    if array.dtype == np.float32:
        # the fewest digits that give the same float32; the digits of the double would be twice as many
        return [float(str(value)) for value in array.ravel()]
    values: list[Any] = array.ravel().tolist()
    return values
