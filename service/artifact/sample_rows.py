"""Sample rows stored in the manifest, decoded into model inputs and checked against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.service.artifact.manifest import Feature, Manifest, SampleInput
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.inference_types import Array

Inputs = Mapping[str, Tensor]
# rows of fewer numbers are no pictures, though a square of them might be one
MIN_FLAT_PIXELS = 64


def to_input_row(sample_input: SampleInput, tensor: Tensor) -> Array:
    """The sample as an array of the input's dtype, with a batch axis of length 1."""
    return _cast(_decode(sample_input), tensor).reshape(1, *sample_input.shape)


def check_sample_rows(manifest: Manifest, inputs: Inputs) -> None:
    """Raise a ValueError if a sample, a picture or the features do not fit the inputs, or a range has none.

    Samples must be postable as JSON, which has no NaN or infinity, and for which the protocol has no FP16.
    """
    for input_range in manifest.ranges:
        if input_range.input not in inputs:
            raise ValueError(f"ranges: expected an input, {', '.join(inputs)}, got {input_range.input!r}")
    check_picture(manifest, inputs)
    if manifest.features:
        count = len(manifest.features)
        (tensor, *others) = inputs.values()
        if others or len(tensor.dims) != 2 or tensor.dims[1] not in (count, "?"):
            got = ", ".join(map(str, inputs.values()))
            raise ValueError(f"features: expected one input with {count} columns, got {got}")
    for number, sample in enumerate(manifest.samples):
        where = f"samples[{number}]"
        names = [sample_input.name for sample_input in sample.inputs]
        if sorted(names) != sorted(inputs):
            raise ValueError(
                f"{where}: expected inputs {', '.join(inputs)}, got {', '.join(names) or 'none'}"
            )
        # sizes of named dimensions, which must agree over all inputs of a sample
        sizes: dict[str, int] = {}
        for sample_input in sample.inputs:
            _expect_fit(sample_input, inputs[sample_input.name], sizes, where, manifest.features)


def _expect_fit(
    sample_input: SampleInput,
    tensor: Tensor,
    sizes: dict[str, int],
    where: str,
    features: Sequence[Feature],
) -> None:
    """Check one input of a sample, whose blanks are NaN, and add its named dimensions to `sizes`."""
    shape = (1, *sample_input.shape)
    fits = len(shape) == len(tensor.dims) and all(
        dim in (size, "?") or (isinstance(dim, str) and size == sizes.setdefault(dim, size))
        for size, dim in zip(shape, tensor.dims, strict=True)
    )
    if not fits:
        raise ValueError(f"{where}: expected a row of {tensor}, got one of shape {list(sample_input.shape)}")
    if tensor.dtype == "float16":
        raise ValueError(f"{where}: expected an input that can be sent as JSON, got {tensor}")
    stored = _decode(sample_input)
    blank = np.isnan(stored) & [feature.blanks for feature in features] if features else np.False_
    known = np.where(blank, 0, stored)
    if not (np.array_equal(_cast(known, tensor), known) and np.isfinite(known).all()):
        raise ValueError(f"{where}: expected finite numbers that fit {tensor}, got others")


def _cast(stored: Array, tensor: Tensor) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return stored.astype(tensor.dtype)


def _decode(sample_input: SampleInput) -> Array:
    return np.frombuffer(sample_input.raw, WIRE_DTYPES[sample_input.dtype])


def picture_size(tensor: Tensor) -> tuple[int, int, int] | None:
    """Height, width and channels of the pictures that fit the rows of an input; None if none do.

    A row may be [channels, height, width], [height, width, channels], [height, width], or a flat square.
    """
    dims = tensor.dims[1:]
    sizes = [dim for dim in dims if isinstance(dim, int)]
    if len(sizes) < len(dims) or not sizes or min(sizes) < 1:
        return None
    if len(sizes) == 3 and sizes[0] in (1, 3):
        return sizes[1], sizes[2], sizes[0]
    if len(sizes) == 3 and sizes[2] in (1, 3):
        return sizes[0], sizes[1], sizes[2]
    if len(sizes) == 2 and min(sizes) > 1:
        return sizes[0], sizes[1], 1
    side = math.isqrt(sizes[0])
    if len(sizes) == 1 and sizes[0] >= MIN_FLAT_PIXELS and side * side == sizes[0]:
        return side, side, 1
    return None


def check_picture(manifest: Manifest, inputs: Mapping[str, Tensor]) -> None:
    """Raise a ValueError if pictures of the manifest do not fit the inputs."""
    picture = manifest.picture
    if picture is None:
        return
    size = (picture.height, picture.width, picture.channels)
    if list(inputs) != [picture.input] or picture_size(inputs[picture.input]) != size:
        got = ", ".join(map(str, inputs.values()))
        raise ValueError(
            f"picture: expected one input {picture.input!r} of {picture.width}x{picture.height} pixels and "
            f"{picture.channels} channels, got {got}"
        )
