"""Predict requests and predictions as CSV: a table of rows in, a table of predictions out."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from turnpike.common.columns import is_blank
from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Column, Signature
from turnpike.service.codec.cells import cell_numbers
from turnpike.service.codec.feature_names import expect_columns
from turnpike.service.codec.json_document import quoted
from turnpike.service.codec.tables.cell_warnings import cell_warnings
from turnpike.service.codec.tensors import expect_fit, infer_shape, value_range
from turnpike.service.codec.text_input import text_ids
from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.inference_types import Array, FeedLayout, InferenceRequest, RequestedOutput, RequestForm

# whole numbers up to this size are exact in float64, in which the cells are read
MAX_EXACT = 2.0**53
# the column that has the texts of a model that takes texts
TEXT_COLUMN = "text"
# cells of a first line that are checked for numbers, in less than 2 ms
MAX_CHECKED_CELLS = 1000


@dataclass(frozen=True)
class Table:
    """The numbers of a CSV text, with its columns in the order of the model.

    `lines` has the line of each row and `columns` the name or number of each column, for error messages.
    `others` has the cells of columns that are not the model's, by their names. `cells` has the texts of the
    values, if they are more than plain numbers; then a blank is NaN. `left_out` says what is wrong with each
    row that was left out.
    """

    values: Array
    lines: Sequence[int]
    columns: Sequence[str]
    where: str
    others: Mapping[str, Sequence[str]]
    cells: Sequence[Sequence[str]] = ()
    left_out: Sequence[str] = ()

    def to_dtype(self, dtype: np.dtype[Any]) -> Array:
        """The values in the dtype of an input; raises RequestError if one does not fit."""
        values = self.values
        if dtype.kind == "f":
            # blanks are NaN, and were checked when they were read
            fits = ~(np.abs(values) > float(np.finfo(dtype).max))
        elif dtype.kind in "iu":
            info = np.iinfo(dtype)
            low, high = max(info.min, -MAX_EXACT), min(info.max, MAX_EXACT)
            fits = (values >= low) & (values <= high) & (values == np.rint(values))
        else:
            raise RequestError(f"{self.where}: expected JSON, since CSV has numbers and the input has none")
        self.expect_all(fits, value_range(dtype))
        return values.astype(dtype)

    def expect_all(self, fits: Array, expected: str) -> None:
        """Raise RequestError for the first value that does not fit."""
        if not fits.all():
            row, column = np.argwhere(~fits)[0].tolist()
            # all digits, since 3.0000001 is no whole number
            value = repr(float(self.values[row, column])).removesuffix(".0")
            raise RequestError(
                f"{self.where}, line {self.lines[row]}, column {self.columns[column]}: "
                f"expected {expected}, got '{value}'"
            )


def read_table(
    lines: Iterable[str],
    signature: Signature,
    where: str,
    max_rows: int | None = None,
    *,
    leave_out: bool = False,
) -> Table:
    """Read CSV that has a column for each value of a row.

    Without a header, the columns are in the order of the model. A header must have the names of the model's
    features, in any order, and may have others. Columns that may be blank may be missing. For a model without
    names, the header is skipped.

    Args:
        lines: The text, with its line breaks.
        signature: The model's tensors and features.
        where: Names the text in error messages.
        max_rows: The number of rows that are accepted, None for any.
        leave_out: Leave out rows with wrong cells if they have no value of what the model predicts, as the
            training does.

    Raises:
        RequestError: The message names the line and the column.
    """
    if len(signature.inputs) != 1:
        raise RequestError(
            f"{where}: expected JSON with {', '.join(signature.inputs)}, since CSV has rows of one input only"
        )
    features = signature.features
    records: Iterator[tuple[int, list[str]]] = _records(
        lines, where, max_rows, keep_spaces=bool(signature.columns)
    )

    # the first line: names or numbers?
    first = next(records, None)
    if first is None:
        raise RequestError(f"{where}: expected rows, got none")
    line, cells = first
    order: list[int] = []
    others: dict[str, list[str]] = {}
    if _is_header(cells, signature):
        names = [cell.strip() for cell in cells]
        if features:
            found = expect_columns(names, signature, f"{where}, line {line}")
            # a missing column is read from an empty cell behind each line
            order = [names.index(name) if name in found else len(names) for name in features]
            others = {name: [] for name in names if name not in features}
        columns = [quoted(name) for name in names]
        width = len(names)
    else:
        width = len(features) or len(cells)
        columns = [str(number) for number in range(1, width + 1)]
        records = chain([first], records)

    # the rows
    values = array("d")
    row_lines: list[int] = []
    left_out: list[str] = []
    target = signature.target if leave_out else None
    rows: list[list[str]] = []

    def place(index: int, column: Column) -> str:
        return f"{where}, line {row_lines[index]}, column {quoted(column.name)}"

    try:
        for line, cells in records:
            _expect_width(cells, width, f"{where}, line {line}")
            if order:
                cells.append("")
            own = [cells[index] for index in order] if order else cells
            if target is not None and target.name in others:
                has_answer = not is_blank(cells[names.index(target.name)], target.form.kind)
                if not has_answer and (fault := _fault_of_row(own, signature, f"{where}, line {line}")):
                    left_out.append(fault)
                    continue
            if signature.columns:
                rows.append(own)
            else:
                values.extend(map(float, own))
            for name, texts in others.items():
                texts.append(cells[names.index(name)])
            row_lines.append(line)
    except ValueError:
        column = next(index for index in order or range(width) if not _is_number(cells[index]))
        raise RequestError(
            f"{where}, line {line}, column {columns[column]}: "
            f"expected a finite number, got {quoted(cells[column])}"
        ) from None
    except RequestError:
        if signature.columns:
            # a wrong cell of an earlier row comes first
            cell_numbers(rows, signature.columns, place)
        raise
    if not row_lines:
        raise RequestError(left_out[0] if left_out else f"{where}: expected rows, got none")
    if max_rows is not None and len(row_lines) > max_rows:
        raise _too_many_rows(where, max_rows)
    if order:
        columns = [quoted(name) for name in features]
    if signature.columns:
        matrix = cell_numbers(rows, signature.columns, place)
    else:
        matrix = np.frombuffer(values, np.float64).reshape(len(row_lines), len(columns))
    table = Table(matrix, row_lines, columns, where, others, rows, left_out)
    if not signature.columns:
        table.expect_all(np.isfinite(matrix), "a finite number")
    return table


def read_texts(
    lines: Iterable[str], where: str, max_rows: int | None = None
) -> tuple[list[str], dict[str, list[str]]] | None:
    """The column `text` of CSV, and the other columns by their names; None if there is no such column.

    The arguments are those of `read_table`.
    """
    records = _records(lines, where, max_rows, keep_spaces=True)
    line, header = next(records, (0, []))
    names = [cell.strip() for cell in header]
    if TEXT_COLUMN not in names:
        return None
    if len(set(names)) != len(names):
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise RequestError(f"{where}, line {line}: expected each column once, got {quoted(repeated)} twice")
    columns: dict[str, list[str]] = {name: [] for name in names}
    for line, cells in records:
        if len(cells) != len(names):
            hint = "; put a text with commas in quotes" if len(cells) > len(names) else ""
            raise RequestError(f"{where}, line {line}: expected {len(names)} columns, got {len(cells)}{hint}")
        for name, cell in zip(names, cells, strict=True):
            columns[name].append(cell)
    texts = columns.pop(TEXT_COLUMN)
    if not texts:
        raise RequestError(f"{where}: expected rows, got none")
    if max_rows is not None and len(texts) > max_rows:
        raise _too_many_rows(where, max_rows)
    return texts, columns


def _records(
    lines: Iterable[str], where: str, max_rows: int | None, *, keep_spaces: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, with its number. A line of spaces may be one, or a text.

    They are separated by commas, or by semicolons if the first line has these and no comma.
    """
    rest = iter(lines)
    first = next(rest, "")
    delimiter = ";" if ";" in first and "," not in first else ","
    reader = csv.reader(chain((first,), rest), delimiter=delimiter)
    # a header, and blank lines, which also take time, count too
    max_records = None if max_rows is None else max_rows + 1
    try:
        for number, cells in enumerate(reader, 1):
            if max_records is not None and number > max_records:
                raise _too_many_rows(where, max_records - 1)
            if any(map(str.strip, cells)) or (keep_spaces and cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise RequestError(
            f"{where}, line {reader.line_num}: expected cells separated by commas, got something else "
            f"({error})"
        ) from None


def _fault_of_row(cells: Sequence[str], signature: Signature, where: str) -> str:
    """What is wrong with the first wrong cell of a row; empty if none is."""
    if not signature.columns:
        for name, cell in zip(signature.features, cells, strict=True):
            if not (_is_number(cell) and math.isfinite(float(cell))):
                return f"{where}, column {quoted(name)}: expected a finite number, got {quoted(cell)}"
        return ""
    try:
        cell_numbers([cells], signature.columns, lambda _, column: f"{where}, column {quoted(column.name)}")
    except RequestError as error:
        return str(error)
    return ""


def _expect_width(cells: Sequence[str], width: int, where: str) -> None:
    if len(cells) != width:
        hint = "; separate them by commas" if len(cells) == 1 else ""
        raise RequestError(f"{where}: expected {width} columns, got {len(cells)}{hint}")


def _too_many_rows(where: str, max_rows: int) -> RequestError:
    return RequestError(f"{where}: expected at most {max_rows} rows (--max-rows), got more")


def _is_header(cells: Sequence[str], signature: Signature) -> bool:
    """Whether a first line has names: none of its cells is a number, or it has those of the features."""
    if not any(map(_is_number, cells[:MAX_CHECKED_CELLS])):
        return True
    names, features = {cell.strip() for cell in cells}, set(signature.features)
    optional = {column.name for column in signature.columns if column.blanks}
    # those that may be missing are no more than half, so that a row of numbers is no header
    return bool(features) and names >= features - optional and 2 * len(names & features) > len(features)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def decode_csv(body: bytes | memoryview, signature: Signature, limits: RequestLimits) -> InferenceRequest:
    """Decode a body whose lines are rows of the model's one input, each as a flat list of its values.

    If the input takes texts, they may be in a column `text`. A header may also have columns that the model
    does not read.
    """
    if len(body) > limits.max_json_bytes:
        raise TooLargeError(
            f"body: expected at most {limits.max_json_bytes} bytes of CSV (--max-json), got {len(body)}"
        )
    try:
        text = bytes(body).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError("body: expected CSV in UTF-8, got other bytes") from None
    encoder = signature.text
    if encoder is not None and len(signature.inputs) == 1:
        found = read_texts(io.StringIO(text, newline=""), "body", limits.max_rows)
        if found is not None:
            feeds = {encoder.input: text_ids(found[0], encoder, limits, "body")}
            return _request(len(found[0]), feeds, signature, found[1], has_texts=True)
    table = read_table(io.StringIO(text, newline=""), signature, "body", limits.max_rows)
    (tensor,) = signature.inputs.values()
    rows, width = table.values.shape
    if signature.batch is None and rows != 1:
        raise RequestError(f"body: expected 1 row, since the model has no batch axis, got {rows}")
    values = table.to_dtype(WIRE_DTYPES[tensor.dtype])
    dims = tensor.dims if signature.batch is None else tensor.dims[1:]
    size = math.prod(dim for dim in dims if isinstance(dim, int))
    if width != size and all(isinstance(dim, int) for dim in dims):
        raise RequestError(f"body, line {table.lines[0]}: expected {size} columns, got {width}")
    shape = infer_shape(dims, width, f"body, line {table.lines[0]}")
    array = values.reshape(shape if signature.batch is None else (rows, *shape))
    expect_fit(array.shape, tensor, {}, "body")
    request = _request(rows, {tensor.name: array}, signature, table.others)
    if signature.columns:
        request.warnings = cell_warnings(table.values, table.cells, signature)
    return request


def _request(
    rows: int,
    feeds: dict[str, Array],
    signature: Signature,
    others: Mapping[str, Sequence[str]],
    *,
    has_texts: bool = False,
) -> InferenceRequest:
    outputs = tuple(map(RequestedOutput, signature.outputs))
    form = RequestForm(rows, outputs, FeedLayout.of(feeds), has_texts=has_texts)
    return InferenceRequest(form, feeds, others)
