"""Reads .npy files, whose first axis is that of the rows, without loading them whole, and .npz files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.errors import RowsError
from turnpike.score.readers.bad_rows import BadRowsError, good_rows
from turnpike.score.readers.cells import array_feeds
from turnpike.score.readers.columns import shaped
from turnpike.score.readers.kept import with_folder_columns
from turnpike.score.readers.numbers import expected_number, misfits
from turnpike.score.readers.parts import PART_ROWS, Part, RowBatch, spans, to_arrow
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.inference_types import Array

# bytes of all arrays in an .npz file
MAX_UNPACKED_BYTES = 4 << 30


class NumpyReader:
    """Reads the rows of an array for a model with one input, or of an array for each input by its name."""

    def split(self, path: str) -> Iterator[Part]:
        arrays = _opened(path)
        rows = len(next(iter(arrays.values())))
        # the arrays of an .npz file can only be loaded whole
        for start, stop in spans(rows, PART_ROWS if "" in arrays else max(rows, 1)):
            yield Part(path, start, stop, first_row=start + 1)

    def read(
        self, part: Part, signature: Signature, batch_rows: int, keep: Sequence[str] | None
    ) -> Iterator[RowBatch]:
        arrays = {name: array[part.start : part.stop] for name, array in _opened(part.path).items()}
        inputs = _inputs(arrays, signature, part.path)
        others = {
            name: array for name, array in arrays.items() if not any(array is one for one in inputs.values())
        }
        for start, stop in spans(part.stop - part.start, batch_rows):
            first_row = part.first_row + start

            def convert(indices: Array, start: int = start, first_row: int = first_row) -> dict[str, Array]:
                rows = slice(start + indices[0], start + indices[-1] + 1)
                picked = indices - indices[0]
                whole = len(picked) == rows.stop - rows.start
                return {
                    name: _feed(
                        values[rows] if whole else values[rows][picked],
                        signature,
                        signature.inputs[name],
                        part.path,
                        first_row + indices,
                    )
                    for name, values in inputs.items()
                }

            feeds, bad = good_rows(stop - start, convert)
            kept = {name: to_arrow(values[start:stop]) for name, values in others.items()}
            yield RowBatch(feeds, with_folder_columns(kept, part, keep, stop - start), stop - start, bad)


def _inputs(arrays: dict[str, Array], signature: Signature, path: str) -> dict[str, Array]:
    """The array of each input: by its name, or the only one."""
    names = list(signature.inputs)
    if len(names) == len(arrays) == 1:
        return {names[0]: next(iter(arrays.values()))}
    if "" in arrays:
        raise RowsError(f"{path}: expected tables, or .npz, since the model has several inputs")
    if missing := [name for name in names if name not in arrays]:
        raise RowsError(
            f"{path}: expected arrays {', '.join(names)}, and {missing[0]!r} is not among {', '.join(arrays)}"
        )
    return {name: arrays[name] for name in names}


def _feed(values: Array, signature: Signature, tensor: Tensor, path: str, numbers: Array) -> Array:
    """The input for rows with these numbers in their file."""
    if signature.columns:
        if values.ndim != 2 or values.shape[1] != len(signature.features):
            raise RowsError(
                f"{path}: expected {len(signature.features)} cells in each row, got {values.shape[1:]}"
            )
        return array_feeds(
            values, signature, lambda index, name: f"{path}, row {numbers[index]}, column {name!r}"
        )[tensor.name]
    dtype = WIRE_DTYPES[tensor.dtype]
    flat = values.reshape(-1)
    width = len(flat) // len(values)
    if len(bad := misfits(flat, dtype)):
        expected = expected_number(dtype)
        raise BadRowsError(
            {
                index
                // width: f"{path}, row {numbers[index // width]}: expected {expected}, got {flat[index]}"
                for index in bad[::-1].tolist()
            }
        )
    return shaped(np.asarray(values, dtype).reshape(len(values), -1), tensor, path)


def _opened(path: str) -> dict[str, Array]:
    """The arrays of an .npz file by name, or that of an .npy file as ""."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > MAX_UNPACKED_BYTES:
                raise RowsError(
                    f"{path}: expected arrays of at most {MAX_UNPACKED_BYTES:,} bytes, since an .npz file is "
                    f"read whole, got {size:,}: an .npy file is read in parts"
                )
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded.items())
    except OSError as error:
        raise RowsError(f"{path}: expected a file that can be read ({error.strerror or error})") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RowsError(f"{path}: expected a .npy or .npz file, got something else ({error})") from error
    for name, array in arrays.items():
        minimum = 2 if name == "" else 1
        if not isinstance(array, np.ndarray) or array.ndim < minimum or array.dtype.kind not in "biuf":
            place = f"{path}: " if name == "" else f"{path}, array {name!r}: "
            raise RowsError(f"{place}expected an array of numbers with one row along its first axis each")
    if len({len(array) for array in arrays.values()}) != 1:
        raise RowsError(f"{path}: expected arrays with the same number of rows")
    return arrays
