"""The columns of a table in the terminal: what each holds, and why some are left out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from turnpike.models.cli.progress import console
from turnpike.models.data.table.kinds import Column

# words of a category that are shown
MAX_WORDS = 4
WHY = {"constant": "constant", "id": "id", "text": "free text"}


def show_columns(columns: Sequence[Column]) -> None:
    """Print a line for each column."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, justify in (("column", "left"), ("kind", "left"), ("blanks", "right"), ("", "left")):
        table.add_column(title, justify=justify, style="" if title else "dim")  # type: ignore[arg-type]
    for column in columns:
        kind = f"left out: {WHY[column.useless]}" if column.useless else ""
        if column.form is not None:
            kind = column.form.kind
        table.add_row(
            escape(column.name), kind, f"{column.blanks:,}" if column.blanks else "", escape(detail(column))
        )
    console.print(table)


def detail(column: Column) -> str:
    """What is worth knowing about a column, beside its kind."""
    form = column.form
    if form is None or form.kind not in ("category", "date"):
        return column.note
    if form.kind == "date":
        return form.date_format
    words = form.categories[:MAX_WORDS]
    more = f" and {len(form.categories) - len(words)} more" if len(form.categories) > len(words) else ""
    return ", ".join(words) + more
