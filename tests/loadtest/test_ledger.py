"""The ledger: seconds, kinds, faults, and ledgers of several processes."""

from __future__ import annotations

import json
import math

import pytest

from turnpike.loadtest.ledger import Ledger, Outcome

START = 1_700_000_000


def outcome(at: float, latency: float = 0.01, fault: str | None = None, kind: str = "json, 1 row") -> Outcome:
    return Outcome(kind, START + at, 0.001, latency, 2, fault)


def test_a_request_counts_in_the_second_when_it_was_due() -> None:
    """A stall shows where it began, although its answers arrive later."""
    ledger = Ledger()
    ledger.add(outcome(0.5, latency=3.0))
    assert ledger.summary(START, START + 1).percentile(1) == 3.0
    assert ledger.summary(START + 3, START + 4).requests == 0
    assert ledger.completed == {START + 3: 1}


def test_only_good_answers_have_a_latency() -> None:
    """A quick refusal must not improve a percentile; it is an error."""
    ledger = Ledger()
    for at in (0.1, 0.2, 0.3):
        ledger.add(outcome(at, latency=0.5))
    ledger.add(outcome(0.4, latency=0.0001, fault="503"))
    summary = ledger.summary(START, START + 2)
    assert summary.totals.latency.count == summary.good == 3
    assert summary.percentile(0.01) == 0.5
    assert summary.errors == 0.25
    assert summary.totals.faults == {"503": 1}
    assert summary.rate == 1.5
    assert summary.totals.rows == 6
    assert summary.totals.late.count == 4


def test_summaries_cover_one_kind_or_all() -> None:
    ledger = Ledger()
    ledger.add(outcome(0))
    ledger.add(outcome(1, kind="gates, 1 row"))
    assert ledger.kinds() == ["gates, 1 row", "json, 1 row"]
    assert ledger.span() == (START, START + 2)
    assert ledger.summary(*ledger.span()).requests == 2
    assert ledger.summary(*ledger.span(), "gates, 1 row").requests == 1


def test_ledgers_of_processes_add_up() -> None:
    """A worker empties its ledger into the other each time; the sum equals the ledger of one process."""
    alone, worker, master = Ledger(), Ledger(), Ledger()
    for turn in range(3):
        for at in range(5):
            entry = outcome(at + turn / 10, latency=0.01 * (at + 1), fault="503" if at == turn else None)
            alone.add(entry)
            worker.add(entry)
        master.merge_json(json.loads(json.dumps(worker.pop_json())))
    assert worker.pop_json() == {"totals": [], "completed": []}
    assert master.completed == alone.completed
    assert master.span() == alone.span()
    for second in range(*alone.span()):
        merged, expected = master.summary(second, second + 1), alone.summary(second, second + 1)
        assert (merged.good, merged.bad, merged.totals.rows) == (
            expected.good,
            expected.bad,
            expected.totals.rows,
        )
        assert merged.percentile(0.9) == pytest.approx(expected.percentile(0.9))


def test_groups_of_good_answers_count_like_single_ones() -> None:
    """A group may extend over several seconds."""
    alone, grouped = Ledger(), Ledger()
    times: list[float] = []
    for number in range(100):
        due = START + number * 0.0371
        late, latency = 0.0001 * number, 0.003 * (1 + number % 7)
        alone.add(Outcome("json, 4 rows", due, late, latency, 4))
        times += (due, due + late, due + latency)
    grouped.add_good("json, 4 rows", 4, times)
    assert grouped.completed == alone.completed
    assert grouped.span() == alone.span() == (START, START + 4)
    for second in range(START, START + 4):
        got, expected = grouped.summary(second, second + 1), alone.summary(second, second + 1)
        assert (got.good, got.bad, got.totals.rows) == (expected.good, 0, expected.totals.rows)
        assert got.percentile(0.9) == pytest.approx(expected.percentile(0.9), rel=0.011)
        assert got.totals.late.percentile(0.9) == pytest.approx(
            expected.totals.late.percentile(0.9), rel=0.011
        )
        assert got.totals.latency.mean == pytest.approx(expected.totals.latency.mean, rel=1e-4)


def test_an_empty_ledger_has_zeros() -> None:
    assert Ledger().span() == (0, 0)
    summary = Ledger().summary(0, 0)
    assert (summary.requests, summary.rate, summary.errors) == (0, 0, 0)
    assert math.isnan(summary.percentile(0.99))
