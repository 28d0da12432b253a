"""Reads the rows of a Parquet file as the instances of a predict request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from turnpike.common.columns import date_text
from turnpike.common.distribution import needs_extra
from turnpike.service.artifact.signature import Column, Signature
from turnpike.service.codec.feature_names import expect_columns
from turnpike.service.errors import SettingError


def read_parquet(path: Path, signature: Signature) -> tuple[list[Any], Mapping[str, Sequence[Any]]]:
    """The rows of a file, and the columns that the model does not read.

    Columns are found by the names of the model's features, or else of its inputs, whose cells are lists. For
    another model with one input, all columns are read in their order.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise SettingError(needs_extra("a .parquet file", "pyarrow", "score")) from error
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())
        raise SettingError(f"{path}: expected a Parquet file, cannot read it ({reason})") from error
    names, inputs = table.column_names, list(signature.inputs)
    if signature.features:
        expect_columns(names, signature, str(path))
        read = list(signature.features)
    else:
        read = inputs if set(inputs) <= set(names) else names
    forms: list[Column | None] = list(signature.columns) or [None] * len(read)
    columns = [
        # a column that may be blank may be missing
        [_to_json(cell, form) for cell in python_cells(table.column(name))]
        if name in names
        else [None] * table.num_rows
        for name, form in zip(read, forms, strict=True)
    ]
    others = {name: python_cells(table.column(name)) for name in names if name not in read}
    if read == inputs:
        return [dict(zip(read, row, strict=True)) for row in zip(*columns, strict=True)], others
    return [list(row) for row in zip(*columns, strict=True)], others


def python_cells(cells: Any) -> list[Any]:
    """The values of a column of Arrow."""
    import pyarrow

    if pyarrow.types.is_timestamp(cells.type):
        # Python has no nanoseconds
        cells = cells.cast(pyarrow.timestamp("us", cells.type.tz), safe=False)
    elif pyarrow.types.is_decimal(cells.type):
        cells = cells.cast(pyarrow.float64())
    values: list[Any] = cells.to_pylist()
    return values


def _to_json(cell: Any, column: Column | None) -> Any:
    """A cell as JSON has it; a list in a cell stays as it is."""
    if isinstance(cell, date):
        return str(cell) if column is None else date_text(cell, column.form)
    if isinstance(cell, float) and math.isnan(cell):
        return None
    return cell if isinstance(cell, str | int | float | list | None) else str(cell)
