"""The command `turnpike score`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from turnpike.score.job.options import OnError, OutputOptions

if TYPE_CHECKING:
    from turnpike.score.run import JobResult


class Engine(StrEnum):
    """What runs the parts of a job."""

    LOCAL = "local"
    RAY = "ray"


class StreamFormat(StrEnum):
    """Formats of standard input; standard output is CSV for all but `jsonl`."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    NPY = "npy"
    NPZ = "npz"


app = typer.Typer(add_completion=False)

INTERRUPTED_EXIT_STATUS = 130
MAX_LISTED_REASONS = 20
# numbers are not highlighted: they are parts of names and paths too
console = Console(highlight=False)


@app.command()
def command(
    sources: Annotated[
        list[str],
        typer.Option("--input", "-i", metavar="FILES", help="A file, a folder, a pattern in quotes, or -."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="PATH", help="Folder, .parquet, .csv or .jsonl file, or -."),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="An .onnx file, or a folder with one model.",
            show_default="digits-10",
        ),
    ] = None,
    gates: Annotated[bool, typer.Option("--gates", help="Add the mean of each gate for each row.")] = False,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Say which cells of a row the training did not have.")
    ] = False,
    on_error: Annotated[
        OnError,
        typer.Option("--on-error", metavar="WHAT", help="Rows that cannot be scored: fail, null or reject."),
    ] = OnError.FAIL,
    columns: Annotated[
        str, typer.Option("--columns", metavar="NAMES", help="Predictions to write.", show_default="all")
    ] = "",
    label_only: Annotated[
        bool, typer.Option("--label-only", help="Write the label or the value alone.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="NAMES", help="Input columns to write; or none.", show_default="unread ones"
        ),
    ] = None,
    source_columns: Annotated[
        bool, typer.Option("--source", help="Add the file and the number of each row.")
    ] = False,
    partition_by: Annotated[
        str | None,
        typer.Option("--partition-by", metavar="NAME", help="Column whose values become folders."),
    ] = None,
    stream_format: Annotated[
        StreamFormat, typer.Option("--format", metavar="FORMAT", help="Of - as input or output.")
    ] = StreamFormat.CSV,
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

    Writes a prediction for each row, in the order of the rows: a folder of
    Parquet files, one file, or standard output. Columns are found by the names
    of the model's features, as by turnpike predict; other columns are kept. If
    a job is interrupted, the same command continues it.
    """
    # imported here, so that --help needs neither pyarrow nor onnxruntime
    from turnpike.score.errors import FilesError
    from turnpike.score.run import JobOptions, run_job
    from turnpike.service.repository.location import BUNDLED_REPOSITORY

    if len(sources) > 1:
        raise typer.BadParameter(
            f"expected it once, got {len(sources)}: put the files into a folder, or use a pattern in quotes",
            param_hint="--input",
        )
    console.quiet = quiet
    # standard output may be the rows
    console.stderr = str(output) == "-"
    rows = OutputOptions(
        gates=gates,
        warnings=warnings,
        on_error=on_error,
        columns=names_in(columns),
        label_only=label_only,
        keep=None if keep is None else names_in("" if keep == "none" else keep),
        source=source_columns,
        partition_by=partition_by,
    )
    options = JobOptions(
        model or BUNDLED_REPOSITORY,
        sources[0],
        output,
        rows,
        engine.value,
        workers,
        overwrite,
        stream_format.value,
    )
    try:
        with interruptible(output), progress_bar() as on_progress:
            result = run_job(options, on_progress, partial(typer.echo, err=True))
    except BrokenPipeError:
        # what reads the rows has ended, such as `head`; Python would complain when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except FilesError as error:
        if len(error.reasons) > 1:
            print_reasons(error.reasons)
        raise
    print_result(result, output, is_rejected=on_error == OnError.REJECT)


def print_result(result: JobResult, output: Path, *, is_rejected: bool) -> None:
    """Say what was done, and what was not."""
    if result.changed_files:
        files = "1 file has" if result.changed_files == 1 else f"{result.changed_files:,} files have"
        console.print(f"{files} changed since the last run: scored again")
    if result.bad_rows:
        rows = "1 row" if result.bad_rows == 1 else f"{result.bad_rows:,} rows"
        fate = "left out" if is_rejected else "without a prediction"
        console.print(f"{rows} {fate}: {escape(str(result.bad_rows_file))} says why", soft_wrap=True)
    if not result.rows and result.reused_parts:
        console.print(f"nothing is left to score: {escape(str(output))} has all rows", soft_wrap=True)
        return
    place = "standard output" if str(output) == "-" else str(output)
    if result.reused_parts:
        place += f", {result.reused_parts} of {result.parts} parts by an earlier run"
    rate = result.rows / result.seconds
    console.print(
        f"scored {result.rows:,} rows in {result.seconds:.1f} s ({rate:,.0f} rows/s): {escape(place)}",
        soft_wrap=True,
    )


def print_reasons(reasons: Sequence[str]) -> None:
    """Print why files cannot be scored, each in a line, as far as anybody would read it."""
    for reason in sorted(reasons)[:MAX_LISTED_REASONS]:
        typer.echo(reason, err=True)
    if (more := len(reasons) - MAX_LISTED_REASONS) > 0:
        typer.echo(f"... and {more:,} more", err=True)


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


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
        where = "" if str(output) == "-" else f": the same command continues the job in {escape(str(output))}"
        console.print(f"interrupted{where}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED_EXIT_STATUS) from None
    finally:
        signal.signal(signal.SIGTERM, previous)
