"""What a person sees of a run: a live bar on a terminal, a line an epoch elsewhere, tables at the end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from models.training.train import StepReport

console = Console()


@contextmanager
def training_bar(name: str) -> Iterator[Callable[[StepReport], None]]:
    """A callback for `train` that shows where it is, with loss and accuracy."""
    if not console.is_terminal:
        yield _epoch_printer()
        return
    columns = (
        TextColumn("[bold]{task.description}[/] epoch {task.fields[epoch]}"),
        BarColumn(bar_width=None),
        TextColumn("loss {task.fields[loss]} · accuracy {task.fields[accuracy]}{task.fields[valid]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, expand=True) as progress:
        task = progress.add_task(name, total=None, epoch="", loss="?", accuracy="?", valid="")

        def tell(tick: StepReport) -> None:
            valid = f" · valid {tick.history[-1]['valid_accuracy']:.2%}" if tick.history else ""
            progress.update(
                task,
                total=tick.steps,
                completed=tick.step,
                epoch=f"{tick.epoch}/{tick.epochs}",
                loss=f"{tick.loss:.4f}",
                accuracy=f"{tick.accuracy:.2%}",
                valid=valid,
            )

        yield tell


def _epoch_printer() -> Callable[[StepReport], None]:
    """Where no bar can be drawn (a log file, CI), one line for each epoch that ends."""
    seen: int | None = None

    def tell(tick: StepReport) -> None:
        nonlocal seen
        if seen is not None and len(tick.history) > seen:
            last = tick.history[-1]
            console.print(
                f"epoch {last['epoch']}/{tick.epochs}: loss {last['loss']:.4f}, "
                f"accuracy {last['accuracy']:.2%}, valid {last['valid_accuracy']:.2%}, "
                f"{last['seconds']:.1f} s",
                highlight=False,
            )
        seen = len(tick.history)

    return tell


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A callback for downloads: the file's name, bytes done, bytes in all."""
    tasks: dict[str, TaskID] = {}
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console, transient=True
    )

    def tell(name: str, done: int, total: int | None) -> None:
        progress.start()  # data that is at hand shows no bar
        if name not in tasks:
            tasks[name] = progress.add_task(f"downloading {name}", total=total)
        progress.update(tasks[name], completed=done)

    try:
        yield tell
    finally:
        if tasks:
            progress.stop()


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """A small table of what a run came to."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, escape(value))
    console.print(table)


def shell_command(words: Iterable[str | Path]) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(str(word) for word in words)
