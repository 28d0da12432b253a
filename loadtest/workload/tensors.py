"""Tensors as the Open Inference Protocol names, shapes and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# a dimension that may have any size
FREE = -1

# numbers are little-endian on the wire, whatever the machine
DTYPES = {
    "BOOL": np.dtype("bool"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output, as a model's metadata tells it."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def by_row(self) -> bool:
        """Whether its first dimension is free, and so counts the rows of a request."""
        return bool(self.shape) and self.shape[0] == FREE

    def fits(self, shape: Sequence[int], rows: int) -> bool:
        """Whether a tensor of this shape is what a request of so many rows has here."""
        expected = (rows, *self.shape[1:]) if self.by_row else self.shape
        return len(shape) == len(expected) and all(
            wanted in (FREE, size) for size, wanted in zip(shape, expected, strict=True)
        )


def numbers(array: Array) -> list[Any]:
    """All values in order, as JSON can tell them without loss."""
    if array.dtype == np.float32:
        # the fewest digits that give the same float32 again; as a double it would have twice as many
        return [float(str(value)) for value in array.ravel()]
    values: list[Any] = array.ravel().tolist()
    return values
