"""Writes the rows of a part into a folder for each value of a column, such as `year=2024`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from urllib.parse import quote
from uuid import uuid4

import pyarrow
from pyarrow import compute

from turnpike.common.durable_files import move_durably
from turnpike.score.errors import RowsError
from turnpike.score.job.part_writer import PartWriter
from turnpike.score.readers.kept import NO_VALUE

# files that a part writes at the same time; systems allow about 1,000
MAX_VALUES = 500


class PartitionedWriter:
    """Writes the files of a part; they appear together at the end, one after the other.

    Until the file that marks the part as finished is there, too, another run replaces them.
    """

    def __init__(self, marker: Path, column: str, new_writer: Callable[[Path], PartWriter]) -> None:
        # a name of its own: a part of a node that is lost may still be written there
        self._drafts = marker.with_name(f".{marker.stem}.{uuid4().hex}.drafts")
        self._folder, self._name = marker.parent.parent, marker.name
        self._column, self._new_writer = column, new_writer
        # by the value, in the order in which they came; the draft of each is named by its place
        self._writers: dict[str, PartWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._drafts.mkdir()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        try:
            self._open.__exit__(kind, *details)  # type: ignore[arg-type]
            if kind is None:
                for place, value in enumerate(self._writers):
                    folder = self._folder / f"{quote(self._column, ' ')}={value}"
                    folder.mkdir(exist_ok=True)
                    move_durably(self._drafts / str(place), folder / self._name)
        finally:
            shutil.rmtree(self._drafts, ignore_errors=True)

    def write(self, table: pyarrow.Table) -> None:
        if self._column not in table.column_names:
            raise RowsError(
                f"--partition-by: expected a column of {', '.join(table.column_names)}, got {self._column!r}"
            )
        try:
            values = table[self._column].cast(pyarrow.string())
        except pyarrow.ArrowException as error:
            kind = table.schema.field(self._column).type
            raise RowsError(
                f"--partition-by: expected a column of single values, got {self._column!r} of {kind}"
            ) from error
        others = table.drop_columns([self._column])
        # an empty text cannot be told from none in the name of a folder
        values = compute.if_else(compute.equal(values, ""), None, values)
        for value in values.unique().to_pylist():
            is_value = compute.is_null(values) if value is None else compute.equal(values, value)
            self._writer(quote(value, " ") if value else NO_VALUE).write(others.filter(is_value))

    def _writer(self, value: str) -> PartWriter:
        if value not in self._writers:
            if len(self._writers) == MAX_VALUES:
                raise RowsError(
                    f"--partition-by: expected at most {MAX_VALUES} values of {self._column!r} in "
                    f"{self._name}, got more"
                )
            self._writers[value] = self._open.enter_context(
                self._new_writer(self._drafts / str(len(self._writers)))
            )
        return self._writers[value]
