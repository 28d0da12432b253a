"""The document of a report: figures of requests, of seconds and of the server."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.loadtest_records import (
    START,
    URL,
    add_requests,
    mixed_record,
    sample_record,
    sample_scrape,
    soak_record,
)
from turnpike import loadtest
from turnpike.loadtest.ledger import Ledger, Outcome
from turnpike.loadtest.measure.record import Record
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.report.charts import make_charts
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.report.page import render_report


def test_figures_equal_those_of_numpy() -> None:
    """Percentiles, rates and errors are computed from the same outcomes."""
    ledger, draws = Ledger(), np.random.default_rng(0)
    latencies = draws.lognormal(-5, 1, 2000)
    for number, latency in enumerate(latencies):
        fault = "503" if number % 100 == 0 else None
        ledger.add(Outcome("json, 2 rows", START + number / 200, 0.001, latency, 2, fault))
    report = build_document(sample_record(ledger=ledger, first=START))
    good = np.delete(latencies, np.arange(0, 2000, 100))
    total = report["total"]
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("p99.9", 99.9)):
        assert total[name] == pytest.approx(np.percentile(good, share, method="inverted_cdf"), rel=0.011)
    assert total["max"] == pytest.approx(good.max())
    assert total["mean"] == pytest.approx(good.mean())
    assert total["requests"] == 2000
    assert total["rate"] == 198
    assert total["rows_rate"] == 396
    assert total["bad"] == 20
    assert total["errors"] == 0.01
    assert total["faults"] == {"503": 20}
    assert report["late"]["p99"] == pytest.approx(0.001, rel=0.01)
    curve = dict(map(tuple, report["distribution"]))
    assert curve[1.0] == pytest.approx(good.max())
    assert curve[0.9] == pytest.approx(np.percentile(good, 90, method="inverted_cdf"), rel=0.011)
    assert list(curve) == sorted(curve)


def test_the_warm_up_is_not_counted_but_shown() -> None:
    ledger = Ledger()
    add_requests(ledger, START, 2, 100, median=0.5, faults={"503": 0.5})
    add_requests(ledger, START + 2, 8, 100, median=0.001)
    report = build_document(sample_record(ledger=ledger, first=START + 2))
    assert report["total"]["bad"] == 0
    assert report["total"]["requests"] == 800
    assert report["total"]["p90"] < 0.01
    assert sum(report["series"]["faults"]["503"]) > 50
    assert report["series"]["p50"][0] > 0.1
    assert report["counted"] == {"from": 2.0, "seconds": 8.0}


def test_a_series_has_a_value_for_each_second() -> None:
    ledger = Ledger()
    add_requests(ledger, START, 2, 10)
    add_requests(ledger, START + 5, 2, 10)
    series = build_document(sample_record(ledger=ledger, seconds=7))["series"]
    assert series["interval"] == 1
    assert series["at"] == [0, 1, 2, 3, 4, 5, 6]
    columns = {name: column for name, column in series.items() if name not in ("interval", "faults")}
    assert {len(column) for column in columns.values()} == {7}
    assert series["due_rate"] == [10, 10, 0, 0, 0, 10, 10]
    assert [value is None for value in series["p99"]] == [False, False, True, True, True, False, False]


def test_good_answers_count_when_they_arrive() -> None:
    """A request that waits through a stall is due before it and answered after it."""
    ledger = Ledger()
    for number in range(10):
        ledger.add(Outcome("a", START + 0.5, 0, 2.0, 1))
        ledger.add(Outcome("a", START + 2 + number / 20, 0, 0.01, 1))
    series = build_document(sample_record(ledger=ledger, seconds=3, first=START))["series"]
    assert series["due_rate"] == [10, 0, 10]
    assert series["good_rate"] == [0, 0, 20]


def test_requests_after_the_end_are_not_shown() -> None:
    """Users stop within a second, which would look like a drop at the end of every chart."""
    ledger = Ledger()
    add_requests(ledger, START, 6, 10)
    report = build_document(sample_record(ledger=ledger, seconds=5))
    assert report["series"]["due_rate"] == [10] * 5
    assert report["total"]["requests"] == 40


@pytest.mark.parametrize(("every", "covered"), [(1.06, 9), (1.0, 9), (2.5, 9)])
def test_scrapes_cover_each_second(every: float, covered: int) -> None:
    """Each second that a scrape covers has values, whatever the intervals of the scrapes."""
    scrapes = [replace(sample_scrape(START + every * n, 60), seconds=every) for n in range(1, 12)]
    report = build_document(sample_record(scrapes=tuple(scrapes)))
    assert None not in report["series"]["server_run_p99"][:covered]


def test_hours_have_fewer_points() -> None:
    ledger = Ledger()
    for second in range(0, 10_800, 2):
        ledger.add(Outcome("a", START + second, 0, 0.001 if second % 4 else 0.1, 1))
    report = build_document(sample_record(ledger=ledger, seconds=10_800, scrapes=()))
    assert report["series"]["interval"] == 5
    assert len(report["series"]["at"]) == 2160
    assert sum(report["series"]["due_rate"]) * 5 == pytest.approx(5400)
    assert set(report["series"]["max"]) == {0.1}
    assert len(report["stretches"]) <= 24
    assert make_charts(report)["latency"].x.title == "minutes since the start"
    assert len(render_report(report).encode()) < 300_000


def test_a_soak_test_has_a_row_per_minute() -> None:
    report = build_document(soak_record())
    assert [row["seconds"] for row in report["stretches"]] == [60] * 4
    assert report["drift"]["seconds"] == 60
    assert report["drift"]["last"]["p50"] > 5 * report["drift"]["first"]["p50"]
    assert "first quarter" in render_report(report)
    assert build_document(sample_record())["drift"] is None


def test_server_metrics_cover_the_measured_time() -> None:
    report = build_document(sample_record())["server"]
    inside = [sample_scrape(START + second + 0.9, 60) for second in range(1, 10)]
    assert report["queue"]["count"] == sum(scrape.queue.count for scrape in inside)
    assert report["depth"] == max(scrape.depth for scrape in inside)
    assert report["rows"]["mean"] == pytest.approx(3.2)
    assert build_document(sample_record(scrapes=()))["server"] is None


def test_secrets_are_not_in_the_report() -> None:
    plan = LoadPlan(URL, api_key="sesame-7", data=Path("/home/ann/rows.npy"), report=Path("/home/ann/out"))
    report = build_document(sample_record(plan))
    assert report["load"]["own_rows"]
    text = json.dumps(report) + render_report(report)
    assert "sesame" not in text
    assert "/home/ann" not in text


def test_the_document_is_strict_json(any_record: Record) -> None:
    report = build_document(any_record)
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_keys_are_documented() -> None:
    """Programs read them, so README.md documents each key."""
    table = (Path(loadtest.__file__).parent / "README.md").read_text(encoding="utf-8")
    keys = re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)
    assert sorted(keys) == sorted(build_document(mixed_record()))
