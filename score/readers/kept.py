"""Chooses the columns to keep beside the predictions, also those that folders such as `year=2024` give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from urllib.parse import unquote

import pyarrow

from turnpike.score.errors import RowsError
from turnpike.score.readers.parts import Part

# the folder of rows without a value, as Hive, Spark and pyarrow name it
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def folder_columns(part: Part) -> dict[str, str | None]:
    """The columns that the folders of a file give to its rows: `year` is "2024" in `year=2024`."""
    pairs = [folder.partition("=") for folder in PurePath(part.name).parts[:-1]]
    return {
        unquote(name): None if value == NO_VALUE else unquote(value)
        for name, sign, value in pairs
        if name and sign
    }


def choose_kept(
    names: Sequence[str], read: Iterable[str], keep: Sequence[str] | None, where: str
) -> list[str]:
    """The columns to keep: those that were requested, or else all that the model does not read."""
    if keep is None:
        read = set(read)
        return [name for name in names if name not in read]
    if missing := [name for name in keep if name not in names]:
        raise RowsError(f"{where}: expected a column {missing[0]!r} (--keep), got {', '.join(names)}")
    return list(keep)


def with_folder_columns(
    columns: Mapping[str, pyarrow.Array], part: Part, keep: Sequence[str] | None, rows: int
) -> dict[str, pyarrow.Array]:
    """The columns to keep of a file whose rows the model reads without names."""
    given = {name: constant(value, rows) for name, value in folder_columns(part).items()} | dict(columns)
    return {name: given[name] for name in choose_kept(list(given), (), keep, part.path)}


def constant(value: str | None, rows: int) -> pyarrow.Array:
    return pyarrow.repeat(pyarrow.scalar(value, pyarrow.string()), rows)
