"""A table in the terminal: what each column holds, why some are left out, and what is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table as Lines

from turnpike.models.choices import Task
from turnpike.models.cli.progress import console
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.leaks import revealing_columns
from turnpike.models.data.load import expect_exists
from turnpike.models.data.read_table import MAX_NUMBER_CLASSES, Table, expect_no_problems, open_table
from turnpike.models.data.table.cells import is_table
from turnpike.models.data.table.kinds import Column
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import ConfigError

# words of a category that are shown
MAX_WORDS = 4
# columns that are shown before a training; --columns shows all
MAX_COLUMNS = 40
WHY = {"constant": "constant", "id": "id", "text": "free text"}


def show_table(data: str | None, options: TableOptions) -> None:
    """Print what the columns of a table hold, for `--columns`; then raise if there are problems."""
    if data is not None:
        expect_exists(data)
    path = Path(data or "")
    if data is None or not (path.is_file() and is_table(path)):
        got = "none" if data is None else data
        raise ConfigError(f"--columns: expected --data with a .csv, .tsv or .parquet file, got {got}")
    table = open_table(path, options)
    show_columns(table.columns)
    if not any(f"column {table.target!r}" in problem for problem in table.problems):
        _print_target(table, options)
    expect_no_problems(table)


def show_data(data: Dataset, options: TableOptions) -> None:
    """Print what the columns of a table hold and what is predicted; warn of columns that give it away."""
    shown = data.columns[:MAX_COLUMNS]
    show_columns(shown)
    if more := len(data.columns) - len(shown):
        console.print(f"and {more:,} more columns, which --columns shows")
    _print_target(data, options)
    if data.time_column:
        console.print(f"Split by {escape(data.time_column)}: the last rows are the test rows.")
    for name in revealing_columns(data):
        console.print(
            f"[yellow]warning:[/] column {escape(repr(name))} alone gives {escape(data.target)} away. If it "
            f"is not known when {escape(data.target)} is asked for, leave it out: --drop {escape(name)}",
            soft_wrap=True,
        )


def show_columns(columns: Sequence[Column]) -> None:
    """Print a line for each column."""
    lines = Lines(box=None, padding=(0, 2, 0, 0))
    lines.add_column("column", overflow="fold")
    lines.add_column("kind", no_wrap=True)
    lines.add_column("blanks", justify="right")
    lines.add_column("", style="dim", overflow="fold")
    for column in columns:
        kind = f"left out: {WHY[column.useless]}" if column.useless else "?"
        if column.form is not None:
            kind = column.form.kind
        name = column.name or "(no name)"
        lines.add_row(
            escape(name), kind, f"{column.blanks:,}" if column.blanks else "", escape(detail(column))
        )
    console.print(lines)


def detail(column: Column) -> str:
    """What is worth knowing about a column, beside its kind."""
    form = column.form
    if form is None or form.kind not in ("category", "date"):
        return column.note
    if form.kind == "date":
        return "" if form.date_format == "iso" else form.date_format
    words = form.categories[:MAX_WORDS]
    more = f" and {len(form.categories) - len(words)} more" if len(form.categories) > len(words) else ""
    return ", ".join(words) + more


def _print_target(table: Table | Dataset, options: TableOptions) -> None:
    console.print(escape(target_text(table, options)), soft_wrap=True)
    if table.unanswered:
        rows = "1 row has" if table.unanswered == 1 else f"{table.unanswered:,} rows have"
        console.print(f"Left out: {rows} no value of {escape(table.target)}.")


def target_text(table: Table | Dataset, options: TableOptions) -> str:
    """What is predicted, why, and the options that choose something else."""
    last = " (the last column; --target names another)" if options.target is None else ""
    what = "a number" if table.task == "number" else f"one of {len(table.labels)} classes"
    return f"To predict: {table.target}{last}, {what}{'' if options.task else _other_task(table.task, table)}"


def _other_task(task: Task, table: Table | Dataset) -> str:
    """Why the values of a target were taken for numbers or classes, if they could be either."""
    if task == "number":
        return f" (more than {MAX_NUMBER_CLASSES} different values; --task classes makes each a class)"
    if all(label.lstrip("-").isdecimal() for label in table.labels):
        return " (few different whole numbers; --task number predicts a number)"
    return ""
