"""Reads folders of images for a model with one input of channels, height and width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow
from PIL import Image, UnidentifiedImageError

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.errors import RowsError
from turnpike.score.readers.parts import Part, RowBatch, spans
from turnpike.service.artifact.signature import Signature
from turnpike.service.inference_types import Array

ENDINGS = (".png", ".jpg", ".jpeg")
# decoding takes longer than scoring, so fewer rows keep a process busy
PART_IMAGES = 2_000
# Pillow's mode by the number of channels
MODES = {1: "L", 3: "RGB"}


def image_parts(folder: Path, files: Sequence[Path]) -> Iterator[Part]:
    """Parts of images below a folder."""
    names = [str(file.relative_to(folder)) for file in files]
    for start, stop in spans(len(names), PART_IMAGES):
        yield Part(str(folder), start, stop, files=tuple(names[start:stop]))


def read_images(part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
    """The pixels of each image, from 0 to 255, as images are given to training; its file is kept."""
    shapes = [tensor.dims[1:] for tensor in signature.inputs.values()]
    if len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][0] not in MODES:
        inputs = ", ".join(map(str, signature.inputs.values()))
        raise RowsError(f"{part.path}: expected a model of images [channels, height, width], got {inputs}")
    (tensor,) = signature.inputs.values()
    channels, height, width = tensor.dims[1:]
    for start, stop in spans(len(part.files), batch_rows):
        names = part.files[start:stop]
        arrays = [_pixels(Path(part.path) / name, int(channels)) for name in names]
        for name, array in zip(names, arrays, strict=True):
            if array.shape[1:] != (height, width):
                raise RowsError(
                    f"{Path(part.path) / name}: expected {width}x{height} pixels, "
                    f"got {array.shape[2]}x{array.shape[1]}"
                )
        pixels = np.stack(arrays).astype(WIRE_DTYPES[tensor.dtype])
        yield RowBatch({tensor.name: pixels}, {"file": pyarrow.array(names)}, len(names))


def _pixels(path: Path, channels: int) -> Array:
    """The image as (channels, height, width)."""
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert(MODES[channels]))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        raise RowsError(f"{path}: expected a PNG or JPEG image, cannot read it ({error})") from error
    return pixels[np.newaxis] if channels == 1 else pixels.transpose(2, 0, 1)
