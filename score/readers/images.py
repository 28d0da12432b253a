"""Reads folders of images for a model of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow

from turnpike.score.errors import RowsError
from turnpike.score.readers.parts import Part, RowBatch, spans
from turnpike.service.artifact.signature import Signature
from turnpike.service.cli.picture_files import picture_of, read_picture

# decoding takes longer than scoring, so fewer rows keep a process busy
PART_IMAGES = 2_000


def image_parts(folder: Path, files: Sequence[Path]) -> Iterator[Part]:
    """Parts of images below a folder."""
    names = [str(file.relative_to(folder)) for file in files]
    for start, stop in spans(len(names), PART_IMAGES):
        yield Part(str(folder), start, stop, files=tuple(names[start:stop]))


def read_images(part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
    """Each image as a row, in the numbers that the model's file gives black and white; its file is kept."""
    try:
        picture = picture_of(signature)
        tensor = signature.inputs[picture.input]
        for start, stop in spans(len(part.files), batch_rows):
            names = part.files[start:stop]
            rows = np.stack([read_picture(Path(part.path) / name, picture, tensor) for name in names])
            yield RowBatch({tensor.name: rows}, {"file": pyarrow.array(names)}, len(names))
    except ValueError as error:
        raise RowsError(str(error)) from error
