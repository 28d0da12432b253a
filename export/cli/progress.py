"""What a person sees of an export: a live line a step on a terminal, a plain line where none can be drawn."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from export.steps import ProgressListener

console = Console()


class StepProgress(ProgressListener):
    """Shows the steps while its block runs. `check` is called before each, and may stop the work."""

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

    def began(self, step: str) -> None:
        self._check()
        if console.is_terminal:
            self._task = self._live.add_task(step, total=None)

    def moved(self, done: int, total: int) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=done, total=total)

    def ended(self, step: str, seconds: float) -> None:
        if self._task is not None:
            self._live.update(self._task, completed=1, total=1)
        elif not console.is_terminal:
            console.print(f"{step}: {seconds:.1f} s", highlight=False)


def warn(text: str) -> None:
    """Something a user should know, that stops nothing."""
    console.print(f"[yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)
