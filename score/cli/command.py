"""The command `turnpike score`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Engine(StrEnum):
    """What runs the parts of a job."""

    LOCAL = "local"
    RAY = "ray"


app = typer.Typer(add_completion=False)

INTERRUPTED_EXIT_STATUS = 130
# numbers are not highlighted: they are parts of names and paths too
console = Console(highlight=False)


@app.command()
def command(
    model: Annotated[
        Path,
        typer.Option("--model", "-m", metavar="MODEL", help="An .onnx file, or a folder with one model."),
    ],
    source: Annotated[
        str,
        typer.Option("--input", "-i", metavar="FILES", help="A file, a folder, or a pattern in quotes."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")],
    gates: Annotated[bool, typer.Option("--gates", help="Add the mean of each gate for each row.")] = False,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Say which cells of a row the training did not have.")
    ] = False,
    engine: Annotated[
        Engine, typer.Option(metavar="ENGINE", help="local, or ray for a Ray cluster.")
    ] = Engine.LOCAL,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes.", show_default="one per CPU")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what another job has written there.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Score large files: Parquet, CSV, JSON lines, .npy, or folders of images.

    Writes Parquet files with a prediction for each row, in the order of the
    rows. Columns are found by the names of the model's features, as by
    turnpike predict; other columns are kept. If a job is interrupted, the
    same command continues it.
    """
    # imported here, so that --help needs neither pyarrow nor onnxruntime
    from turnpike.score.run import JobOptions, run_job

    console.quiet = quiet
    options = JobOptions(model, source, output, gates, warnings, engine.value, workers, overwrite)
    with interruptible(output), progress_bar() as on_progress:
        result = run_job(options, on_progress)
    if not result.rows and result.reused_parts:
        console.print(f"nothing is left to score: {escape(str(output))} has all rows", soft_wrap=True)
        return
    earlier = f", {result.reused_parts} of them of an earlier run" if result.reused_parts else ""
    rate = result.rows / result.seconds
    console.print(
        f"scored {result.rows:,} rows in {result.seconds:.1f} s ({rate:,.0f} rows/s): "
        f"{escape(str(output))}, {result.parts} file{'s' if result.parts > 1 else ''}{earlier}",
        soft_wrap=True,
    )


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, int], None]]:
    """Yield a callback that shows the parts, the rows per second and the time left."""
    columns = (
        TextColumn("{task.completed}/{task.total} parts"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows · {task.fields[rate]:,.0f} rows/s ·"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None, rows=0, rate=0)

        def show(finished: int, total: int, rows: int) -> None:
            elapsed = progress.tasks[task].elapsed or 1
            progress.update(task, completed=finished, total=total, rows=rows, rate=rows / elapsed)

        yield show


@contextmanager
def interruptible(output: Path) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the block, and say how to continue."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        console.print(
            f"interrupted: the same command continues the job in {escape(str(output))}", soft_wrap=True
        )
        raise typer.Exit(INTERRUPTED_EXIT_STATUS) from None
    finally:
        signal.signal(signal.SIGTERM, previous)
