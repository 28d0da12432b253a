"""Terminal output of the commands: progress bars (or one line per epoch without a terminal), and tables."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from turnpike.models.data.download import DownloadProgress
    from turnpike.models.training.train import StepReport

# numbers are not highlighted: they are parts of names and paths too
console = Console(highlight=False)

# how answers are judged, as the terminal says it
METRICS = {"accuracy": "accuracy", "r2": "R²"}


def metric_of(entry: Mapping[str, float], prefix: str = "") -> str:
    """The metric that an entry of a history, or the metrics of a run, has."""
    return next(name for name in METRICS if f"{prefix}{name}" in entry)


def score_text(entry: Mapping[str, float], prefix: str = "") -> str:
    """The score in an entry of a history: a share of correct answers, or R²."""
    metric = metric_of(entry, prefix)
    value = entry[f"{prefix}{metric}"]
    return f"{value:.2%}" if metric == "accuracy" else f"{value:.4f}"


@contextmanager
def quiet_console(*, quiet: bool) -> Iterator[None]:
    """Print nothing in the block if it is quiet; errors are printed elsewhere."""
    before, console.quiet = console.quiet, quiet
    try:
        yield
    finally:
        console.quiet = before


@contextmanager
def training_bar(name: str) -> Iterator[Callable[[StepReport], None]]:
    """Yield a callback for `train` that shows the progress, the loss and the accuracy."""
    if not console.is_terminal:
        yield _epoch_printer()
        return
    columns = (
        TextColumn("[bold]{task.description}[/] epoch {task.fields[epoch]}"),
        BarColumn(bar_width=None),
        TextColumn("loss {task.fields[loss]}{task.fields[gates]} · {task.fields[score]}{task.fields[valid]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, expand=True) as progress:
        task = progress.add_task(name, total=None, epoch="", loss="?", gates="", score="", valid="")

        def on_step(report: StepReport) -> None:
            history = report.history
            valid = f" · valid {score_text(history[-1], 'valid_')}" if history else ""
            progress.update(
                task,
                total=report.steps,
                completed=report.step,
                epoch=f"{report.epoch}/{report.epochs}",
                loss=f"{report.loss:.4f}",
                gates="" if report.gate_penalty is None else f" + gates {report.gate_penalty:.4f}",
                score=f"{METRICS[report.metric]} {score_text({report.metric: report.score})}",
                valid=valid,
            )

        yield on_step


def _epoch_printer() -> Callable[[StepReport], None]:
    """Return a callback that prints one line per epoch, for log files and CI."""
    printed_epochs: int | None = None

    def on_step(report: StepReport) -> None:
        nonlocal printed_epochs
        # the first report of a resumed run has the history of earlier calls, which is not printed again
        if printed_epochs is not None and len(report.history) > printed_epochs:
            last = report.history[-1]
            gates = f" + gates {last['gate_penalty']:.4f}" if "gate_penalty" in last else ""
            console.print(
                f"epoch {last['epoch']}/{report.epochs}: loss {last['loss']:.4f}{gates}, "
                f"{METRICS[metric_of(last)]} {score_text(last)}, valid {score_text(last, 'valid_')}, "
                f"{last['seconds']:.1f} s",
                highlight=False,
            )
        printed_epochs = len(report.history)

    return on_step


@contextmanager
def download_bar() -> Iterator[DownloadProgress]:
    """Yield a callback that shows a bar for each file that is downloaded."""
    tasks: dict[str, TaskID] = {}
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console, transient=True
    )

    def on_download(name: str, received: int, total: int | None) -> None:
        progress.start()  # only now, so that cached data shows no bar
        if name not in tasks:
            tasks[name] = progress.add_task(f"downloading {name}", total=total)
        progress.update(tasks[name], completed=received)

    try:
        yield on_download
    finally:
        if tasks:
            progress.stop()


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print a table of names and values."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, escape(value))
    console.print(table)


def show_next_step(*arguments: str | Path) -> None:
    """Print the `turnpike` command that a user would run next."""
    # in a virtual environment that is not activated, the command needs its path
    own = Path(sys.argv[0])
    program = own if own.name == "turnpike" and not shutil.which("turnpike") else "turnpike"
    console.print(f"next: [bold]{escape(shell_command([program, *arguments]))}[/]", soft_wrap=True)


def shell_command(words: Iterable[str | Path]) -> str:
    """Return a command line that can be pasted into a shell."""
    return shlex.join(str(word) for word in words)
