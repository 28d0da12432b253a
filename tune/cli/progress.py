"""Terminal output of a search: a progress bar (lines if it is no terminal), then the final table."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from turnpike.reporting import number_format as fmt
from turnpike.tune.report.sentences import result_sentences, users_text
from turnpike.tune.result import TuneResult
from turnpike.tune.search.candidates import Candidate
from turnpike.tune.search.measurements import LoadFigures, Trial


class TuneProgress:
    """Shows a search while its block runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._total = 0
        self._best = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("[dim]{task.fields[best]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, best="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    @property
    def kept_text(self) -> str:
        """What is left of the search if it ends now, in words."""
        done = max(0, self._started - 1)
        return (
            f"{done} of {self._total} measurements were made, and the same command continues after the last "
            "whole trial"
        )

    def message(self, text: str) -> None:
        """Print a line that stays."""
        self._bar.console.print(escape(text), highlight=False, soft_wrap=True)

    def started(self, loads: int, seconds: float) -> None:
        """The search starts; it takes this many loads, and about this many seconds."""
        self._total = loads
        self.message(f"{loads} measurements, about {fmt.length(seconds)}")
        self._bar.update(self._task, total=loads)

    def load_started(self, candidate: Candidate, users: int) -> None:
        text = f"{candidate.name}: {users_text(users)}"
        self._bar.update(self._task, description=escape(text), completed=self._started)
        self._started += 1
        if not self._console.is_terminal:
            self.message(f"{self._started}/{self._total} {text}{self._best}")

    def best_changed(self, candidate: Candidate, trial: Trial) -> None:
        """Show the best candidate so far."""
        rates = ", ".join(fmt.number(figures.rate) for figures in trial)
        self._best = f"; best so far {candidate.name}: {rates}/s"
        self._bar.update(self._task, best=escape(f"best {candidate.name}: {rates}/s"))

    def show_result(self, result: TuneResult) -> None:
        """Print the table of all candidates, the result in sentences, and notes."""
        self._console.print(result_table(result))
        for sentence in result_sentences(result):
            self._console.print(escape(sentence), highlight=False, soft_wrap=True)
        for note in result.notes:
            self._console.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def result_table(result: TuneResult) -> Table:
    """A row for each candidate, the best first."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("workers x threads")
    table.add_column("gain", justify="right")
    for users in result.plan.users:
        table.add_column(users_text(users), justify="right", no_wrap=True)
    for tried in result.candidates:
        style = "bold" if tried.candidate == result.decision.best else ""
        cells = [_cell(figures) for figures in tried.trial]
        table.add_row(escape(tried.candidate.name), f"{tried.gain:.2f}", *cells, style=style)
    return table


def _cell(figures: LoadFigures) -> str:
    text = f"{fmt.number(figures.rate)}/s {fmt.seconds(figures.p99)}"
    return f"[red]{text} ✗[/]" if figures.failures else text
