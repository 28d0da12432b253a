"""A tensor as its bytes: little-endian, row-major, without gaps."""

from __future__ import annotations

import math

import numpy as np

from service.artifact.datatypes import DATATYPES
from service.errors import RequestError
from service.inference_types import Array


def read_binary(
    body: bytes | memoryview,
    start: int,
    size: int,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    where: str,
) -> Array:
    """The array of `size` bytes of the body from `start` on; it may be a view of them."""
    expected = math.prod(shape) * dtype.itemsize
    if size != expected:
        raise RequestError(
            f"{where}: expected {expected} bytes for shape {list(shape)} {DATATYPES[dtype.name]}, got {size}"
        )
    if start + size > len(body):
        raise RequestError(
            f"{where}: expected {size} bytes after the JSON, got {len(body) - start} that are left"
        )
    if not size:
        return np.empty(shape, dtype)
    array = np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise RequestError(f"{where}: expected bytes of 0 or 1 (BOOL), got another")
    # kernels may count on numbers that lie where numbers of their size do
    return array if array.flags.aligned else array.copy()
