"""NumPy .npz files with a user's arrays: x and y, and optionally x_test, y_test and labels."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]

ARRAY_NAMES = ("x", "y", "x_test", "y_test", "labels")


def read_npz(path: Path) -> RawDataset:
    """Read rows x (rows, *shape) of numbers, and their classes y as integers or strings.

    Rows with three axes are images (channels, height, width). If there are `labels`, y has their indices
    or names. Otherwise the labels are the sorted distinct values of y and y_test.
    """
    arrays = _read_arrays(path)
    suffixes = ("", "_test") if "x_test" in arrays else ("",)
    classes = [_to_classes(f"{path}: y{suffix}", arrays[f"y{suffix}"]) for suffix in suffixes]
    values, labels = _find_labels(path, arrays.get("labels"), classes)
    splits = []
    for suffix, y in zip(suffixes, classes, strict=True):
        x = _to_rows(f"{path}: x{suffix}", arrays[f"x{suffix}"])
        if len(x) != len(y):
            raise DataError(f"{path}: y{suffix}: expected {len(x)} classes, one per row, got {len(y)}")
        splits.append(Split(x, _class_indices(f"{path}: y{suffix}", y, values)))
    rows, test = splits[0], splits[1] if len(splits) == 2 else None
    if test is not None and _describe_rows(test.x) != _describe_rows(rows.x):
        raise DataError(
            f"{path}: x_test: expected {_describe_rows(rows.x)} as in x, got {_describe_rows(test.x)}"
        )
    return RawDataset(path.stem, rows, test, labels, "image" if rows.x.dim() == 4 else "numbers")


def _read_arrays(path: Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: expected an .npz file, as numpy.savez writes it, got something else")
    try:
        # no pickles: an array of Python objects could run code when it is opened
        with np.load(path, allow_pickle=False) as archive:
            keys = archive.files
            arrays = {key: archive[key] for key in keys if key in ARRAY_NAMES}
    except Exception as error:  # a damaged file makes zipfile, zlib and NumPy raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{path}: expected arrays of numbers or strings, cannot read them ({reason})"
        ) from error
    required = {"x", "y"} | ({"x_test", "y_test"} if {"x_test", "y_test"} & set(keys) else set())
    # NumPy returns a member without its header as bytes
    all_arrays = all(isinstance(array, np.ndarray) for array in arrays.values())
    if not all_arrays or not required <= set(keys) <= set(ARRAY_NAMES):
        expected = "arrays x and y, and optionally x_test with y_test, and labels"
        raise DataError(f"{path}: expected {expected}, got {', '.join(keys) or 'none'}")
    return arrays


def _to_rows(where: str, array: Array) -> Tensor:
    """Convert to uint8, int64 or float32, whichever fits the array's dtype."""
    if array.ndim < 2 or 0 in array.shape:
        raise DataError(f"{where}: expected shape (rows, *shape of a row), got {array.shape}")
    kind = array.dtype.kind
    if kind not in "buif":
        raise DataError(f"{where}: expected numbers, got {array.dtype}")
    if kind in "bui":
        is_byte = array.dtype.itemsize == 1 and kind != "i"
        return torch.from_numpy(np.ascontiguousarray(array, np.uint8) if is_byte else _to_int64(where, array))
    with np.errstate(over="ignore"):  # an overflow gives infinity, which is reported below
        rows = np.ascontiguousarray(array, np.float32)
    finite = np.isfinite(rows).reshape(len(rows), -1).all(1)
    if not finite.all():
        raise DataError(f"{where}: expected finite numbers within float32, row {finite.argmin()} has others")
    return torch.from_numpy(rows)


def _to_classes(where: str, array: Array) -> Array:
    """Convert to int64 or strings."""
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"{where}: expected one class per row, got shape {array.shape}")
    if array.dtype.kind not in "buiSU":
        raise DataError(f"{where}: expected integers or strings, got {array.dtype}")
    return _to_strings(where, array) if array.dtype.kind in "SU" else _to_int64(where, array)


def _find_labels(
    path: Path, labels_array: Array | None, classes: list[Array]
) -> tuple[Array, tuple[str, ...]]:
    """Return the value that stands for each class in y, and the label of each class."""
    if len({array.dtype.kind for array in classes}) > 1:
        raise DataError(
            f"{path}: y_test: expected classes as in y, got {classes[1].dtype} for {classes[0].dtype}"
        )
    if labels_array is None:
        values = np.unique(np.concatenate(classes))
        labels = tuple(map(str, values.tolist()))
    else:
        where = f"{path}: labels"
        if labels_array.ndim != 1:
            raise DataError(f"{where}: expected one name per class, got shape {labels_array.shape}")
        names = _to_strings(where, labels_array)
        labels = tuple(names.tolist())
        values = names if classes[0].dtype.kind == "U" else np.arange(len(labels))
        if len(set(labels)) < len(labels):
            raise DataError(f"{where}: expected distinct names, got {', '.join(labels)}")
    if len(labels) < 2:
        raise DataError(f"{path}: expected 2 classes or more, got {len(labels)}")
    return values, labels


def _class_indices(where: str, classes: Array, values: Array) -> Tensor:
    """Return the index in `values` of each row's class."""
    order = np.argsort(values)
    indices = order[np.searchsorted(values[order], classes).clip(max=len(values) - 1)]
    unknown = values[indices] != classes
    if unknown.any():
        row = int(unknown.argmax())
        raise DataError(
            f"{where}: expected one of {len(values)} classes, {values[0]} to {values[-1]}, "
            f"got {classes[row]} in row {row}"
        )
    return torch.from_numpy(indices.astype(np.int64))


def _to_int64(where: str, array: Array) -> Array:
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise DataError(f"{where}: expected integers that fit int64, got {array.max()}")
    return np.ascontiguousarray(array, np.int64)


def _to_strings(where: str, array: Array) -> Array:
    if array.dtype.kind not in "SU":
        raise DataError(f"{where}: expected strings, got {array.dtype}")
    try:
        strings = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(np.str_)
        # a damaged file may have numbers in place of characters, which are only noticed when they are used
        strings.tolist()
    except (UnicodeDecodeError, ValueError, SystemError) as error:
        raise DataError(f"{where}: expected strings in UTF-8, got other bytes") from error
    return strings


def _describe_rows(x: Tensor) -> str:
    return f"rows of {str(x.dtype).removeprefix('torch.')} {tuple(x.shape[1:])}"
