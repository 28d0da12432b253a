"""The ledger of outcomes: seconds, kinds, faults, and several processes."""

from __future__ import annotations

import json
import math

import pytest

from loadtest.ledger import Ledger, Outcome

BEGUN = 1_700_000_000


def outcome(at: float, latency: float = 0.01, fault: str | None = None, kind: str = "json, 1 row") -> Outcome:
    return Outcome(kind, BEGUN + at, 0.001, latency, 2, fault)


def test_a_request_counts_to_the_second_in_which_it_was_due() -> None:
    """A stall is seen where it began, though its answers come later."""
    ledger = Ledger()
    ledger.add(outcome(0.5, latency=3.0))
    assert ledger.summary(BEGUN, BEGUN + 1).percentile(1) == 3.0
    assert ledger.summary(BEGUN + 3, BEGUN + 4).requests == 0
    assert ledger.completed == {BEGUN + 3: 1}


def test_only_good_answers_have_a_latency() -> None:
    """A refusal that comes at once makes no percentile look better; it is an error."""
    ledger = Ledger()
    for at in (0.1, 0.2, 0.3):
        ledger.add(outcome(at, latency=0.5))
    ledger.add(outcome(0.4, latency=0.0001, fault="503"))
    summary = ledger.summary(BEGUN, BEGUN + 2)
    assert summary.cell.latency.count == summary.good == 3
    assert summary.percentile(0.01) == 0.5
    assert summary.errors == 0.25
    assert summary.cell.faults == {"503": 1}
    assert summary.rate == 1.5
    assert summary.cell.rows == 6
    assert summary.cell.late.count == 4


def test_kinds_are_told_apart_and_together() -> None:
    """A summary is of one kind, or of all."""
    ledger = Ledger()
    ledger.add(outcome(0))
    ledger.add(outcome(1, kind="gates, 1 row"))
    assert ledger.kinds() == ["gates, 1 row", "json, 1 row"]
    assert ledger.span() == (BEGUN, BEGUN + 2)
    assert ledger.whole().requests == 2
    assert ledger.whole("gates, 1 row").requests == 1


def test_processes_add_up() -> None:
    """What a worker tells, each time only the new, makes the same ledger as one process."""
    alone, worker, master = Ledger(), Ledger(), Ledger()
    for turn in range(3):
        for at in range(5):
            noted = outcome(at + turn / 10, latency=0.01 * (at + 1), fault="503" if at == turn else None)
            alone.add(noted)
            worker.add(noted)
        master.hear(json.loads(json.dumps(worker.tell())))
    assert worker.tell() == {"cells": [], "completed": []}
    assert master.completed == alone.completed
    assert master.span() == alone.span()
    for second in range(*alone.span()):
        one, other = master.summary(second, second + 1), alone.summary(second, second + 1)
        assert (one.good, one.bad, one.cell.rows) == (other.good, other.bad, other.cell.rows)
        assert one.percentile(0.9) == pytest.approx(other.percentile(0.9))


def test_an_empty_ledger_says_nothing() -> None:
    """No figure is made up where nothing was sent."""
    summary = Ledger().whole()
    assert (summary.requests, summary.rate, summary.errors) == (0, 0, 0)
    assert math.isnan(summary.percentile(0.99))
