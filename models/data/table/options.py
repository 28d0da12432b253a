"""What a user decides about the columns of a table, and what a finished training has decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from turnpike.common.columns import ColumnForm
from turnpike.models.choices import Task
from turnpike.models.errors import ConfigError


@dataclass(frozen=True)
class TableOptions:
    """What is decided about the columns of a table.

    Attributes:
        target: The column to predict; None for the last one.
        task: Whether its values are classes or numbers; None to decide by them.
        drop: Columns to leave out.
        keep: Columns to use although they seem to say nothing.
        kinds: The kind of a column, by its name; a date may have its format, as in "date:%d/%m/%Y".
        time_column: The column by which rows are split, the last ones for the test; None to split at random.
        forms: What a training has found: the columns that it used, and how their cells become numbers. Empty
            to find out from the cells.
        labels: The classes of a training, in its order; empty for those of the file.
    """

    target: str | None = None
    task: Task | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    time_column: str | None = None
    forms: Mapping[str, ColumnForm] = field(default_factory=dict)
    labels: Sequence[str] = ()

    def first_option(self) -> str | None:
        """The first option of the command that was given, if any was."""
        options = {
            "--target": self.target,
            "--task": self.task,
            "--drop": self.drop,
            "--keep": self.keep,
            "--kind": self.kinds,
            "--time-column": self.time_column,
        }
        return next((option for option, value in options.items() if value), None)


def table_options(
    *,
    target: str | None = None,
    task: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    kinds: Sequence[str] = (),
    time_column: str | None = None,
) -> TableOptions:
    """The options of the command line, with each kind as COLUMN=KIND.

    Raises:
        ConfigError: One of them is malformed, or two contradict each other.
    """
    chosen = {}
    for text in kinds:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise ConfigError(f"--kind: expected COLUMN=KIND, got {text!r}")
        chosen[name] = kind
    tasks = {name: name for name in get_args(Task)}
    if task is not None and task not in tasks:
        raise ConfigError(f"--task: expected {' or '.join(tasks)}, got {task!r}")
    for option, names in (("--keep", keep), ("--kind", chosen)):
        if both := [name for name in names if name in drop]:
            raise ConfigError(
                f"--drop and {option}: one leaves out {both[0]!r}, the other uses it; choose one"
            )
    for option, names in (("--drop", drop), ("--keep", keep), ("--kind", chosen)):
        if target is not None and target in names:
            raise ConfigError(f"{option}: {target!r} is the column to predict; --task says what it has")
    known_task: Task | None = None if task is None else tasks[task]
    return TableOptions(target, known_task, tuple(drop), tuple(keep), chosen, time_column)


def recorded_options(data: Mapping[str, Any]) -> TableOptions:
    """The options by which a table is read as in a training.

    Args:
        data: The `data` of the training's record.
    """
    names = ("kind", "categories", "date_format", "decimal_comma", "affix")
    forms = {}
    for feature in data.get("features", ()):
        values = {name: feature[name] for name in names if name in feature}
        if "categories" in values:
            values["categories"] = tuple(values["categories"])
        forms[feature["name"]] = ColumnForm(**values)
    return TableOptions(
        data.get("target") or None,
        data.get("task", "classes"),
        time_column=data.get("time_column"),
        forms=forms,
        labels=tuple(data.get("labels", ())),
    )
