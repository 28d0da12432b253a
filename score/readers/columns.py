"""Converts the columns of a table to inputs of the model: by names of features or inputs, or in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.score.errors import RowsError
from turnpike.score.readers.bad_rows import BadRowsError, good_rows
from turnpike.score.readers.cells import array_feeds, cell_feeds
from turnpike.score.readers.kept import choose_kept, constant, folder_columns
from turnpike.score.readers.numbered_columns import incomplete_columns, numbered_columns
from turnpike.score.readers.numbers import (
    expected_number,
    is_text,
    leaf_counts,
    misfits,
    numbers_of,
    shown,
    width_of,
)
from turnpike.score.readers.parts import Part, RowBatch
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
    be missing. Any other model, or a table with none of these names, reads the columns that have the names of
    its inputs, with a list of numbers in each cell; or else as many numbered columns as it has numbers; or
    else all columns, in their order. If the only input takes texts, they are read from the column `text`, or
    are strings in the column of the input's name. Columns that are not read are kept beside the predictions.
    """

    def __init__(
        self, names: Sequence[str], signature: Signature, part: Part, keep: Sequence[str] | None
    ) -> None:
        self._where = where = part.path
        self._constants = {name: value for name, value in folder_columns(part).items() if name not in names}
        names = [*names, *self._constants]
        self._signature = signature
        inputs = list(signature.inputs)
        # the columns that have one number of a row each
        self._cells: list[str] = []
        self.has_texts = signature.text is not None and len(inputs) == 1 and TEXT_COLUMN in names
        if self.has_texts:
            self.read = [TEXT_COLUMN]
        elif set(inputs) <= set(names) and not set(signature.features) & set(names):
            self.read = inputs
        elif signature.features:
            try:
                self._cells = self.read = expect_columns(names, signature, where)
            except RequestError as error:
                raise RowsError(str(error)) from error
        elif len(inputs) == 1:
            width = width_of(signature.inputs[inputs[0]])
            self._cells = self.read = numbered_columns(names, width) or _all_columns(
                names, width, keep, where
            )
        else:
            missing = next(name for name in inputs if name not in names)
            raise RowsError(f"{where}: expected columns {', '.join(inputs)}, and {missing!r} is missing")
        self.kept = choose_kept(names, self.read, keep, where)

    @property
    def stored(self) -> list[str]:
        """The columns of the file that are needed."""
        return [name for name in dict.fromkeys([*self.read, *self.kept]) if name not in self._constants]

    def to_rows(
        self, table: pyarrow.RecordBatch, place: PlaceOf, bad: Mapping[int, str] | None = None
    ) -> RowBatch:
        """Convert some rows, of which some may be known to be bad; `place` says where a row is."""
        for name, value in self._constants.items():
            table = table.append_column(name, constant(value, table.num_rows))

        def convert(indices: Array) -> dict[str, Array]:
            some = table if len(indices) == table.num_rows else table.take(pyarrow.array(indices))
            return self._feeds(some, lambda position: place(int(indices[position])))

        feeds, bad = good_rows(table.num_rows, convert, bad)
        return RowBatch(feeds, {name: table.column(name) for name in self.kept}, table.num_rows, bad)

    def _feeds(self, table: pyarrow.RecordBatch, place: PlaceOf) -> dict[str, Array]:
        if self._cells and self._signature.columns:
            cells = {name: table.column(name) for name in self.read}
            return cell_feeds(
                cells, self._signature, lambda index, name: f"{self._where}, {place(index)}, column {name!r}"
            )
        if self._cells:
            (tensor,) = self._signature.inputs.values()
            return {tensor.name: self._join_cells(table, tensor, place)}
        if self.has_texts:
            return dict([self._read_texts(table.column(TEXT_COLUMN), TEXT_COLUMN, place)])
        return dict(self._read_input(table, tensor, place) for tensor in self._signature.inputs.values())

    def _join_cells(self, table: pyarrow.RecordBatch, tensor: Tensor, place: PlaceOf) -> Array:
        """One value of a row in each column."""
        dtype = np.dtype(WIRE_DTYPES[tensor.dtype])
        values = np.empty((table.num_rows, len(self._cells)), dtype)
        columns = {name: self._numbers(table.column(name), name) for name in self._cells}
        # numbers that are too large become infinite, so one look at all floats is enough
        with np.errstate(over="ignore", invalid="ignore"):
            for index, numbers in enumerate(columns.values()):
                values[:, index] = numbers
        if dtype.kind == "f" and not len(misfits(values, dtype)):
            return shaped(values, tensor, self._where)
        reasons: dict[int, str] = {}
        expected = expected_number(dtype)
        for name, numbers in columns.items():
            for row in misfits(numbers, dtype).tolist():
                got = shown(table.column(name)[row])
                reasons.setdefault(row, self._reason(place, row, name, expected, got))
        if reasons:
            raise BadRowsError(reasons)
        return shaped(values, tensor, self._where)

    def _read_input(self, table: pyarrow.RecordBatch, tensor: Tensor, place: PlaceOf) -> tuple[str, Array]:
        """An input from the column of its name: texts, or lists of numbers."""
        column, encoder = table.column(tensor.name), self._signature.text
        if encoder is not None and encoder.input == tensor.name and is_text(column.type):
            return self._read_texts(column, tensor.name, place)
        return tensor.name, self._read_lists(column, tensor, place)

    def _read_texts(self, column: pyarrow.Array, name: str, place: PlaceOf) -> tuple[str, Array]:
        """The input that takes texts, from a column of strings."""
        encoder = self._signature.text
        if encoder is None or not is_text(column.type):
            raise RowsError(f"{self._where}, column {name!r}: expected texts, got {column.type}")
        self._expect_present(column, name, place, "a text")
        return encoder.input, encoder.encode(column.to_pylist())

    def _read_lists(self, column: pyarrow.Array, tensor: Tensor, place: PlaceOf) -> Array:
        """All values of a row in a cell, as a list that may be nested."""
        name, columns = tensor.name, self._signature.columns
        self._expect_present(column, name, place, "a list")
        counts, leaves = leaf_counts(column)
        # the length that most rows have, if the model takes any
        width = len(columns) or width_of(tensor) or int(np.bincount(counts).argmax())
        if len(bad := np.flatnonzero(counts != width)):
            raise BadRowsError(
                {
                    row: self._reason(place, row, name, f"{width} values", str(counts[row]))
                    for row in bad.tolist()
                }
            )
        numbers = self._numbers(leaves, name)
        dtype = np.dtype(np.float64) if columns else WIRE_DTYPES[tensor.dtype]
        if not columns and len(bad := misfits(numbers, dtype)):
            expected = expected_number(dtype)
            raise BadRowsError(
                {
                    index // width: self._reason(place, index // width, name, expected, shown(leaves[index]))
                    for index in bad[::-1].tolist()
                }
            )
        values = numbers.reshape(-1, width)
        if columns:
            return array_feeds(
                values, self._signature, lambda index, cell: f"{self._where}, {place(index)}, column {cell!r}"
            )[name]
        return shaped(values.astype(dtype, copy=False), tensor, self._where)

    def _numbers(self, column: pyarrow.Array, name: str) -> Array:
        numbers = None if self._signature.text and is_text(column.type) else numbers_of(column)
        if numbers is None:
            hint = "" if self._signature.text is None else f"; texts are read from a column {TEXT_COLUMN!r}"
            raise RowsError(f"{self._where}, column {name!r}: expected numbers, got {column.type}{hint}")
        return numbers

    def _expect_present(self, column: pyarrow.Array, name: str, place: PlaceOf, expected: str) -> None:
        if column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
            raise BadRowsError(
                {row: self._reason(place, row, name, expected, "a missing value") for row in missing}
            )

    def _reason(self, place: PlaceOf, row: int, name: str, expected: str, got: str) -> str:
        return f"{self._where}, {place(row)}, column {name!r}: expected {expected}, got {got}"


def _all_columns(
    names: Sequence[str], width: int | None, keep: Sequence[str] | None, where: str
) -> list[str]:
    """All columns of a table, in their order; without those to keep if it has more than the model reads."""
    if numbered := incomplete_columns(names, width):
        raise RowsError(
            f"{where}: expected {width or 'all'} numbered columns such as {numbered[0]!r}, got "
            f"{len(numbered)} of them among {len(names)} columns: some may be missing or misspelled"
        )
    others = [name for name in names if name not in (keep or ())]
    return others if len(names) != width == len(others) else list(names)


def shaped(values: Array, tensor: Tensor, where: str) -> Array:
    """Rows of values in the shape of an input."""
    dims, width = tensor.dims[1:], values.shape[1]
    try:
        array: Array = values.reshape(len(values), *(infer_shape(dims, width, where) if width else dims))
        expect_fit(array.shape, tensor, {}, where)
    except RequestError as error:
        raise RowsError(f"{error} for each row of {tensor.name!r}") from error
    return array
