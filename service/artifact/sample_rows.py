"""A row that a model's file brings along, as the model's inputs take it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from service.artifact.datatypes import WIRE_DTYPES
from service.artifact.manifest import Manifest, SampleInput
from service.artifact.runtime import Tensor
from service.inference_types import Array

Inputs = Mapping[str, Tensor]


def to_input_row(one: SampleInput, tensor: Tensor) -> Array:
    """The row in the input's own type and shape."""
    return _converted(_stored(one), tensor).reshape(1, *one.shape)


def check_sample_rows(manifest: Manifest, inputs: Inputs) -> None:
    """Stop with a ValueError unless each sample is a row that the inputs take, and each range of one of them.

    A row is to be posted as JSON, which has a form for finite numbers and none for FP16.
    """
    for one in manifest.ranges:
        if one.input not in inputs:
            raise ValueError(f"ranges: expected an input, {', '.join(inputs)}, got {one.input!r}")
    for number, sample in enumerate(manifest.samples):
        where = f"samples[{number}]"
        names = [row.name for row in sample.inputs]
        if sorted(names) != sorted(inputs):
            raise ValueError(
                f"{where}: expected inputs {', '.join(inputs)}, got {', '.join(names) or 'none'}"
            )
        sizes: dict[str, int] = {}
        for row in sample.inputs:
            _expect_fit(row, inputs[row.name], sizes, where)


def _expect_fit(one: SampleInput, tensor: Tensor, sizes: dict[str, int], where: str) -> None:
    """Of one input; what its named dimensions are goes to `sizes`."""
    shape = (1, *one.shape)
    fits = len(shape) == len(tensor.dims) and all(
        dim in (size, "?") or (isinstance(dim, str) and size == sizes.setdefault(dim, size))
        for size, dim in zip(shape, tensor.dims, strict=True)
    )
    if not fits:
        raise ValueError(f"{where}: expected a row of {tensor}, got one of shape {list(one.shape)}")
    if tensor.dtype == "float16":
        raise ValueError(f"{where}: expected an input that JSON has a form for, got {tensor}")
    stored = _stored(one)
    if not (np.array_equal(_converted(stored, tensor), stored) and np.isfinite(stored).all()):
        raise ValueError(f"{where}: expected finite numbers that fit {tensor}, got others")


def _converted(stored: Array, tensor: Tensor) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return stored.astype(tensor.dtype)


def _stored(one: SampleInput) -> Array:
    return np.frombuffer(one.raw, WIRE_DTYPES[one.dtype])
