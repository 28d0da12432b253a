"""Tensors as bytes: bit for bit, and never from beyond the body."""

from __future__ import annotations

import numpy as np
import pytest

from service.artifact.datatypes import WIRE_DTYPES
from service.errors import RequestError
from service.protocol.tensors import read_binary


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("start", range(9))
def test_bytes_become_the_numbers_they_are(dtype: str, start: int) -> None:
    """Wherever the tensor lies in the body, its array is aligned and holds those bits."""
    data = np.random.default_rng(0).integers(0, 2, 6 * WIRE_DTYPES[dtype].itemsize, np.uint8)
    body = b"\xff" * start + data.tobytes() + b"\xff"
    for held in (body, memoryview(body)):
        got = read_binary(held, start, data.size, (2, 3), WIRE_DTYPES[dtype], "here")
        assert got.tobytes() == data.tobytes()
        assert got.dtype == WIRE_DTYPES[dtype]
        assert got.shape == (2, 3)
        assert got.flags.aligned


def test_an_aligned_tensor_is_not_copied() -> None:
    """Millions of values that lie well stay where they are."""
    body = np.arange(12, dtype="<f4").tobytes()
    assert np.shares_memory(
        read_binary(body, 0, 48, (12,), WIRE_DTYPES["float32"], ""), np.frombuffer(body, "<f4")
    )


def test_nan_and_inf_come_through() -> None:
    """Binary says what JSON cannot, down to the bits of a NaN."""
    data = np.array([0x7FC00001, 0xFF800000, 0x7F800000, 0x80000000], "<u4").tobytes()
    assert read_binary(data, 0, 16, (4,), WIRE_DTYPES["float32"], "").tobytes() == data


@pytest.mark.parametrize("size", [0, 1, 23, 25, 48])
def test_the_size_must_be_that_of_the_shape(size: int) -> None:
    """Both sizes are said, and the place."""
    with pytest.raises(RequestError, match=rf"here: expected 24 bytes for shape \[2, 3\] FP32, got {size}"):
        read_binary(bytes(100), 0, size, (2, 3), WIRE_DTYPES["float32"], "here")


def test_a_body_that_ends_early_is_refused() -> None:
    """A size that the shape bears out, and the body does not."""
    with pytest.raises(RequestError, match="here: expected 24 bytes after the JSON, got 20"):
        read_binary(bytes(24), 4, 24, (2, 3), WIRE_DTYPES["float32"], "here")


def test_a_boolean_is_a_byte_of_0_or_1() -> None:
    """Another byte is no truth value, and kernels are never shown one."""
    with pytest.raises(RequestError, match="here: expected bytes of 0 or 1"):
        read_binary(b"\0\1\2", 0, 3, (3,), WIRE_DTYPES["bool"], "here")


def test_no_values_are_fine() -> None:
    """A tensor of no bytes keeps its shape, at the body's very end too."""
    assert read_binary(b"abcd", 4, 0, (0, 3), WIRE_DTYPES["float32"], "here").shape == (0, 3)
