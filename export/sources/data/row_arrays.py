"""Checks arrays of rows against the inputs of a network, and converts them to its datatypes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnpike.export.errors import SourceError
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Array, Rows
from turnpike.service.artifact.manifest import Feature

# enough rows for the quantiles of gates; more would only take longer
MAX_ROWS_USED = 2_000
# key of the texts in an .npz file
TEXTS_KEY = "texts"


def build_rows(
    arrays: dict[str, Array],
    true: Array | None,
    inputs: tuple[InputSpec, ...],
    where: str,
    max_rows: int,
    texts: tuple[str, ...] = (),
    features: Sequence[Feature] = (),
) -> Rows:
    """At most `max_rows` of the rows, always the same ones, in the datatypes of the inputs.

    Args:
        arrays: The rows of each input.
        true: The classes, or the numbers to predict, if they are known.
        inputs: The inputs of the network.
        where: Beginning of error messages.
        max_rows: The most rows to take.
        texts: The texts that the rows were made from, if they are known.
        features: The columns of a table, which say which cells may be blank.
    """
    sizes: dict[str, int] = {}
    for spec in inputs:
        expect_shape(arrays[spec.name], spec, sizes, f"{where}: {spec.name}")
    count = len(arrays[inputs[0].name])
    for name, array in arrays.items():
        if len(array) != count:
            raise SourceError(
                f"{where}: {name}: expected {count} rows as in {inputs[0].name}, got {len(array)}"
            )
    if true is not None and len(true) != count:
        raise SourceError(f"{where}: expected {count} classes, one per row, got {len(true)}")
    if texts and len(texts) != count:
        raise SourceError(f"{where}: {TEXTS_KEY}: expected {count} texts, one per row, got {len(texts)}")
    selected = _select_rows(count, max_rows)
    converted = {
        spec.name: convert_rows(
            arrays[spec.name][selected], spec, f"{where}: {spec.name}", selected, features
        )
        for spec in inputs
    }
    selected_texts = tuple(texts[row] for row in selected.tolist()) if texts else ()
    if true is None:
        return Rows(converted, texts=selected_texts)
    if true.dtype.kind == "f":
        return Rows(converted, texts=selected_texts, numbers=true[selected])
    return Rows(converted, true[selected], selected_texts)


def expect_shape(array: Array, spec: InputSpec, sizes: dict[str, int], where: str) -> None:
    """Raise a SourceError unless an array has the shape of rows for an input.

    Args:
        array: The rows.
        spec: The input.
        sizes: Sizes of the dynamic dimensions seen so far, by name; those of this array are added.
        where: Beginning of the message.
    """
    fits = array.ndim == len(spec.dims) and array.size > 0
    for dim, size in zip(spec.dims[1:], array.shape[1:], strict=False):
        fits = fits and size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
    if not fits:
        expected = ", ".join(str(sizes.get(str(dim), dim)) for dim in spec.dims[1:])
        raise SourceError(f"{where}: expected shape (rows, {expected}), got {array.shape}")


def convert_rows(
    array: Array, spec: InputSpec, where: str, numbers: Array, features: Sequence[Feature] = ()
) -> Array:
    """Convert rows to the dtype of an input, without losing anything but floating point precision.

    `numbers` has the number of each row in its file, and `features` say which cells may be blank, as NaN.
    """
    dtype = np.dtype(spec.dtype)
    if array.dtype.kind not in ("buif" if dtype.kind == "f" else "bui"):
        raise SourceError(f"{where}: expected {spec.dtype}, got {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported below
        converted = np.ascontiguousarray(array, dtype)
    if dtype.kind == "f":
        fits = np.isfinite(converted).reshape(len(converted), -1)
        if len(features) == fits.shape[1]:
            fits |= np.isnan(converted) & [feature.blanks for feature in features]
            blank = np.isnan(converted) & ~fits
            if blank.any():
                row, column = np.argwhere(blank)[0]
                raise SourceError(
                    f"{where}: row {numbers[row]}: expected a value of {features[column].name!r}, which had "
                    "no blanks in the training, got none"
                )
        finite = fits.all(axis=1)
        if not finite.all():
            row = numbers[finite.argmin()]
            raise SourceError(f"{where}: expected finite numbers within {spec.dtype}, row {row} has others")
    elif not np.array_equal(converted, array):
        raise SourceError(
            f"{where}: expected integers that fit {spec.dtype}, got {array.min()} to {array.max()}"
        )
    return converted


def _select_rows(count: int, max_rows: int) -> Array:
    """The numbers of the rows to use, in order: all, or `max_rows` drawn at random with a fixed seed."""
    if count <= max_rows:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, max_rows, replace=False))


def describe(array: Array) -> str:
    """The datatype and shape of an array, for messages."""
    return f"{array.dtype} {array.shape}"


def shorten(names: Sequence[str]) -> str:
    """The first of some names, for messages."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
