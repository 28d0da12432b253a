"""Reads a table whose rows are examples: one column is to predict, the others become numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch

from turnpike.common.columns import CellError, in_words, is_blank, parse_number, word_of
from turnpike.models.choices import Task
from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.data.table.cells import Cells, read_cells, stem
from turnpike.models.data.table.kinds import Column, column_of_kind, kept, kind_of_column
from turnpike.models.errors import ConfigError, DataError

MAX_FLOAT32 = torch.finfo(torch.float32).max
# whole numbers with more distinct values than this are predicted as numbers, others as classes
MAX_NUMBER_CLASSES = 20
# problems that an error lists
MAX_PROBLEMS = 10


@dataclass(frozen=True)
class TableOptions:
    """What a user decides about the columns of a table.

    Attributes:
        target: The column to predict; None for the last one.
        task: Whether its values are classes or numbers; None to decide by them.
        drop: Columns to leave out.
        keep: Columns to use although they seem to say nothing.
        kinds: The kind of a column, by its name; a date may have its format, as in "date:%d/%m/%Y".
    """

    target: str | None = None
    task: Task | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    def first_option(self) -> str | None:
        """The first option of the command that was given, if any was."""
        options = {
            "--target": self.target,
            "--task": self.task,
            "--drop": self.drop,
            "--keep": self.keep,
            "--kind": self.kinds,
        }
        return next((option for option, value in options.items() if value), None)


def table_options(
    target: str | None, task: str | None, drop: Sequence[str], keep: Sequence[str], kinds: Sequence[str]
) -> TableOptions:
    """The options of the command line.

    Raises:
        ConfigError: One of them is malformed.
    """
    chosen = {}
    for text in kinds:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise ConfigError(f"--kind: expected COLUMN=KIND, got {text!r}")
        chosen[name] = kind
    if task is not None and task not in get_args(Task):
        raise ConfigError(f"--task: expected {' or '.join(get_args(Task))}, got {task!r}")
    return TableOptions(target, task, tuple(drop), tuple(keep), chosen)


@dataclass(frozen=True)
class Table:
    """A table as it was read.

    Attributes:
        path: Its file.
        cells: The cells of the file.
        columns: What each column holds, without the one to predict.
        target: The name of the column to predict.
        task: Whether that is one of several classes, or a number.
        labels: The classes, if it is one of several.
    """

    path: Path
    cells: Cells
    columns: tuple[Column, ...]
    target: str
    task: Task
    labels: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns from which the other one is predicted."""
        return tuple(column for column in self.columns if column.form is not None)


def open_table(path: Path, options: TableOptions | None = None) -> Table:
    """Read a table and find out what its columns hold.

    Raises:
        DataError: The file is no table, or something about its columns has to be decided or mended first. All
            problems are in one error, with what helps.
    """
    options = options or TableOptions()
    cells = read_cells(path)
    _expect_names(path, cells.names, options)
    if not cells.places:
        raise DataError(f"{path}: expected rows under the names of the columns, got none")
    problems: list[str] = []
    target = cells.names[-1] if options.target is None else options.target
    task, labels = _target(cells, target, options, problems)
    columns = []
    for name, values in zip(cells.names, cells.columns, strict=True):
        if name != target and name not in options.drop:
            columns.append(_column(cells, name, values, options, problems))
    if problems:
        shown = problems[:MAX_PROBLEMS]
        more = len(problems) - len(shown)
        listed = [*shown, *([f"and {more} more"] if more else [])]
        raise DataError(
            f"{path}: " + (listed[0] if len(listed) == 1 else "".join(f"\n  {one}" for one in listed))
        )
    table = Table(path, cells, tuple(columns), target, task, labels)
    if not table.used:
        raise DataError(f"{path}: expected a column from which {target!r} can be predicted, got none")
    return table


def read_table(path: Path, options: TableOptions | None = None) -> RawDataset:
    """Read a table whose rows are examples; see `open_table`."""
    table = open_table(path, options)
    cells, used = table.cells, table.used
    values = dict(zip(cells.names, cells.columns, strict=True))
    rows = torch.tensor(
        [[column.form.number_of(cell) for cell in values[column.name]] for column in used if column.form],
        dtype=torch.float32,
    )
    return RawDataset(
        stem(path),
        Split(rows.T.contiguous(), _targets(table, values[table.target])),
        None,
        table.labels,
        "numbers",
        features=tuple(column.name for column in used),
        target=table.target,
        task=table.task,
        columns=table.columns,
    )


def _expect_names(path: Path, names: Sequence[str], options: TableOptions) -> None:
    for option, chosen in (
        ("--target", () if options.target is None else (options.target,)),
        ("--drop", options.drop),
        ("--keep", options.keep),
        ("--kind", options.kinds),
    ):
        for name in chosen:
            if name not in names:
                raise DataError(f"{path}: {option}: expected one of {', '.join(names)}, got {name!r}")


def _column(
    cells: Cells, name: str, values: Sequence[Any], options: TableOptions, problems: list[str]
) -> Column:
    """What a column holds; what is wrong with it is added to the problems."""
    where = f"column {name!r}: "
    if name in options.kinds:
        try:
            column = column_of_kind(name, values, options.kinds[name], cells.delimiter)
        except ValueError as error:
            problems.append(f"{where}--kind: {error}")
            return Column(name, None)
    else:
        column = kind_of_column(name, values, cells.delimiter)
        if column.form is None and name in options.keep:
            column = kept(column, values)
    if column.problem:
        problems.append(where + column.problem)
    elif column.form is not None:
        _expect_numbers(cells, column, values, problems)
    return column


def _expect_numbers(cells: Cells, column: Column, values: Sequence[Any], problems: list[str]) -> None:
    """Add the first cell of a column that is none of its values, or too large for float32."""
    for place, cell in zip(cells.places, values, strict=True):
        try:
            number = column.form.number_of(cell) if column.form else 0.0
        except CellError as error:
            problems.append(f"{place}, column {column.name!r}: {error}")
            return
        if abs(number) > MAX_FLOAT32:
            problems.append(
                f"{place}, column {column.name!r}: expected a number within float32, got {in_words(cell)}"
            )
            return


def _target(
    cells: Cells, name: str, options: TableOptions, problems: list[str]
) -> tuple[Task, tuple[str, ...]]:
    """Whether the column to predict has classes or numbers, and its classes."""
    values = cells.columns[cells.names.index(name)]
    chosen = "" if options.target is not None else " (the last one; --target names another)"
    where = f"column {name!r}{chosen}"
    blank = [place for place, cell in zip(cells.places, values, strict=True) if is_blank(cell, "category")]
    if blank:
        more = f" and {len(blank) - 1} more" if len(blank) > 1 else ""
        problems.append(f"{where}: expected a value to predict in each row, got none in {blank[0]}{more}")
        return "classes", ()
    numbers = [number_in(cell) for cell in values]
    task = options.task or _task_of(numbers)
    if task == "number":
        wrong = next((n for n, number in enumerate(numbers) if number is None), None)
        if wrong is not None:
            problems.append(
                f"{where}: {cells.places[wrong]}: expected a number, got {in_words(values[wrong])}"
            )
        return task, ()
    labels = labels_of(values)
    if len(labels) < 2:
        problems.append(f"{where}: expected 2 classes or more, got {len(labels)}")
    return task, labels


def labels_of(values: Sequence[Any]) -> tuple[str, ...]:
    """The classes of a column, in order."""
    numbers = [number_in(cell) for cell in values]
    words = {class_of(cell, number) for cell, number in zip(values, numbers, strict=True)}
    are_numbers = all(number is not None and number.is_integer() for number in numbers)
    return tuple(sorted(words, key=int) if are_numbers else sorted(words))


def number_in(cell: Any) -> float | None:
    """The number in a cell to predict; None if it is none."""
    if isinstance(cell, str):
        return parse_number(cell)
    return float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def _task_of(numbers: Sequence[float | None]) -> Task:
    """Numbers with decimals, and whole ones with many values, are predicted as numbers."""
    if any(number is None for number in numbers):
        return "classes"
    distinct = set(numbers)
    whole = all(number is not None and number.is_integer() for number in distinct)
    return "classes" if whole and len(distinct) <= MAX_NUMBER_CLASSES else "number"


def class_of(cell: Any, number: float | None) -> str:
    """The name of a cell's class: 2.0 is 2."""
    return str(int(number)) if number is not None and number.is_integer() else word_of(cell)


def _targets(table: Table, values: Sequence[Any]) -> torch.Tensor:
    numbers = [number_in(cell) for cell in values]
    if table.task == "number":
        return torch.tensor(
            [math.nan if number is None else number for number in numbers], dtype=torch.float32
        )
    index = {label: place for place, label in enumerate(table.labels)}
    return torch.tensor([index[class_of(*pair)] for pair in zip(values, numbers, strict=True)])
