"""What `turnpike export`, `verify` and `demo` show: the steps while they run, warnings and results.

On a terminal each step is a live line; otherwise it is a plain line when it is done.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from turnpike.export.errors import ParityError
from turnpike.export.steps import ProgressListener
from turnpike.models.interrupt import INTERRUPTED_EXIT_STATUS
from turnpike.service.artifact.verdict_text import proof_lines

if TYPE_CHECKING:
    from turnpike.export.pipeline import ExportResult
    from turnpike.service.artifact.manifest import Manifest

# other gates that are printed
MAX_OTHER_GATES = 10

# numbers are not highlighted: they are parts of names and paths too
console = Console(highlight=False)


class StepProgress(ProgressListener):
    """Shows the steps inside a `with` block, unless it is hidden.

    `check` is called before each step, and may raise to stop.
    """

    def __init__(self, check: Callable[[], None], *, hidden: bool = False) -> None:
        self._check = check
        self._hidden = hidden
        self._live = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if console.is_terminal and not self._hidden:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # elsewhere rich would print an empty line
        if console.is_terminal and not self._hidden:
            self._live.stop()

    def started(self, step: str) -> None:
        self._check()
        if console.is_terminal and not self._hidden:
            self._task = self._live.add_task(step, total=None)

    def advanced(self, done: int, total: int) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=done, total=total)

    def finished(self, step: str, seconds: float) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=1, total=1)
        elif not (console.is_terminal or self._hidden):
            console.print(f"{step}: {seconds:.1f} s", highlight=False)


def show_messages(warnings: Sequence[str], notes: Sequence[str]) -> None:
    """Print warnings, and notes after them."""
    for style, kind, texts in (("yellow", "warning", warnings), ("cyan", "note", notes)):
        for text in texts:
            console.print(f"[{style}]{kind}:[/] {escape(text)}", highlight=False, soft_wrap=True)


def show_export(result: ExportResult) -> None:
    """Print the result of an export in a few lines."""
    show_messages(result.warnings, result.notes)
    for line in summary_lines(result.manifest):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for line in other_gate_lines(result.other_gates):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.comparison is not None:
        summary = f"{result.comparison.summary}; {result.comparison.speed_text}"
        console.print(summary, highlight=False, soft_wrap=True)
    if result.report is not None:
        console.print(f"report: {escape(str(result.report))}", highlight=False, soft_wrap=True)
    if result.plain is not None:
        console.print(f"without gates: {escape(str(result.plain))}", highlight=False, soft_wrap=True)
    verb = "wrote" if result.written else "unchanged:"
    console.print(f"[bold]{verb}[/] {escape(str(result.path))}", highlight=False, soft_wrap=True)


def write_export_json(result: ExportResult) -> None:
    """Write the result of an export as one JSON object."""
    write_json(
        {
            "path": str(result.path),
            "written": result.written,
            "report": None if result.report is None else str(result.report),
            "plain": None if result.plain is None else str(result.plain),
            "warnings": result.warnings,
            "notes": result.notes,
            "other_gates": result.other_gates,
            "comparison": None if result.comparison is None else result.comparison.summary,
            "seconds": result.seconds,
            "manifest": result.manifest.model_dump(mode="json"),
        }
    )


class ResultWithWarnings(Protocol):
    """What a command has done, with the warnings that are printed even with --quiet."""

    @property
    def warnings(self) -> Sequence[str]: ...


Result = TypeVar("Result", bound=ResultWithWarnings)


def print_result(
    result: Result,
    *,
    as_json: bool,
    quiet: bool,
    write_object: Callable[[Result], None],
    show: Callable[[Result], None],
) -> None:
    """Print what --json and --quiet ask for: one JSON object, the warnings alone, or everything.

    Args:
        result: The result of a command.
        as_json: Whether --json was given. It goes before --quiet.
        quiet: Whether --quiet was given.
        write_object: Writes the result as one JSON object.
        show: Prints the whole result.
    """
    if as_json:
        write_object(result)
    elif quiet:
        show_messages(result.warnings, ())
    else:
        show(result)


def write_json(values: dict[str, Any]) -> None:
    """Write one JSON object to the standard output."""
    sys.stdout.write(json.dumps(values, indent=2) + "\n")


def summary_lines(manifest: Manifest) -> Iterator[str]:
    """What is proved and measured, the samples and the gates, a line each."""
    yield from proof_lines(manifest)
    if manifest.random_weights:
        yield "weights: random, drawn by the network's code; --weights loads trained ones"
    if (text := manifest.text) is not None:
        yield (
            f"text: {text.input} takes texts of {text.row_text} ({text.scheme_text}); "
            f"{text.texts:,} texts gave the ids of the training"
        )
    yield f"samples: {len(manifest.samples)} rows" if manifest.samples else "samples: none"
    if not manifest.gates:
        yield "gates: none in the file"
        return
    layers = len({gate.layer for gate in manifest.gates})
    kinds = ", ".join(sorted({f"{gate.kind}, {gate.carry} carry" for gate in manifest.gates}))
    yield f"gates: {len(manifest.gates)} in {layers} layer{'s' if layers > 1 else ''} ({kinds})"


def other_gate_lines(sentences: Sequence[str]) -> Iterator[str]:
    """What is known about the gates that form no highway, a line for each of the first."""
    if not sentences:
        return
    yield "other gates (sigmoids that multiply something and form no highway, T * H + C * x):"
    for sentence in sentences[:MAX_OTHER_GATES]:
        yield f"  {sentence}"
    if len(sentences) > MAX_OTHER_GATES:
        yield f"  and {len(sentences) - MAX_OTHER_GATES} more: --report lists all"


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
    except KeyboardInterrupt as interrupt:
        lost = str(interrupt) or "nothing was written"
        console.print(f"interrupted: {escape(lost)}", highlight=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED_EXIT_STATUS) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def running(threads: int, *, hidden: bool) -> Iterator[StepProgress]:
    """Show the steps of the block, which PyTorch runs with this many threads, and let Ctrl-C stop it."""
    import torch

    torch.set_num_threads(threads)
    with (
        stoppable() as check,
        table_on_failure(hidden=hidden),
        StepProgress(check, hidden=hidden) as progress,
    ):
        yield progress


@contextmanager
def table_on_failure(*, hidden: bool = False) -> Iterator[None]:
    """Print the table of a ParityError, unless it is hidden, before the error reaches the command line."""
    try:
        yield
    except ParityError as error:
        if error.table and not hidden:
            console.print(error.table, highlight=False, markup=False)
        raise
