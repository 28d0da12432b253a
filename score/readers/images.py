"""Reads folders of images for a model of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow

from turnpike.score.errors import RowsError
from turnpike.score.readers.kept import with_folder_columns
from turnpike.score.readers.parts import Part, RowBatch, spans
from turnpike.service.artifact.signature import Signature
from turnpike.service.cli.picture_files import picture_of, read_picture

# decoding takes longer than scoring, so fewer rows keep a process busy
PART_IMAGES = 2_000


def read_images(
    part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
) -> Iterator[RowBatch]:
    """Each image as a row, in the numbers that the model's file gives black and white; its file is kept."""
    try:
        picture = picture_of(signature)
    except ValueError as error:
        raise RowsError(str(error)) from error
    tensor = signature.inputs[picture.input]
    for start, stop in spans(len(part.files), batch_rows):
        names = part.files[start:stop]
        rows, bad = [], {}
        for index, name in enumerate(names):
            try:
                rows.append(read_picture(Path(part.path) / name, picture, tensor))
            except ValueError as error:
                bad[index] = str(error)
        feeds = {tensor.name: np.stack(rows)} if rows else {}
        kept = with_folder_columns({"file": pyarrow.array(names)}, part, keep, len(names))
        yield RowBatch(feeds, kept, len(names), bad)
