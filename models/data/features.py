"""Names and units of a table's columns, and what their values are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from turnpike.common.columns import ColumnForm
from turnpike.models.data.table.kinds import Column
from turnpike.models.errors import DataError

# what stands in brackets at the end of a name, as in "mass [kg]" and "width (mm)"
UNIT = re.compile(r"[\[(]([^\[\]()]+)[\])]$")


def read_feature_names(path: Path) -> tuple[str, ...]:
    """The names in a file with one per line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--features: {path}: expected a text file with a name per line ({error})") from error
    return tuple(line.strip() for line in lines if line.strip())


def expect_feature_names(names: Sequence[str], columns: int) -> None:
    """Raise a DataError unless there is a name of its own for each column."""
    if len(names) != columns:
        raise DataError(f"--features: expected {columns} names, one per column, got {len(names)}")
    if repeated := [name for number, name in enumerate(names) if name in names[:number]]:
        raise DataError(f"--features: expected distinct names, got {repeated[0]!r} twice")


def describe_features(
    names: Sequence[str], rows: Tensor, columns: Sequence[Column] = ()
) -> list[dict[str, Any]]:
    """Name, unit, range, mean and standard deviation of each column, as the manifest of a model has them.

    Args:
        names: The names.
        rows: The numbers of the columns, with NaN for blanks, which do not count.
        columns: What the columns of a table hold. A column of numbers without blanks has no entries for that.
    """
    table = rows.double()
    statistics = _statistics(table)
    features = []
    for number, name in enumerate(names):
        column = columns[number] if columns else None
        low, high, mean, sd = (values[number].item() for values in statistics)
        if math.isnan(mean):
            known = table[~table[:, number].isnan(), number, None]
            low, high, mean, sd = (
                (values.item() for values in _statistics(known)) if len(known) else (0.0,) * 4
            )
        form = None if column is None else column.form
        if form is not None and form.kind == "category":
            # the places of all words, also of those that only other rows have
            low, high = 0.0, max(high, len(form.categories) - 1.0)
        features.append(
            {
                "name": name,
                "unit": unit_of(name),
                "low": low,
                "high": high,
                # rounding may move the mean of equal values out of their range
                "mean": min(max(mean, low), high),
                "sd": sd,
                **({} if column is None or form is None else _described(form, blanks=column.blanks > 0)),
            }
        )
    return features


def _statistics(table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The lowest and the highest value, mean and standard deviation of each column."""
    return table.amin(0), table.amax(0), table.mean(0), table.std(0, correction=0)


def _described(form: ColumnForm, *, blanks: bool) -> dict[str, Any]:
    """How the cells of a column become numbers, without what is so for plain numbers."""
    plain = asdict(ColumnForm()) | {"blanks": False}
    described = asdict(form) | {"blanks": blanks}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in described.items()
        if value != plain[key]
    }


def unit_of(name: str) -> str:
    """The unit at the end of a name, or nothing."""
    found = UNIT.search(name)
    return found[1].strip() if found else ""
