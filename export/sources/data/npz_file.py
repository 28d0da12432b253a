"""Reads the rows, classes and texts of an .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turnpike.export.errors import SourceError, one_line
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Array, Rows
from turnpike.export.sources.data.labels import read_distinct_names
from turnpike.export.sources.data.row_arrays import MAX_ROWS_USED, TEXTS_KEY, build_rows, describe, shorten
from turnpike.service.artifact.manifest import Feature

MAX_NPZ_BYTES = 2 << 30
# keys of an .npz file: arrays of the test split come first
CLASS_KEYS = ("y", "classes")
KEY_SUFFIXES = ("_test", "")


def npz_rows(
    path: Path,
    inputs: tuple[InputSpec, ...],
    labels: Sequence[str] = (),
    max_bytes: int = MAX_NPZ_BYTES,
    max_rows: int = MAX_ROWS_USED,
    *,
    features: Sequence[Feature] = (),
    with_texts: bool = False,
) -> tuple[Rows, tuple[str, ...]]:
    """The rows of an .npz file: one array per input, under its name, and the classes as `y` or `classes`.

    The array of a single input may be called `x`. If there are `x_test` and `y_test`, they are preferred. All
    arrays of the file together may take `max_bytes`. `with_texts` also reads an array `texts`, if there is
    one.
    """
    where = str(path)
    names = {name for spec in inputs for name in (spec.name, "x")} | ({TEXTS_KEY} if with_texts else set())
    arrays = _read_arrays(path, {f"{name}{suffix}" for name in names for suffix in KEY_SUFFIXES}, max_bytes)
    # the array of each input, all with the same suffix
    selected: dict[str, Array] = {}
    suffixes = set()
    for spec in inputs:
        bases = (spec.name, "x") if len(inputs) == 1 else (spec.name,)
        keys = [f"{base}{suffix}" for suffix in KEY_SUFFIXES for base in bases]
        key = next((key for key in keys if key in arrays), None)
        if key is None:
            raise SourceError(f"{where}: expected an array {spec.name!r}, got {', '.join(arrays) or 'none'}")
        selected[spec.name] = arrays[key]
        suffixes.add("_test" if key.endswith("_test") and not spec.name.endswith("_test") else "")
    if len(suffixes) > 1:
        raise SourceError(f"{where}: expected a _test array for every input or for none")
    # the classes with the same suffix, and the labels
    class_names = _label_names(arrays["labels"], where) if "labels" in arrays else ()
    suffix = suffixes.pop()
    raw_classes = next((arrays[f"{key}{suffix}"] for key in CLASS_KEYS if f"{key}{suffix}" in arrays), None)
    true = None if raw_classes is None else _true_answers(raw_classes, tuple(labels) or class_names, where)
    raw_texts = arrays.get(f"{TEXTS_KEY}{suffix}") if with_texts else None
    texts = () if raw_texts is None else _texts(raw_texts, where)
    return build_rows(selected, true, inputs, where, max_rows, texts, features), class_names


def _true_answers(array: Array, labels: Sequence[str], where: str) -> Array:
    """The class of each row. Without labels, an array of decimals has the numbers to predict instead."""
    if array.dtype.kind == "f" and array.ndim == 1 and not labels:
        if not np.isfinite(array).all():
            raise SourceError(f"{where}: expected finite numbers to predict, got others")
        return array
    return class_numbers(array, labels, where)


def _label_names(array: Array, where: str) -> tuple[str, ...]:
    """The names of the classes: an array of strings, of their bytes in UTF-8, or of numbers."""
    names = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    try:
        return read_distinct_names(list(map(str, names.tolist())))
    except SourceError as error:
        raise SourceError(f"{where}: labels: {error}") from error


def _texts(array: Array, where: str) -> tuple[str, ...]:
    """The texts of an array of strings, or of their bytes in UTF-8."""
    if array.ndim != 1 or array.dtype.kind not in "SU":
        raise SourceError(f"{where}: {TEXTS_KEY}: expected one string per row, got {describe(array)}")
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        # strings that UTF-8 cannot represent could not be sent to a service
        return tuple(text.encode().decode() for text in texts.tolist())
    except (UnicodeError, ValueError) as error:
        raise SourceError(f"{where}: {TEXTS_KEY}: expected strings in UTF-8, got others") from error


def class_numbers(classes: Array, labels: Sequence[str], where: str) -> Array:
    """Convert classes, which may be given as labels, to column numbers of the output.

    If the labels are numbers themselves, classes are labels: 7 is the class called 7, not column 7.
    """
    if classes.ndim != 1 or classes.dtype.kind not in "buiSU":
        raise SourceError(
            f"{where}: expected one class per row, as integers or names, got {describe(classes)}"
        )
    if not len(classes):
        return np.zeros(0, np.int64)
    are_names = classes.dtype.kind in "SU"
    values = np.char.decode(classes, "utf-8", "replace") if classes.dtype.kind == "S" else classes
    if are_names and not labels:
        raise SourceError(
            f"{where}: expected integers as classes, as there are no labels, got {str(values[0])!r}"
        )
    if are_names or (labels and all(label.isdecimal() for label in labels)):
        columns = {label: column for column, label in enumerate(labels)}
        names = list(map(str, values.tolist()))
        if unknown := [name for name in names if name not in columns]:
            raise SourceError(f"{where}: expected classes of {shorten(labels)}, got {unknown[0]!r}")
        return np.array([columns[name] for name in names], np.int64)
    class_count = len(labels) or np.iinfo(np.int32).max
    if not 0 <= int(values.min()) <= int(values.max()) < class_count:
        raise SourceError(
            f"{where}: expected classes from 0 to {class_count - 1}, got {values.min()} to {values.max()}"
        )
    return values.astype(np.int64)


def _read_arrays(path: Path, names: set[str], max_bytes: int) -> dict[str, Array]:
    """The arrays with these names, and those of the classes and labels, of an .npz file."""
    where = str(path)
    if not zipfile.is_zipfile(path):
        raise SourceError(f"{where}: expected an .npz file, as numpy.savez writes it, got something else")
    keys = {*names, "labels", *(f"{key}{suffix}" for key in CLASS_KEYS for suffix in KEY_SUFFIXES)}
    try:
        with zipfile.ZipFile(path) as archive:
            _expect_size(where, sum(info.file_size for info in archive.infolist()), max_bytes)
        # no pickles: opening an array of Python objects would run code
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if key in keys}
    except SourceError:
        raise
    except Exception as error:  # a damaged file makes zipfile, zlib and NumPy raise almost anything
        raise SourceError(
            f"{where}: expected arrays of numbers, cannot read them ({one_line(error)})"
        ) from error
    # NumPy returns a member without its header as bytes
    invalid = [key for key, array in arrays.items() if not isinstance(array, np.ndarray) or array.ndim == 0]
    if invalid:
        raise SourceError(f"{where}: {invalid[0]}: expected an array of rows, got something else")
    return arrays


def _expect_size(where: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise SourceError(
            f"{where}: expected at most {max_bytes >> 30} GiB of rows, got {size / 2**30:.1f} GiB"
        )
