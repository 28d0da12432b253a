"""Converts the columns of a table to inputs of the model: by names of features or inputs, or in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.errors import RowsError
from turnpike.score.readers.cells import cell_feeds
from turnpike.score.readers.parts import RowBatch
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.feature_names import expect_columns
from turnpike.service.codec.predict_csv import TEXT_COLUMN
from turnpike.service.codec.tensors import expect_fit, infer_shape
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array

# says where a row is, as in "line 7", from its number in the batch
PlaceOf = Callable[[int], str]


class ColumnMap:
    """Which columns of a table are read as which inputs.

    A model with names for its features reads the columns of these names, of which those that may be blank may
    be missing. Any other model reads the columns
    that have the names of its inputs, with a list of numbers in each cell; or else all columns, in their
    order. If the only input takes texts, they are read from the column `text`, or are strings in the column
    of the input's name. Columns that are not read are kept beside the predictions.
    """

    def __init__(self, names: Sequence[str], signature: Signature, where: str) -> None:
        self._where = where
        self._signature = signature
        inputs = list(signature.inputs)
        self.has_texts = signature.text is not None and len(inputs) == 1 and TEXT_COLUMN in names
        if self.has_texts:
            self._cells, self.read = [], [TEXT_COLUMN]
        elif signature.features:
            try:
                self.read = expect_columns(names, signature, where)
            except RequestError as error:
                raise RowsError(str(error)) from error
            self._cells = self.read
        elif set(inputs) <= set(names):
            self._cells, self.read = [], inputs
        elif len(inputs) == 1:
            self._cells, self.read = list(names), list(names)
        else:
            missing = next(name for name in inputs if name not in names)
            raise RowsError(f"{where}: expected columns {', '.join(inputs)}, and {missing!r} is missing")
        self.kept = [name for name in names if name not in self.read]

    def to_rows(self, table: pyarrow.RecordBatch, place: PlaceOf) -> RowBatch:
        """Convert some rows. A RowsError says where the first value is that does not fit."""
        if self._signature.columns:
            cells = {name: table.column(name) for name in self.read}
            feeds = cell_feeds(cells, self._signature, partial(self._place, place))
        elif self.has_texts:
            feeds = dict([self._read_texts(table.column(TEXT_COLUMN), TEXT_COLUMN, place)])
        elif self._cells:
            (tensor,) = self._signature.inputs.values()
            feeds = {tensor.name: self._join_cells(table, tensor, place)}
        else:
            feeds = dict(self._read_input(table, tensor, place) for tensor in self._signature.inputs.values())
        kept = {name: table.column(name) for name in self.kept}
        return RowBatch(feeds, kept, table.num_rows)

    def _place(self, place: PlaceOf, index: int, name: str) -> str:
        return f"{self._where}, {place(index)}, column {name!r}"

    def _join_cells(self, table: pyarrow.RecordBatch, tensor: Tensor, place: PlaceOf) -> Array:
        """One value of a row in each column."""
        values = np.empty((table.num_rows, len(self._cells)), WIRE_DTYPES[tensor.dtype])
        for index, name in enumerate(self._cells):
            column = table.column(name)
            self._expect_numbers(column.type, name)
            self._expect_present(column, name, place)
            numbers = column.to_numpy(zero_copy_only=False)
            values[:, index] = numbers = self._fitting(numbers, values.dtype, name, place)
        return self._shaped(values, tensor)

    def _read_input(self, table: pyarrow.RecordBatch, tensor: Tensor, place: PlaceOf) -> tuple[str, Array]:
        """An input from the column of its name: texts, or lists of numbers."""
        column, encoder = table.column(tensor.name), self._signature.text
        if encoder is not None and encoder.input == tensor.name and _is_text(column.type):
            return self._read_texts(column, tensor.name, place)
        return tensor.name, self._read_lists(table, tensor, place)

    def _read_texts(self, column: pyarrow.Array, name: str, place: PlaceOf) -> tuple[str, Array]:
        """The input that takes texts, from a column of strings."""
        encoder = self._signature.text
        if encoder is None or not _is_text(column.type):
            raise RowsError(f"{self._where}, column {name!r}: expected texts, got {column.type}")
        self._expect_present(column, name, place, "a text")
        return encoder.input, encoder.encode(column.to_pylist())

    def _read_lists(self, table: pyarrow.RecordBatch, tensor: Tensor, place: PlaceOf) -> Array:
        """All values of a row in a cell, as a list that may be nested."""
        column = table.column(tensor.name)
        self._expect_present(column, tensor.name, place)
        while pyarrow.types.is_list(column.type) or _is_other_list(column.type):
            column = column.flatten()
        self._expect_numbers(column.type, tensor.name)
        self._expect_present(column, tensor.name, lambda _: "a list")
        rows = table.num_rows
        if rows and len(column) % rows:
            raise RowsError(f"{self._where}: expected lists of one length in {tensor.name!r}")
        numbers = column.to_numpy(zero_copy_only=False)
        width = len(column) // rows if rows else 0
        dtype = WIRE_DTYPES[tensor.dtype]
        fitting = self._fitting(numbers, dtype, tensor.name, lambda index: place(index // max(width, 1)))
        return self._shaped(fitting.astype(dtype, copy=False).reshape(rows, width), tensor)

    def _expect_numbers(self, kind: pyarrow.DataType, name: str) -> None:
        types = pyarrow.types
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            hint = "" if self._signature.text is None else f"; texts are read from a column {TEXT_COLUMN!r}"
            raise RowsError(f"{self._where}, column {name!r}: expected numbers, got {kind}{hint}")

    def _expect_present(
        self, column: pyarrow.Array, name: str, place: PlaceOf, expected: str = "a number"
    ) -> None:
        if column.null_count:
            index = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise RowsError(
                f"{self._where}, {place(index)}, column {name!r}: expected {expected}, got a missing value"
            )

    def _fitting(self, numbers: Array, dtype: np.dtype[Any], name: str, place: PlaceOf) -> Array:
        """The numbers, or a RowsError for the first that the dtype of the input cannot hold."""
        return fitting(numbers, dtype, lambda index: f"{self._where}, {place(index)}, column {name!r}")

    def _shaped(self, values: Array, tensor: Tensor) -> Array:
        return shaped(values, tensor, self._where)


def fitting(numbers: Array, dtype: np.dtype[Any], place: PlaceOf) -> Array:
    """The numbers if the dtype can hold them; a RowsError says where the first is that it cannot."""
    if dtype.kind == "f":
        expected, fits = "a finite number", np.abs(numbers) <= np.finfo(dtype).max
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        expected = f"a whole number from {info.min} to {info.max}"
        fits = (numbers >= info.min) & (numbers <= info.max)
        if numbers.dtype.kind == "f":
            fits &= numbers == np.rint(numbers)
    else:
        expected, fits = "0 or 1", (numbers == 0) | (numbers == 1)
    if not fits.all():
        index = int(np.flatnonzero(~fits)[0])
        raise RowsError(f"{place(index)}: expected {expected}, got {numbers.flat[index]}")
    return numbers


def shaped(values: Array, tensor: Tensor, where: str) -> Array:
    """Rows of values in the shape of an input."""
    dims = tensor.dims[1:]
    width = math.prod(values.shape[1:])
    try:
        shape = infer_shape(dims, width, where) if width else dims
        array: Array = values.reshape(len(values), *shape)
        expect_fit(array.shape, tensor, {}, where)
    except RequestError as error:
        raise RowsError(f"{error} for each row of {tensor.name!r}") from error
    return array


def _is_text(kind: pyarrow.DataType) -> bool:
    types = pyarrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_other_list(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_fixed_size_list(kind) or pyarrow.types.is_large_list(kind))
