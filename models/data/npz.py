"""A user's own arrays: a NumPy .npz file of x and y, and where they like x_test, y_test and labels."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.data.dataset import RawDataset, Split
from models.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]

ARRAY_NAMES = ("x", "y", "x_test", "y_test", "labels")


def read_npz(path: Path) -> RawDataset:
    """Rows x (rows, *shape) of numbers, and their classes y as integers or strings.

    Rows of three axes are images (channels, height, width). The classes are those of `labels`, by
    number or by name; without it, the sorted distinct values of y and y_test.
    """
    arrays = _read_arrays(path)
    suffixes = ("", "_test") if "x_test" in arrays else ("",)
    classes = [_classes(f"{path}: y{suffix}", arrays[f"y{suffix}"]) for suffix in suffixes]
    values, labels = _labels(path, arrays.get("labels"), classes)
    splits = []
    for suffix, of_rows in zip(suffixes, classes, strict=True):
        x = _rows(f"{path}: x{suffix}", arrays[f"x{suffix}"])
        if len(x) != len(of_rows):
            raise DataError(f"{path}: y{suffix}: expected {len(x)} classes, one per row, got {len(of_rows)}")
        splits.append(Split(x, _numbered(f"{path}: y{suffix}", of_rows, values)))
    rows, test = splits[0], splits[1] if len(splits) == 2 else None
    if test is not None and _row(test.x) != _row(rows.x):
        raise DataError(f"{path}: x_test: expected {_row(rows.x)} as in x, got {_row(test.x)}")
    return RawDataset(path.stem, rows, test, labels, "image" if rows.x.dim() == 4 else "numbers")


def _read_arrays(path: Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: expected an .npz file, as numpy.savez writes it, got something else")
    try:
        # without pickles: an array of Python objects would run code as it is opened
        with np.load(path, allow_pickle=False) as archive:
            keys = archive.files
            arrays = {key: archive[key] for key in keys if key in ARRAY_NAMES}
    except Exception as exc:  # a damaged file makes zipfile, zlib and NumPy raise almost anything
        reason = " ".join(str(exc).split()) or type(exc).__name__
        raise DataError(
            f"{path}: expected arrays of numbers or strings, cannot read them ({reason})"
        ) from exc
    needed = {"x", "y"} | ({"x_test", "y_test"} if {"x_test", "y_test"} & set(keys) else set())
    # a member without NumPy's header comes back as bytes
    good = all(isinstance(array, np.ndarray) for array in arrays.values())
    if not good or not needed <= set(keys) <= set(ARRAY_NAMES):
        wanted = "arrays x and y, and if wanted x_test with y_test, and labels"
        raise DataError(f"{path}: expected {wanted}, got {', '.join(keys) or 'none'}")
    return arrays


def _rows(where: str, array: Array) -> Tensor:
    """As uint8, int64 or float32, whichever holds the numbers."""
    if array.ndim < 2 or 0 in array.shape:
        raise DataError(f"{where}: expected shape (rows, *shape of a row), got {array.shape}")
    kind = array.dtype.kind
    if kind not in "buif":
        raise DataError(f"{where}: expected numbers, got {array.dtype}")
    if kind in "bui":
        small = array.dtype.itemsize == 1 and kind != "i"
        return torch.from_numpy(np.ascontiguousarray(array, np.uint8) if small else _int64(where, array))
    with np.errstate(over="ignore"):  # what overflows is found below
        rows = np.ascontiguousarray(array, np.float32)
    finite = np.isfinite(rows).reshape(len(rows), -1).all(1)
    if not finite.all():
        raise DataError(f"{where}: expected finite numbers within float32, row {finite.argmin()} has others")
    return torch.from_numpy(rows)


def _classes(where: str, array: Array) -> Array:
    """As int64 or as strings."""
    if array.ndim != 1 or array.size == 0:
        raise DataError(f"{where}: expected one class per row, got shape {array.shape}")
    if array.dtype.kind not in "buiSU":
        raise DataError(f"{where}: expected integers or strings, got {array.dtype}")
    return _strings(where, array) if array.dtype.kind in "SU" else _int64(where, array)


def _labels(path: Path, given: Array | None, classes: list[Array]) -> tuple[Array, tuple[str, ...]]:
    """What stands for each class in y, and what it is called."""
    if len({array.dtype.kind for array in classes}) > 1:
        raise DataError(
            f"{path}: y_test: expected classes as in y, got {classes[1].dtype} for {classes[0].dtype}"
        )
    if given is None:
        values = np.unique(np.concatenate(classes))
        labels = tuple(map(str, values.tolist()))
    else:
        where = f"{path}: labels"
        if given.ndim != 1:
            raise DataError(f"{where}: expected one name per class, got shape {given.shape}")
        names = _strings(where, given)
        labels = tuple(names.tolist())
        values = names if classes[0].dtype.kind == "U" else np.arange(len(labels))
        if len(set(labels)) < len(labels):
            raise DataError(f"{where}: expected distinct names, got {', '.join(labels)}")
    if len(labels) < 2:
        raise DataError(f"{path}: expected 2 classes or more, got {len(labels)}")
    return values, labels


def _numbered(where: str, classes: Array, values: Array) -> Tensor:
    """The place of each row's class in `values`."""
    order = np.argsort(values)
    places = order[np.searchsorted(values[order], classes).clip(max=len(values) - 1)]
    strange = values[places] != classes
    if strange.any():
        row = int(strange.argmax())
        raise DataError(
            f"{where}: expected one of {len(values)} classes, {values[0]} to {values[-1]}, "
            f"got {classes[row]} in row {row}"
        )
    return torch.from_numpy(places.astype(np.int64))


def _int64(where: str, array: Array) -> Array:
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise DataError(f"{where}: expected integers that fit int64, got {array.max()}")
    return np.ascontiguousarray(array, np.int64)


def _strings(where: str, array: Array) -> Array:
    if array.dtype.kind not in "SU":
        raise DataError(f"{where}: expected strings, got {array.dtype}")
    try:
        return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(np.str_)
    except UnicodeDecodeError as exc:
        raise DataError(f"{where}: expected strings in UTF-8, got other bytes") from exc


def _row(x: Tensor) -> str:
    return f"rows of {str(x.dtype).removeprefix('torch.')} {tuple(x.shape[1:])}"
