"""What a person sees of a search: a bar on a terminal, a line for each load elsewhere, a table at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from loadtest.report import number_format as wording
from tune.candidates import Candidate
from tune.measurements import Figures, Trial
from tune.result import Found
from tune.sentences import crowd, sentences


class Display:
    """Shows a search while its block runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = self._all = 0
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
    def lost(self) -> str:
        """What ends with the search if it ends now."""
        return f"{max(0, self._done - 1)} of {self._all} measurements are lost, and nothing was written"

    def say(self, words: str) -> None:
        """Something that stays."""
        self._bar.console.print(escape(words), highlight=False, soft_wrap=True)

    def begin(self, loads: int, lasting: float) -> None:
        """So many loads will take so many seconds."""
        self._all = loads
        self.say(f"{loads} measurements, about {wording.length(lasting)}")
        self._bar.update(self._task, total=loads)

    def load(self, candidate: Candidate, users: int) -> None:
        """A load begins."""
        words = f"{candidate.name}: {crowd(users)}"
        self._bar.update(self._task, description=escape(words), completed=self._done)
        self._done += 1
        if not self._console.is_terminal:
            self.say(f"{self._done}/{self._all} {words}{self._best}")

    def best(self, candidate: Candidate, trial: Trial) -> None:
        """The best so far."""
        rates = ", ".join(wording.number(one.rate) for one in trial)
        self._best = f"; best so far {candidate.name}: {rates}/s"
        self._bar.update(self._task, best=escape(f"best {candidate.name}: {rates}/s"))

    def result(self, found: Found) -> None:
        """The table of all candidates, and what it comes to."""
        self._console.print(table(found))
        for sentence in sentences(found):
            self._console.print(escape(sentence), highlight=False, soft_wrap=True)
        for note in found.notes:
            self._console.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def table(found: Found) -> Table:
    """A line for each candidate, the best first."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("workers x threads")
    shown.add_column("gain", justify="right")
    for users in found.plan.users:
        shown.add_column(crowd(users), justify="right", no_wrap=True)
    for line in found.lines:
        style = "bold" if line.candidate == found.decision.best else ""
        cells = [_cell(one) for one in line.trial]
        shown.add_row(escape(line.candidate.name), f"{line.gain:.2f}", *cells, style=style)
    return shown


def _cell(one: Figures) -> str:
    told = f"{wording.number(one.rate)}/s {wording.seconds(one.p99)}"
    return f"[red]{told} ✗[/]" if one.failures else told
