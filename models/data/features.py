"""Names and units of a table's columns, and what their values are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from turnpike.common.columns import ColumnForm
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
    names: Sequence[str],
    rows: Tensor,
    forms: Sequence[ColumnForm] = (),
    may_be_blank: Sequence[bool] = (),
) -> list[dict[str, Any]]:
    """Name, unit, range, mean and standard deviation of each column, as the manifest of a model has them.

    Args:
        names: The names of the columns.
        rows: Their values; NaN is a blank, which range, mean and deviation leave out.
        forms: How cells become numbers; () if all are numbers. What differs from a plain number is added.
        may_be_blank: Whether each column has blanks in other rows; () if there are none.
    """
    values = rows.double()
    blanks = values.isnan()
    low, high, mean, sd = values.amin(0), values.amax(0), values.mean(0), values.std(0, correction=0)
    has_blanks = blanks.any(0)
    for column in has_blanks.nonzero().flatten().tolist():
        present = values[~blanks[:, column], column]
        if len(present) == 0:
            present = values.new_zeros(1)
        low[column], high[column], mean[column] = present.min(), present.max(), present.mean()
        sd[column] = present.std(correction=0)
    for column, form in enumerate(forms):
        if form.kind == "category":
            # the places of all words, also of those that only other rows have
            low[column], high[column] = 0.0, max(high[column].item(), len(form.categories) - 1.0)
    return [
        {
            "name": name,
            "unit": unit_of(name),
            "low": low[column].item(),
            "high": high[column].item(),
            # rounding may move the mean of equal values out of their range
            "mean": mean[column].clamp(low[column], high[column]).item(),
            "sd": sd[column].item(),
            **(_differences(forms[column]) if forms else {}),
            **({"blanks": True} if has_blanks[column] or any(may_be_blank[column : column + 1]) else {}),
        }
        for column, name in enumerate(names)
    ]


def _differences(form: ColumnForm) -> dict[str, Any]:
    """The attributes of a form that are not those of a plain number."""
    plain = asdict(ColumnForm())
    return {name: value for name, value in asdict(form).items() if value != plain[name]}


def unit_of(name: str) -> str:
    """The unit at the end of a name, or nothing."""
    found = UNIT.search(name)
    return found[1].strip() if found else ""
