"""Terminal output of a load test: a live panel (status lines if it is no terminal), then the final table."""

from __future__ import annotations

import math
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

from turnpike.loadtest.ledger import PeriodSummary, now
from turnpike.loadtest.measure.capacity import MAX_STARVED
from turnpike.loadtest.measure.record import LiveState, RateStep, Record
from turnpike.loadtest.report.document import capacity_figures
from turnpike.loadtest.report.sentences import capacity_rate, capacity_sentence
from turnpike.reporting import number_format as fmt

# length in seconds of the period that recent figures cover
RECENT_SECONDS = 5
# seconds between status lines if the output is not a terminal
LINE_SECONDS = 5
# sending processes report once a second, so the newest second is not complete yet
UNREPORTED_SECONDS = 1
# reasons of errors that are printed at the end, the most frequent first
MAX_FAULTS = 5
# length of the sparkline, and its characters from lowest to highest
SPARKLINE_LENGTH, SPARKLINE_BARS = 40, "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class RecentFigures:
    """Results of the last seconds, as far as answers have arrived."""

    rate: float  # good answers per second; NaN until a second is complete
    p50: float
    p99: float
    errors: int  # since the start of the test, or of the step of a search

    @classmethod
    def of(cls, state: LiveState, now: float) -> Self:
        end = int(now) - UNREPORTED_SECONDS
        begin = min(max(end - RECENT_SECONDS, math.ceil(state.figures_from)), end)
        summary = state.ledger.summary(begin, end)
        answers = sum(state.ledger.completed[second] for second in range(begin, end))
        return cls(
            rate=answers / (end - begin) if end > begin else math.nan,
            p50=summary.percentile(0.5),
            p99=summary.percentile(0.99),
            errors=sum(
                totals.faults.total()
                for (second, _), totals in state.ledger.totals.items()
                if totals.faults and second >= int(state.figures_from)
            ),
        )


class LoadProgress:
    """Shows a load test while its block runs: call it with each state."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = now) -> None:
        self._console = console or Console()
        self._clock = clock
        self._live: Live | None = None
        self._last_line_at = 0.0
        self._steps_shown = 0
        self._p99s: deque[float] = deque(maxlen=SPARKLINE_LENGTH)

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

    def __call__(self, state: LiveState) -> None:
        for step in state.steps[self._steps_shown :]:
            self._console.print(step_text(step), highlight=False, soft_wrap=True)
        self._steps_shown = len(state.steps)
        if self._live is not None:
            recent = RecentFigures.of(state, self._clock())
            self._p99s.append(recent.p99)
            self._live.update(live_panel(state, recent, self._p99s), refresh=True)
        elif state.elapsed - self._last_line_at >= LINE_SECONDS:
            self._last_line_at = state.elapsed
            line = status_line(state, RecentFigures.of(state, self._clock()))
            self._console.print(escape(line), highlight=False, soft_wrap=True)

    def show_result(self, record: Record) -> None:
        """Print the final table, then notes and the first wrong answer."""
        self._console.print(result_table(record))
        for fault, count in record.summary().totals.faults.most_common(MAX_FAULTS):
            text = f"{fmt.number(count)} requests without a good answer: {escape(fault)}"
            self._console.print(f"[red]errors:[/] {text}", highlight=False, soft_wrap=True)
        if record.capacity is not None and record.capacity.is_lower_bound:
            sentence = capacity_sentence(capacity_figures(record.capacity))
            self._console.print(f"[yellow]note:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
        for note in record.notes:
            self._console.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
        if record.wrong_answer is not None:
            self._console.print(
                f"[red]wrong answer:[/] {escape(record.wrong_answer)}", highlight=False, soft_wrap=True
            )


def status_line(state: LiveState, recent: RecentFigures) -> str:
    return ", ".join(
        (
            fmt.length(round(state.elapsed)),
            state.phase,
            _load_text(state),
            f"{fmt.number(recent.rate)}/s good",
            f"p50 {fmt.seconds(recent.p50)}",
            f"p99 {fmt.seconds(recent.p99)}",
            f"errors {fmt.number(recent.errors)}",
        )
    )


def step_text(step: RateStep) -> str:
    """The result of one rate of a capacity search, with markup."""
    verdict = "[green]kept[/]" if step.kept else "[red]missed[/]"
    summary = step.summary
    result = (
        f"{fmt.number(step.rate)}/s: SLO {verdict}, p50 {fmt.seconds(summary.percentile(0.5))}, "
        f"p99 {fmt.seconds(summary.percentile(0.99))}, errors {fmt.share(summary.errors)}"
    )
    if step.generator_limited:
        result += ", load generator too slow"
    if step.starved > MAX_STARVED:
        result += f", it waited for a CPU {fmt.share(step.starved)} of the time"
    return result


def live_panel(state: LiveState, recent: RecentFigures, p99s: Iterable[float] = ()) -> RenderableType:
    """The current state in a few lines, drawn again about once a second."""
    figures = [
        _figure("good answers", f"{fmt.number(recent.rate)}/s"),
        _figure("p50", fmt.seconds(recent.p50)),
        _figure("p99", fmt.seconds(recent.p99)),
        _figure("errors", fmt.number(recent.errors), "red" if recent.errors else "bold"),
    ]
    if state.scrape is not None:
        figures.append(_figure("server's queue", fmt.number(state.scrape.depth)))
    head = Text.assemble((state.phase, "bold"), f"  {_load_text(state)}  {fmt.length(round(state.elapsed))}")
    bars: list[RenderableType] = []
    if state.duration is not None:
        head.append(f" of {fmt.length(state.duration)}")
        bar = Table.grid()
        bar.add_row(ProgressBar(total=state.duration, completed=min(state.elapsed, state.duration), width=60))
        bars.append(bar)
    sparks = Text.assemble(("p99  ", "dim"), sparkline(p99s))
    return Group(head, *bars, Text("   ").join(figures), sparks)


def sparkline(values: Iterable[float]) -> str:
    """A line of small bars: the highest value at full height, a gap for NaN."""
    numbers = list(values)
    highest = max((value for value in numbers if not math.isnan(value)), default=0.0)
    if not highest:
        return ""
    top = len(SPARKLINE_BARS) - 1
    return "".join(
        " " if math.isnan(value) else SPARKLINE_BARS[round(value / highest * top)] for value in numbers
    )


def result_table(record: Record) -> Table:
    """The final table: a row for each kind of request, and one for all. Fits into 80 columns."""
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
    model, seconds = escape(record.target.model), fmt.length(record.last - record.first)
    if not record.plan.find_capacity:
        return f"{model}, measured for {seconds}"
    if record.capacity is None:
        return f"{model}, search not finished; results of the last rate"
    if record.capacity.rate is None:
        return f"{model}, no rate kept the SLO; results of the last rate"
    return f"{model}, capacity {capacity_rate(capacity_figures(record.capacity))}, confirmed for {seconds}"


def _cells(summary: PeriodSummary) -> list[str]:
    return [
        fmt.number(summary.requests),
        fmt.number(summary.rate),
        fmt.number(summary.totals.rows / summary.seconds if summary.seconds else 0.0),
        *(fmt.seconds(summary.percentile(share)) for share in (0.5, 0.99, 1.0)),
        fmt.share(summary.errors),
    ]


def _figure(name: str, value: str, style: str = "bold") -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, style))


def _load_text(state: LiveState) -> str:
    if state.rate is not None:
        return f"{fmt.number(state.rate)}/s due"
    return f"{state.users:,} user{'' if state.users == 1 else 's'}"
