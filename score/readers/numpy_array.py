"""Reads .npy files, whose first axis is that of the rows, without loading them whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.errors import RowsError
from turnpike.score.readers.cells import cell_feeds
from turnpike.score.readers.columns import fitting, shaped
from turnpike.score.readers.parts import PART_ROWS, Part, RowBatch, spans
from turnpike.service.artifact.signature import Signature
from turnpike.service.inference_types import Array


class NumpyReader:
    """Reads rows for a model with one input."""

    def split(self, path: Path) -> Iterator[Part]:
        for start, stop in spans(len(_opened(path)), PART_ROWS):
            yield Part(str(path), start, stop)

    def read(self, part: Part, signature: Signature, batch_rows: int) -> Iterator[RowBatch]:
        if len(signature.inputs) != 1:
            raise RowsError(f"{part.path}: expected tables, since the model has several inputs")
        (tensor,) = signature.inputs.values()
        dtype = WIRE_DTYPES[tensor.dtype]
        rows = _opened(Path(part.path))[part.start : part.stop]
        for start, stop in spans(len(rows), batch_rows):
            values = rows[start:stop]
            if signature.columns:
                yield self._read_cells(values, signature, part, start)
                continue
            fitting(values, dtype, partial(_row_text, part.path, part.start + start, values[0].size))
            array = shaped(np.asarray(values, dtype).reshape(stop - start, -1), tensor, part.path)
            yield RowBatch({tensor.name: array}, {}, stop - start)

    def _read_cells(self, values: Array, signature: Signature, part: Part, start: int) -> RowBatch:
        features = signature.features
        if values.ndim != 2 or values.shape[1] != len(features):
            raise RowsError(
                f"{part.path}: expected {len(features)} cells in each row, got {values.shape[1:]}"
            )
        cells = {name: values[:, index].tolist() for index, name in enumerate(features)}
        feeds = cell_feeds(
            cells,
            signature,
            lambda index, name: f"{part.path}, row {part.start + start + index + 1}, column {name!r}",
        )
        return RowBatch(feeds, {}, len(values))


def _row_text(path: str, first: int, width: int, index: int) -> str:
    return f"{path}, row {first + index // width + 1}"


def _opened(path: Path) -> Array:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise RowsError(f"{path}: expected a file that can be read ({error.strerror})") from error
    except (ValueError, EOFError) as error:
        raise RowsError(f"{path}: expected a .npy file, got something else ({error})") from error
    if not isinstance(array, np.ndarray) or array.ndim < 2 or array.dtype.kind not in "biuf":
        raise RowsError(f"{path}: expected an array of numbers with one row along its first axis each")
    return array
