"""The display: what is said while a load test runs, on a terminal and elsewhere, and at its end."""

from __future__ import annotations

import contextlib
import io
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from loadtest.cli.progress import Display, final, line, sparkline
from loadtest.cli.progress import Now as Figures
from loadtest.ledger import Ledger, Outcome
from loadtest.measure.record import Capacity
from loadtest.measure.state import State
from loadtest.plan import Plan
from tests.support.loadtest_records import BEGUN, URL, load, record, scrape, search, target


def shown(*, terminal: bool = False, width: int = 80) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, color_system=None, legacy_windows=False
    )


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def state(elapsed: float, ledger: Ledger | None = None, **changes: Any) -> State:
    known: dict[str, Any] = {
        "phase": "load",
        "elapsed": elapsed,
        "duration": 60.0,
        "users": 50,
        "rate": None,
        "ledger": Ledger() if ledger is None else ledger,
    }
    return State(**(known | changes))


def loaded() -> Ledger:
    """Five seconds at 20 requests a second that take 10 ms, with two errors long before."""
    ledger = Ledger()
    for number in range(100):
        ledger.add(Outcome("a", BEGUN + 100 + number / 20, 0, 0.01, 1))
    for _ in range(2):
        ledger.add(Outcome("a", BEGUN, 0, 0.5, 1, "503"))
    return ledger


def test_a_line_has_the_figures_of_the_last_seconds() -> None:
    """Rate and percentiles are of the seconds just over, errors of the whole test."""
    now = state(106.2, loaded())
    assert line(now, Figures.of(now, BEGUN + 106.3)) == (
        "106 s, load, 50 users, 20/s good, p50 10 ms, p99 10 ms, errors 2"
    )


@pytest.mark.parametrize(("elapsed", "rate"), [(0.4, 0), (1.3, 0), (3.3, 20), (4.3, 20)])
def test_the_first_seconds_are_told_from_those_that_there_were(elapsed: float, rate: float) -> None:
    """A test that has just begun is no slower for it; until a whole second is known there is no rate."""
    now = state(elapsed, loaded())
    assert Figures.of(now, BEGUN + 100 + elapsed).rate == rate


def test_an_open_loop_shows_its_rate() -> None:
    """There are no users in it."""
    now = state(3, users=0, rate=412.3)
    assert "412/s due, 0/s good, p50 -, p99 -, errors 0" in line(now, Figures.of(now, BEGUN))


def test_lines_come_now_and_then() -> None:
    """Where nothing can be drawn there is a line every five seconds, without control characters."""
    console = shown()
    with Display(console, clock=lambda: BEGUN) as display:
        for second in range(1, 13):
            display(state(second))
    assert [text.split(",")[0] for text in said(console).splitlines()] == ["5 s", "10 s"]
    assert "\x1b" not in said(console)


def test_a_terminal_has_a_live_panel() -> None:
    """Progress, what is wanted, what is reached, and the server's queue; all is taken away at the end."""
    console = shown(terminal=True)
    with Display(console, clock=lambda: BEGUN + 106.0) as display:
        display(state(30, loaded(), scrape=scrape(BEGUN, 10)))
        text = said(console)
        display(state(31, loaded()))
    for part in ("load", "50 users", "30 s of 60 s", "━", "20/s", "10 ms", "errors 2", "server's queue", "█"):
        assert part in text
    assert "\x1b[2K" in said(console)


def test_a_search_has_no_end_that_is_known() -> None:
    """There is no bar then."""
    console = shown(terminal=True)
    with Display(console, clock=lambda: BEGUN) as display:
        display(state(30, duration=None, phase="trying 400/s", rate=400.0, users=0))
    assert "trying 400/s" in said(console)
    assert "━" not in said(console)


@pytest.mark.parametrize("terminal", [True, False])
def test_steps_are_told_as_they_come(terminal: bool) -> None:
    """Each rate once, with its verdict, whether or not a terminal is there."""
    console = shown(terminal=terminal)
    steps = search().steps
    steps = (*steps[:3], replace(steps[3], limited=True))
    with Display(console, clock=lambda: BEGUN) as display:
        for number, second in ((0, 1), (1, 2), (1, 3), (4, 4)):
            display(state(second, steps=steps[:number], duration=None))
    told = [text for text in said(console).splitlines() if "kept" in text or "missed" in text]
    assert len(told) == 4
    assert "100/s: kept, p50" in told[0]
    assert "800/s: missed" in told[3]
    assert "generator was at its limit" in told[3]


def test_the_end_is_a_table() -> None:
    """A line for each kind and one for all, of the time that counts; then notes and a wrong answer."""
    ledger = Ledger()
    load(ledger, BEGUN, 10, 50, kinds=(("json, 1 row", 1), ("binary, 32 rows", 32)), faults={"503": 0.1})
    found = record(ledger=ledger, notes=("to [b]know[/b]",), wrong="output [red]x[/red]: expected 1, got 2")
    console = shown()
    Display(console).result(found)
    text = said(console)
    summary = found.summary()
    for part in ("the 9 s that count", "json, 1 row", "binary, 32 rows", "all", f"{summary.requests}", "10"):
        assert part in text
    assert f"{summary.errors * 100:.3g} %" in text
    assert "note: to [b]know[/b]" in text
    assert "wrong answer: output [red]x[/red]: expected 1, got 2" in text


def test_the_table_fits_a_terminal() -> None:
    """On 80 columns every figure is there, and no kind is cut."""
    ledger = Ledger()
    load(ledger, BEGUN, 3, 2000, kinds=(("binary, 32 rows", 32),), faults={"503": 0.02})
    console = shown(terminal=True)
    console.print(final(record(ledger=ledger, seconds=3)))
    (row,) = [text for text in said(console).splitlines() if "binary, 32 rows" in text]
    assert "…" not in said(console)
    assert re.search(r"\d %", row)


def test_the_end_of_a_search_is_its_capacity() -> None:
    """Or that there is none, or that nobody knows."""
    assert "search not finished" in str(final(replace(search(), capacity=None)).title)
    assert "capacity 400/s" in str(final(search()).title)
    assert "no rate kept the SLO" in str(final(replace(search(), capacity=Capacity(None, "server"))).title)


def test_a_test_without_requests_has_an_end_too() -> None:
    """Stopped at once, it shows a line without figures."""
    console = shown()
    Display(console).result(record(ledger=Ledger(), scrapes=(), first=BEGUN, last=BEGUN))
    assert "all" in said(console)


def test_names_are_no_markup() -> None:
    """A model may be called what rich takes for a style."""
    console = shown()
    Display(console).result(record(Plan(URL), about=target(model="[bold]m[/bold] [/]")))
    assert "[bold]m[/bold] [/]" in said(console)


def test_an_error_ends_the_panel() -> None:
    """The terminal is left as it was."""
    console = shown(terminal=True)
    with contextlib.suppress(RuntimeError), Display(console, clock=lambda: BEGUN) as display:
        display(state(1))
        hidden = said(console)
        raise RuntimeError
    show = "\x1b[?25h"
    assert show not in hidden
    assert show in said(console)


def test_sparklines() -> None:
    """The highest value is at full height, what is not known is a gap."""
    assert sparkline([1, math.nan, 7, 0]) == "▂ █▁"
    assert sparkline([]) == ""
    assert sparkline([math.nan]) == ""
