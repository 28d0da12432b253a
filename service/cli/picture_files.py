"""Reads image files as rows of a model, in the numbers that its file gives black and white."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.common.distribution import needing_extra
from turnpike.service.artifact.manifest import PictureInput
from turnpike.service.artifact.sample_rows import picture_size
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.inference_types import Array

ENDINGS = (".png", ".jpg", ".jpeg")
# Pillow's modes of images with more than 8 bits per pixel and channel
DEEP_MODES = ("I", "F")


def picture_of(signature: Signature) -> PictureInput:
    """How pictures become rows of a model.

    Raises:
        ValueError: The model takes none, or its file does not say which numbers black and white are.
    """
    if signature.picture is not None:
        return signature.picture
    tensors = list(signature.inputs.values())
    size = picture_size(tensors[0]) if len(tensors) == 1 and signature.text is None else None
    if size is None:
        raise ValueError(f"expected a model of pictures, got one of {', '.join(map(str, tensors))}")
    height, width, channels = size
    if tensors[0].dtype == "uint8":
        return PictureInput(
            input=tensors[0].name, height=height, width=width, channels=channels, black=0, white=255
        )
    raise ValueError(
        "expected a model that says which numbers black and white are, got one that does not: export it "
        "again with --pixels BLACK:WHITE, such as --pixels 0:255, or send rows of numbers"
    )


def read_picture(path: Path, picture: PictureInput, tensor: Tensor) -> Array:
    """A row of the input from a PNG or JPEG image of the model's size.

    Raises:
        ValueError: The file cannot be read, or has another size.
    """
    with needing_extra("reading pictures", "score"):
        from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.mode.startswith(DEEP_MODES):
                raise ValueError(f"{path}: expected 8 bits per pixel and channel, got mode {image.mode}")
            pixels = np.asarray(image.convert("L" if picture.channels == 1 else "RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        raise ValueError(f"{path}: expected a PNG or JPEG image, cannot read it ({error})") from error
    height, width = pixels.shape[:2]
    if (height, width) != (picture.height, picture.width):
        raise ValueError(f"{path}: expected {picture.width}x{picture.height} pixels, got {width}x{height}")
    return picture_row(pixels, picture, tensor)


def picture_row(pixels: Array, picture: PictureInput, tensor: Tensor) -> Array:
    """A row of the input, of pixels from 0 to 255 in the shape (height, width) or (height, width, 3)."""
    values = picture.black + pixels.astype(np.float64) * ((picture.white - picture.black) / 255)
    if values.ndim == 3 and tensor.dims[1] == picture.channels:
        values = values.transpose(2, 0, 1)
    dtype = np.dtype(WIRE_DTYPES[tensor.dtype])
    if dtype.kind != "f":
        values = values.round()
    row: Array = values.astype(dtype).reshape([int(dim) for dim in tensor.dims[1:]])
    return row
