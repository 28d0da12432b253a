"""What a person sees of a load test: a live panel on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadtest.ledger import Summary
from loadtest.measure.record import Record, Step
from loadtest.measure.state import State
from loadtest.report import number_format as wording

# seconds that "just now" is told from, and seconds between lines where nothing can be drawn
SECONDS, BETWEEN = 5, 5
# processes that send tell once a second: what is younger is not known as a whole
UNTOLD = 1
SPARKS, HEIGHTS = 40, "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Now:
    """The figures of the last seconds, as far as their answers have come."""

    rate: float  # good answers a second
    p50: float
    p99: float
    errors: int  # since the begin

    @classmethod
    def of(cls, state: State, now: float) -> Self:
        end = int(now) - UNTOLD
        begin = min(max(end - SECONDS, math.ceil(now - state.elapsed)), end)
        due = state.ledger.summary(begin, end)
        answers = sum(state.ledger.completed[second] for second in range(begin, end))
        return cls(
            rate=answers / (end - begin) if end > begin else 0.0,
            p50=due.percentile(0.5),
            p99=due.percentile(0.99),
            errors=sum(cell.faults.total() for cell in state.ledger.cells.values() if cell.faults),
        )


class Display:
    """Shows a load test while its block runs: call it with each state."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.time) -> None:
        self._console = console or Console()
        self._clock = clock
        self._live: Live | None = None
        self._told = 0.0
        self._steps = 0
        self._p99s: deque[float] = deque(maxlen=SPARKS)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, state: State) -> None:
        """Show how it stands."""
        for step in state.steps[self._steps :]:
            self._console.print(step_line(step), highlight=False, soft_wrap=True)
        self._steps = len(state.steps)
        if self._live is not None:
            just_now = Now.of(state, self._clock())
            self._p99s.append(just_now.p99)
            self._live.update(panel(state, just_now, self._p99s), refresh=True)
        elif state.elapsed - self._told >= BETWEEN:
            self._told = state.elapsed
            said = line(state, Now.of(state, self._clock()))
            self._console.print(escape(said), highlight=False, soft_wrap=True)

    def result(self, record: Record) -> None:
        """The figures at the end, as a table; then what the reader should know of them."""
        self._console.print(final(record))
        for note in record.notes:
            self._console.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
        if record.wrong is not None:
            self._console.print(
                f"[red]wrong answer:[/] {escape(record.wrong)}", highlight=False, soft_wrap=True
            )


def line(state: State, now: Now) -> str:
    """How it stands, in one plain line."""
    return ", ".join(
        (
            wording.length(round(state.elapsed)),
            state.phase,
            _wanted(state),
            f"{wording.number(now.rate)}/s good",
            f"p50 {wording.seconds(now.p50)}",
            f"p99 {wording.seconds(now.p99)}",
            f"errors {wording.number(now.errors)}",
        )
    )


def step_line(step: Step) -> str:
    """A rate that was tried, and what came of it."""
    verdict = "[green]kept[/]" if step.held else "[red]missed[/]"
    summary = step.summary
    told = (
        f"{wording.number(step.rate)}/s: {verdict}, p50 {wording.seconds(summary.percentile(0.5))}, "
        f"p99 {wording.seconds(summary.percentile(0.99))}, errors {wording.share(summary.errors)}"
    )
    return f"{told}, the generator was at its limit" if step.limited else told


def panel(state: State, now: Now, p99s: Iterable[float] = ()) -> RenderableType:
    """How it stands, in some lines that are drawn again and again."""
    figures = [
        _figure("good answers", f"{wording.number(now.rate)}/s"),
        _figure("p50", wording.seconds(now.p50)),
        _figure("p99", wording.seconds(now.p99)),
        _figure("errors", wording.number(now.errors), "red" if now.errors else "bold"),
    ]
    if state.scrape is not None:
        figures.append(_figure("server's queue", wording.number(state.scrape.depth)))
    head = Text.assemble((state.phase, "bold"), f"  {_wanted(state)}  {wording.length(round(state.elapsed))}")
    bars: list[RenderableType] = []
    if state.duration is not None:
        head.append(f" of {wording.length(state.duration)}")
        bar = Table.grid()
        bar.add_row(ProgressBar(total=state.duration, completed=min(state.elapsed, state.duration), width=60))
        bars.append(bar)
    sparks = Text.assemble(("p99  ", "dim"), sparkline(p99s))
    return Group(head, *bars, Text("   ").join(figures), sparks)


def sparkline(values: Iterable[float]) -> str:
    """A small picture of some numbers, the highest of them at full height; a gap where there is none."""
    known = list(values)
    most = max((value for value in known if not math.isnan(value)), default=0.0)
    if not most:
        return ""
    top = len(HEIGHTS) - 1
    return "".join(" " if math.isnan(value) else HEIGHTS[round(value / most * top)] for value in known)


def final(record: Record) -> Table:
    """The table at the end: a line for each kind, and one for all."""
    # narrow enough for 80 columns
    table = Table(
        title=_title(record),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("kind", overflow="fold")
    for name in ("requests", "good/s", "rows/s", "p50", "p99", "max", "errors"):
        table.add_column(name, justify="right", no_wrap=True)
    kinds = record.ledger.kinds()
    for kind in kinds:
        table.add_row(escape(kind), *_cells(record.summary(kind)))
    if len(kinds) != 1:
        table.add_section()
        table.add_row("all", *_cells(record.summary()), style="bold")
    return table


def _title(record: Record) -> str:
    model, seconds = escape(record.target.model), wording.length(record.last - record.first)
    if not record.plan.find_capacity:
        return f"{model}, the {seconds} that count"
    if record.capacity is None:
        return f"{model}, search not finished; the last rate that was tried"
    if record.capacity.rate is None:
        return f"{model}, no rate kept the SLO; the last that was tried"
    return f"{model}, capacity {wording.number(record.capacity.rate)}/s; the {seconds} that confirmed it"


def _cells(summary: Summary) -> list[str]:
    return [
        wording.number(summary.requests),
        wording.number(summary.rate),
        wording.number(summary.cell.rows / summary.seconds if summary.seconds else 0.0),
        *(wording.seconds(summary.percentile(share)) for share in (0.5, 0.99, 1.0)),
        wording.share(summary.errors),
    ]


def _figure(name: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style))


def _wanted(state: State) -> str:
    if state.rate is not None:
        return f"{wording.number(state.rate)}/s due"
    return f"{state.users:,} user{'' if state.users == 1 else 's'}"
