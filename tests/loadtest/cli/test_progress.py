"""Terminal output of a load test: while it runs, with and without a terminal, and at its end."""

from __future__ import annotations

import contextlib
import io
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.support.loadtest_records import (
    START,
    URL,
    add_requests,
    sample_record,
    sample_scrape,
    sample_search_record,
    sample_target,
)
from turnpike.loadtest.cli.progress import LoadProgress, RecentFigures, result_table, sparkline, status_line
from turnpike.loadtest.ledger import Ledger, Outcome
from turnpike.loadtest.measure.record import Capacity, LiveState
from turnpike.loadtest.plan import LoadPlan


def make_console(*, terminal: bool = False, width: int = 80) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, color_system=None, legacy_windows=False
    )


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def state(elapsed: float, ledger: Ledger | None = None, **changes: Any) -> LiveState:
    fields: dict[str, Any] = {
        "phase": "load",
        "elapsed": elapsed,
        "figures_from": float(START),
        "duration": 60.0,
        "users": 50,
        "rate": None,
        "ledger": Ledger() if ledger is None else ledger,
    }
    return LiveState(**(fields | changes))


def sample_ledger() -> Ledger:
    """Five seconds with 20 requests per second that take 10 ms, and two errors long before."""
    ledger = Ledger()
    for number in range(100):
        ledger.add(Outcome("a", START + 100 + number / 20, 0, 0.01, 1))
    for _ in range(2):
        ledger.add(Outcome("a", START, 0, 0.5, 1, "503"))
    return ledger


def test_a_line_has_the_figures_of_the_last_seconds() -> None:
    """Rate and percentiles cover the last seconds, errors the whole test."""
    now = state(106.2, sample_ledger())
    assert status_line(now, RecentFigures.of(now, START + 106.3)) == (
        "106 s, load, 50 users, 20/s good, p50 10 ms, p99 10 ms, errors 2"
    )


@pytest.mark.parametrize(("elapsed", "rate"), [(0.4, None), (1.3, None), (3.3, 20), (4.3, 20)])
def test_recent_figures_are_correct_in_the_first_seconds(elapsed: float, rate: float | None) -> None:
    """A test that has just started does not look slower; there is no rate until a second is complete."""
    now = state(elapsed, sample_ledger(), figures_from=START + 100.0)
    recent = RecentFigures.of(now, START + 100 + elapsed)
    assert recent.rate == rate or (rate is None and math.isnan(recent.rate))


def test_a_step_of_a_search_shows_its_own_figures() -> None:
    """Errors and latencies of the steps before it do not count."""
    ledger = sample_ledger()
    for _ in range(3):
        ledger.add(Outcome("a", START + 103.5, 0, 2.0, 1, "503"))
    for figures_from, errors, rate in ((START, 5, 20), (START + 103, 3, 20), (START + 104, 0, 20)):
        now = state(106.2, ledger, figures_from=float(figures_from))
        recent = RecentFigures.of(now, START + 106.3)
        assert (recent.errors, recent.rate) == (errors, pytest.approx(rate, rel=0.51))


def test_an_open_loop_shows_its_rate() -> None:
    now = state(3, users=0, rate=412.3)
    assert "412/s due, -/s good, p50 -, p99 -, errors 0" in status_line(now, RecentFigures.of(now, START))


def test_without_a_terminal_there_is_a_line_every_five_seconds() -> None:
    console = make_console()
    with LoadProgress(console, clock=lambda: START) as progress:
        for second in range(1, 13):
            progress(state(second))
    assert [text.split(",")[0] for text in output(console).splitlines()] == ["5 s", "10 s"]
    assert "\x1b" not in output(console)


def test_a_terminal_has_a_live_panel() -> None:
    console = make_console(terminal=True)
    with LoadProgress(console, clock=lambda: START + 106.0) as progress:
        progress(state(30, sample_ledger(), scrape=sample_scrape(START, 10)))
        text = output(console)
        progress(state(31, sample_ledger()))
    for part in ("load", "50 users", "30 s of 60 s", "━", "20/s", "10 ms", "errors 2", "server's queue", "█"):
        assert part in text
    assert "\x1b[2K" in output(console)


def test_a_search_has_no_progress_bar() -> None:
    console = make_console(terminal=True)
    with LoadProgress(console, clock=lambda: START) as progress:
        progress(state(30, duration=None, phase="trying 400/s", rate=400.0, users=0))
    assert "trying 400/s" in output(console)
    assert "━" not in output(console)


@pytest.mark.parametrize("terminal", [True, False])
def test_each_step_is_printed_once(terminal: bool) -> None:
    console = make_console(terminal=terminal)
    steps = sample_search_record().steps
    steps = (*steps[:3], replace(steps[3], generator_limited=True, starved=0.25))
    with LoadProgress(console, clock=lambda: START) as progress:
        for number, second in ((0, 1), (1, 2), (1, 3), (4, 4)):
            progress(state(second, steps=steps[:number], duration=None))
    lines = [text for text in output(console).splitlines() if "kept" in text or "missed" in text]
    assert len(lines) == 4
    assert "100/s: SLO kept, p50" in lines[0]
    assert "800/s: SLO missed" in lines[3]
    assert lines[3].endswith("load generator too slow, it waited for a CPU 25 % of the time")
    assert not any("load generator" in line for line in lines[:3])


def test_the_result_is_shown_as_a_table() -> None:
    ledger = Ledger()
    add_requests(
        ledger, START, 10, 50, kinds=(("json, 1 row", 1), ("binary, 32 rows", 32)), faults={"503": 0.1}
    )
    record = sample_record(
        ledger=ledger, notes=("to [b]know[/b]",), wrong_answer="output [red]x[/red]: expected 1, got 2"
    )
    console = make_console()
    LoadProgress(console).show_result(record)
    text = output(console)
    summary = record.summary()
    for part in ("measured for 9 s", "json, 1 row", "binary, 32 rows", "all", f"{summary.requests}", "10"):
        assert part in text
    assert f"{summary.errors * 100:.3g} %" in text
    assert "note: to [b]know[/b]" in text
    assert "wrong answer: output [red]x[/red]: expected 1, got 2" in text
    assert f"errors: {summary.bad} requests without a good answer: 503" in text


def test_the_table_fits_a_terminal() -> None:
    ledger = Ledger()
    add_requests(ledger, START, 3, 2000, kinds=(("binary, 32 rows", 32),), faults={"503": 0.02})
    console = make_console(terminal=True)
    console.print(result_table(sample_record(ledger=ledger, seconds=3)))
    (row,) = [text for text in output(console).splitlines() if "binary, 32 rows" in text]
    assert "…" not in output(console)
    assert re.search(r"\d %", row)


def test_the_title_names_the_capacity() -> None:
    assert "search not finished" in str(result_table(replace(sample_search_record(), capacity=None)).title)
    assert "capacity 400/s, confirmed" in str(result_table(sample_search_record()).title)
    limited = replace(sample_search_record(), capacity=Capacity(400, "generator"))
    text = "capacity at least 400/s, confirmed"
    assert text in str(result_table(limited).title)
    disagreeing = replace(sample_search_record(), capacity=Capacity(400, "contradiction"))
    assert text in str(result_table(disagreeing).title)
    for record, noted in ((limited, True), (disagreeing, True), (sample_search_record(), False)):
        console = make_console()
        LoadProgress(console).show_result(record)
        assert ("note: The capacity is at least 400 requests per second" in output(console)) is noted
    assert "no rate kept the SLO" in str(
        result_table(replace(sample_search_record(), capacity=Capacity(None, "server"))).title
    )


def test_the_result_of_no_requests_can_be_shown() -> None:
    console = make_console()
    LoadProgress(console).show_result(sample_record(ledger=Ledger(), scrapes=(), first=START, last=START))
    assert "all" in output(console)


def test_names_are_not_read_as_markup() -> None:
    """The name of a model may look like markup of rich."""
    console = make_console()
    LoadProgress(console).show_result(
        sample_record(LoadPlan(URL), target=sample_target(model="[bold]m[/bold] [/]"))
    )
    assert "[bold]m[/bold] [/]" in output(console)


def test_an_error_ends_the_panel() -> None:
    console = make_console(terminal=True)
    with contextlib.suppress(RuntimeError), LoadProgress(console, clock=lambda: START) as progress:
        progress(state(1))
        hidden = output(console)
        raise RuntimeError
    show = "\x1b[?25h"
    assert show not in hidden
    assert show in output(console)


def test_sparklines_are_scaled_to_their_maximum() -> None:
    assert sparkline([1, math.nan, 7, 0]) == "▂ █▁"
    assert sparkline([]) == ""
    assert sparkline([math.nan]) == ""
