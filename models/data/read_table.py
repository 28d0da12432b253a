"""Reads a table whose rows are examples: one column is to predict, the others become numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from turnpike.common.columns import (
    CellError,
    ColumnForm,
    ColumnKind,
    in_words,
    is_blank,
    parse_number,
    word_of,
)
from turnpike.common.similar_names import similar_name
from turnpike.models.choices import Task
from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.data.table.cells import Cells, read_cells, stem, without_rows
from turnpike.models.data.table.kinds import (
    Column,
    column_of_kind,
    date_form,
    kept,
    kind_of_column,
    mistakes,
    numeric_form,
)
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import DataError

MAX_FLOAT32 = torch.finfo(torch.float32).max
# whole numbers with more distinct values than this are predicted as numbers, others as classes
MAX_NUMBER_CLASSES = 20
# a column of words with more classes than this, and fewer than two rows for each, has texts
MAX_RARE_CLASSES = 20
# problems that an error lists
MAX_PROBLEMS = 10


@dataclass(frozen=True)
class Table:
    """A table as it was read.

    Attributes:
        path: Its file.
        cells: The cells of the file, without the rows that have nothing to predict.
        columns: What each column holds, without the one to predict.
        target: The name of the column to predict.
        task: Whether that is one of several classes, or a number.
        labels: The classes, if it is one of several.
        times: The rows' order if they are split by time.
        unanswered: The number of rows that are left out, because they have no value to predict.
        problems: What has to be decided or corrected before the table can be used, with the remedies.
    """

    path: Path
    cells: Cells
    columns: tuple[Column, ...]
    target: str
    task: Task
    labels: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    unanswered: int = 0
    problems: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns from which the other one is predicted."""
        return tuple(column for column in self.columns if column.form is not None)


def open_table(path: Path, options: TableOptions | None = None) -> Table:
    """Read a table and find out what its columns hold, and what is wrong with them.

    Raises:
        DataError: The file is no table, or it has no column of a name in the options.
    """
    options = options or TableOptions()
    cells = read_cells(path)
    _expect_names(path, cells.names, options)
    if not cells.places:
        raise DataError(f"{path}: expected rows under the names of the columns, got none")
    problems: list[str] = []
    target = cells.names[-1] if options.target is None else options.target
    answers = cells.columns[cells.names.index(target)]
    present = [cell for cell in answers if not is_blank(cell, "number")]
    kind: ColumnKind = "category" if numeric_form(present, cells.delimiter) is None else "number"
    unanswered = {row for row, cell in enumerate(answers) if is_blank(cell, kind)}
    if len(unanswered) == len(cells.places):
        raise DataError(f"{path}: column {target!r}: expected values to predict, got none")
    all_values = dict(zip(cells.names, cells.columns, strict=True))
    if unanswered:
        cells = without_rows(cells, unanswered)
    task, labels = _target(cells, target, options, problems)
    values_of = dict(zip(cells.names, cells.columns, strict=True))
    # in the order of the training, wherever they are in this file
    in_order = [*(name for name in options.forms if name in values_of), *cells.names]
    columns = [
        _with_blanks_of(all_values[name], _column(cells, name, values_of[name], options, problems))
        for name in dict.fromkeys(in_order)
        if name != target and name not in options.drop
    ]
    missing = [name for name in options.forms if name not in cells.names]
    problems += [f"expected a column {name!r}, as in the training, got none" for name in missing]
    times = () if options.time_column is None else _times(cells, options.time_column, options, problems)
    if not any(column.form is not None for column in columns) and not problems:
        why = "; ".join(f"{column.name!r}: {column.note}" for column in columns if column.note)
        problems.append(
            f"expected a column from which {target!r} can be predicted, got none"
            + (f" ({why}): --keep uses a column that is left out" if why else "")
        )
    return Table(path, cells, tuple(columns), target, task, labels, times, len(unanswered), tuple(problems))


def expect_no_problems(table: Table) -> None:
    """Raise a DataError with all problems of a table, if it has any."""
    if not table.problems:
        return
    shown = table.problems[:MAX_PROBLEMS]
    more = len(table.problems) - len(shown)
    listed = [*shown, *([f"and {more} more"] if more else [])]
    text = listed[0] if len(listed) == 1 else "".join(f"\n  {problem}" for problem in listed)
    raise DataError(f"{table.path}: {text}")


def read_table(path: Path, options: TableOptions | None = None) -> RawDataset:
    """Read a table whose rows are examples; in the order of time, if they are split by it.

    Raises:
        DataError: The file is no table, or something about its columns has to be decided or corrected first.
            All problems are in one error, with their remedies.
    """
    table = open_table(path, options)
    expect_no_problems(table)
    cells, used = table.cells, table.used
    values = dict(zip(cells.names, cells.columns, strict=True))
    numbers = torch.tensor(
        [[column.form.number_of(cell) for cell in values[column.name]] for column in used if column.form],
        dtype=torch.float32,
    )
    rows = Split(numbers.T.contiguous(), _targets(table, values[table.target]))
    if table.times:
        rows = rows.take(torch.tensor(table.times, dtype=torch.float64).sort(stable=True).indices)
    return RawDataset(
        stem(path),
        rows,
        None,
        table.labels,
        "numbers",
        features=tuple(column.name for column in used),
        target=table.target,
        task=table.task,
        columns=table.columns,
        time_column=(options.time_column or "") if options else "",
        unanswered=table.unanswered,
    )


def _expect_names(path: Path, names: Sequence[str], options: TableOptions) -> None:
    for option, chosen in (
        ("--target", () if options.target is None else (options.target,)),
        ("--drop", options.drop),
        ("--keep", options.keep),
        ("--kind", options.kinds),
        ("--time-column", () if options.time_column is None else (options.time_column,)),
    ):
        for name in chosen:
            if name not in names and options.forms:
                raise DataError(f"{path}: expected a column {name!r}, as in the training, got none")
            if name not in names:
                similar = similar_name(name, names)
                question = f"; did you mean {similar!r}?" if similar else ""
                known = ", ".join(known or "''" for known in names)
                raise DataError(f"{path}: {option}: expected one of {known}, got {name!r}{question}")


def _column(
    cells: Cells, name: str, values: Sequence[Any], options: TableOptions, problems: list[str]
) -> Column:
    """What a column holds; what is wrong with it is added to the problems."""
    where = f"column {name!r}: "
    if options.forms:
        column = Column(name, options.forms.get(name))
    elif name in options.kinds:
        try:
            column = column_of_kind(name, values, options.kinds[name], cells.delimiter)
        except ValueError as error:
            problems.append(f"{where}--kind: {error}")
            return Column(name, None)
    else:
        column = kind_of_column(name, values, cells.delimiter, cells.places)
        if column.form is None and name in options.keep:
            column = kept(column, values)
    if column.problem:
        problems.append(where + column.problem)
    elif column.form is not None:
        _expect_numbers(cells, column, values, problems)
    return column


def _with_blanks_of(values: Sequence[Any], column: Column) -> Column:
    """The column with the number of blanks in all rows of the file.

    The rows that were left out count, so that the model takes the file that it was trained on.
    """
    form = column.form
    return (
        column if form is None else replace(column, blanks=sum(is_blank(cell, form.kind) for cell in values))
    )


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
    numbers = _numbers(values, cells.delimiter)
    task = options.task or _task_of(numbers)
    if task == "number":
        _expect_target_numbers(cells, values, numbers, where, problems)
        return task, ()
    if options.task is None and (wrong := mistakes(name, values, cells.places)):
        # the remedies of other columns do not apply
        problems.append(f"{where}: {wrong.partition(':')[0]}: correct such cells, or remove their rows")
        return task, ()
    plain = [_number(cell) for cell in values]
    words = [class_of(cell, number) for cell, number in zip(values, plain, strict=True)]
    if options.labels:
        _expect_classes(cells, values, words, options.labels, where, problems)
        return task, tuple(options.labels)
    are_numbers = all(number is not None and number.is_integer() for number in plain)
    labels = sorted(set(words), key=int) if are_numbers else sorted(set(words))
    if len(labels) < 2:
        problems.append(f"{where}: expected 2 classes or more, got {len(labels)}")
    if len(labels) > MAX_RARE_CLASSES and 2 * len(labels) > len(words) and not options.task:
        problems.append(
            f"{where}: expected several rows of each class, got {len(labels):,} different values in "
            f"{len(words):,} rows: --target names another column, and --task classes uses them all the same"
        )
    return task, tuple(labels)


def _expect_classes(
    cells: Cells,
    values: Sequence[Any],
    words: Sequence[str],
    labels: Sequence[str],
    where: str,
    problems: list[str],
) -> None:
    """Add the first cell that is none of the classes of a training."""
    for place, cell, word in zip(cells.places, values, words, strict=True):
        if word not in labels:
            problems.append(f"{where}: {place}: expected one of the training's classes, got {in_words(cell)}")
            return


def _expect_target_numbers(
    cells: Cells, values: Sequence[Any], numbers: Sequence[float | None], where: str, problems: list[str]
) -> None:
    """Add what is wrong with numbers to predict."""
    for place, cell, number in zip(cells.places, values, numbers, strict=True):
        if number is None:
            problems.append(f"{where}: {place}: expected a number, got {in_words(cell)}")
            return
        if abs(number) > MAX_FLOAT32:
            problems.append(f"{where}: {place}: expected a number within float32, got {in_words(cell)}")
            return
    if len(set(numbers)) < 2:
        problems.append(f"{where}: expected different numbers, got always {in_words(values[0])}")


def _times(cells: Cells, name: str, options: TableOptions, problems: list[str]) -> tuple[float, ...]:
    """The times of all rows, by which they are sorted."""
    values = cells.columns[cells.names.index(name)]
    where = f"--time-column: column {name!r}"
    blank = next((n for n, cell in enumerate(values) if is_blank(cell, "number")), None)
    if blank is not None:
        problems.append(f"{where}: expected a value in each row, got none in {cells.places[blank]}")
        return ()
    form = options.forms.get(name)
    if form is None and name in options.kinds:
        try:
            form = column_of_kind(name, values, options.kinds[name], cells.delimiter).form
        except ValueError:
            return ()  # a problem of the column already
    elif form is None:
        found = kind_of_column(name, values, cells.delimiter)
        if found.problem and name in options.drop:
            problems.append(f"{where}: {found.problem}")
        form = numeric_form(values, cells.delimiter) or date_form(values)
    if form is None or form.kind not in ("number", "date"):
        problems.append(f"{where}: expected dates or numbers, got values such as {in_words(values[0])}")
        return ()
    return tuple(map(form.number_of, values))


def _numbers(values: Sequence[Any], delimiter: str) -> list[float | None]:
    """The numbers of a column to predict, None for each other cell."""
    form = numeric_form(values, delimiter) or ColumnForm()
    numbers: list[float | None] = []
    for cell in values:
        try:
            numbers.append(form.number_of(cell))
        except CellError:
            numbers.append(None)
    return [None if number is None or math.isnan(number) else number for number in numbers]


def _number(cell: Any) -> float | None:
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
    if table.task == "number":
        numbers = _numbers(values, table.cells.delimiter)
        return torch.tensor([number or 0.0 for number in numbers], dtype=torch.float32)
    index = {label: place for place, label in enumerate(table.labels)}
    return torch.tensor([index[class_of(cell, _number(cell))] for cell in values])
