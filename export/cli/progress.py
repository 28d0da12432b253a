"""What `turnpike export`, `verify` and `demo` show: the steps while they run, warnings and results.

On a terminal each step is a live line; otherwise it is a plain line when it is done.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from export.errors import ParityError
from export.pipeline import ExportResult
from export.steps import ProgressListener
from models.interrupt import INTERRUPTED_EXIT_STATUS
from service.artifact.manifest import Manifest

console = Console()


class StepProgress(ProgressListener):
    """Shows the steps inside a `with` block. `check` is called before each step, and may raise to stop."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._live = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def started(self, step: str) -> None:
        self._check()
        if console.is_terminal:
            self._task = self._live.add_task(step, total=None)

    def advanced(self, done: int, total: int) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=done, total=total)

    def finished(self, step: str, seconds: float) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=1, total=1)
        elif not console.is_terminal:
            console.print(f"{step}: {seconds:.1f} s", highlight=False)


def warn(text: str) -> None:
    """Print a warning."""
    console.print(f"[yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def show_export(result: ExportResult) -> None:
    """Print the result of an export in a few lines."""
    for text in result.warnings:
        warn(text)
    for line in summary_lines(result.manifest):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.comparison is not None:
        speed = ", ".join(f"{speed.ratio:.2f}x at {speed.rows}" for speed in result.comparison.speed)
        console.print(
            f"{result.comparison.precision}: agrees with fp32 on {result.comparison.agreement:.2%} of "
            f"{result.comparison.rows} rows; speed relative to fp32 by rows in a batch: {speed}",
            highlight=False,
            soft_wrap=True,
        )
    if result.report is not None:
        console.print(f"report: {escape(str(result.report))}", highlight=False, soft_wrap=True)
    verb = "wrote" if result.written else "unchanged:"
    console.print(f"[bold]{verb}[/] {escape(str(result.path))}", highlight=False, soft_wrap=True)


def summary_lines(manifest: Manifest) -> Iterator[str]:
    """The proof, the samples and the gates, a line each."""
    parity = manifest.parity
    yield (
        f"parity: {len(parity.tensors)} tensors, {len(parity.batches)} batches on "
        f"{', '.join(parity.providers)}; {parity.identical} weights identical bit for bit"
    )
    yield f"samples: {len(manifest.samples)} rows" if manifest.samples else "samples: none"
    if not manifest.gates:
        yield "gates: none found"
        return
    layers = len({gate.layer for gate in manifest.gates})
    kinds = ", ".join(sorted({f"{gate.kind}, {gate.carry} carry" for gate in manifest.gates}))
    yield f"gates: {len(manifest.gates)} in {layers} layers ({kinds})"


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM stop the block: nothing is left behind, and the command exits with 130.

    Yields a function that raises KeyboardInterrupt once a signal has arrived. Call it between steps: a
    library may have swallowed the exception that the signal raised.
    """
    stop_requested = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stop_requested
        stop_requested = True
        raise KeyboardInterrupt

    def check() -> None:
        if stop_requested:
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    except KeyboardInterrupt:
        console.print("interrupted: nothing was written")
        raise typer.Exit(INTERRUPTED_EXIT_STATUS) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def table_on_failure() -> Iterator[None]:
    """Print the table of a ParityError before the error reaches the command line."""
    try:
        yield
    except ParityError as error:
        if error.table:
            console.print(error.table, highlight=False, markup=False)
        raise
