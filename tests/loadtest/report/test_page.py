"""The page of a report: self-contained, with verdicts and charts."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import pytest

from tests.support.loadtest_records import (
    START,
    URL,
    add_requests,
    empty_record,
    mixed_record,
    sample_record,
    sample_search_record,
)
from tests.support.page_reader import PageReader, assert_self_contained
from turnpike.loadtest.ledger import Ledger
from turnpike.loadtest.measure.record import Capacity, Record, WrkLoad
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.report.charts import make_charts
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.report.page import render_report
from turnpike.reporting.chart import Line, Marks

# a page is smaller than this
MAX_BYTES = 1_000_000


def test_pages_are_self_contained(any_record: Record) -> None:
    """Each chart that has data is on the page."""
    report = build_document(any_record)
    text = render_report(report)
    page = PageReader(text)
    assert_self_contained(page)
    assert sorted(f"chart-{name}" for name in make_charts(report)) == sorted(page.values("id"))
    assert len(text.encode()) < MAX_BYTES


def test_each_limit_has_a_verdict() -> None:
    report = build_document(mixed_record())
    kept, missed = report["verdict"]["limits"]
    assert (kept["words"], kept["kept"]) == ("p99<1s", True)
    assert (missed["words"], missed["kept"]) == ("errors<1%", False)
    assert missed["value"] == report["total"]["errors"] > 0.01
    assert report["verdict"]["kept"] is False
    text = render_report(report)
    assert ">SLO missed</span>" in text
    assert ">wrong answers</span>" in text
    assert "expected 1, got 2" in text
    assert "something to know" in text
    assert ">SLO kept</span>" in render_report(build_document(sample_record()))
    assert "no SLO was given" in render_report(build_document(sample_record(LoadPlan(URL))))


def test_many_errors_fail_a_test_without_slo() -> None:
    ledger = Ledger()
    add_requests(ledger, START, 10, 60, faults={"503": 0.5})
    text = render_report(build_document(sample_record(LoadPlan(URL), ledger)))
    assert ">failed</span>" in text
    assert "no SLO was given" not in text


def test_no_limit_is_kept_without_requests() -> None:
    report = build_document(empty_record())
    assert [limit["value"] for limit in report["verdict"]["limits"]] == [None, None]
    assert "no request was due after the warm-up" in render_report(report)
    assert "Every request had a good answer" not in render_report(report)
    assert "no requests" in render_report(report)
    assert ">SLO missed</span>" in render_report(report)


def test_a_search_shows_its_steps() -> None:
    report = build_document(sample_search_record())
    steps = report["capacity"]["steps"]
    assert [step["due_rate"] for step in steps] == [100, 200, 400, 800, 600, 500, 550]
    assert report["capacity"]["rate"] == 400
    assert report["total"]["requests"] == 2000
    charts = make_charts(report)
    _, saturation = charts["saturation"].content
    assert isinstance(saturation, Marks)
    assert saturation.x == [100, 200, 400, 500, 550, 600, 800]
    assert [shape for shape, _ in saturation.styles] == ["circle"] * 3 + ["cross"] * 4
    assert saturation.y[2] == pytest.approx(report["total"]["p99"] * 1000)
    assert {(level.label, level.at) for level in charts["saturation"].levels} == {
        ("p99<50ms", 50),
        ("capacity 400/s", 400),
    }
    assert ">capacity 400/s</span>" in render_report(report)
    assert "no rate kept the SLO" in render_report(
        build_document(replace(sample_search_record(), capacity=Capacity(None, "server")))
    )


def test_a_stopped_search_shows_its_steps() -> None:
    """It has no capacity, but this does not mean that no rate kept the limits."""
    report = build_document(replace(sample_search_record(), capacity=None, interrupted=True))
    assert report["capacity"]["done"] is False
    assert len(report["capacity"]["steps"]) == 7
    text = render_report(report)
    assert "search not finished" in text
    assert "The test was stopped early." in text
    assert "no rate kept the SLO" not in text
    assert "stopped early" not in render_report(build_document(sample_record()))


def test_a_rate_that_was_tried_twice_is_one_point() -> None:
    steps = sample_search_record((100, 200, 100)).steps
    steps = (steps[0], steps[1], replace(steps[2], kept=False))
    line, marks = make_charts(build_document(replace(sample_search_record((100, 200, 100)), steps=steps)))[
        "saturation"
    ].content
    assert isinstance(line, Line)
    assert isinstance(marks, Marks)
    assert marks.x == [100, 100, 200]
    assert [shape for shape, _ in marks.styles] == ["circle", "cross", "circle"]
    assert line.x == [100, 200]
    assert line.y == marks.y[1:]


@pytest.mark.parametrize("rate", [400.0, None])
def test_a_slow_generator_is_shown_as_the_limit(rate: float | None) -> None:
    record = sample_search_record()
    steps = tuple(replace(step, generator_limited=step.rate > 400) for step in record.steps)
    report = build_document(replace(record, steps=steps, capacity=Capacity(rate, "generator")))
    assert "--processes" in report["capacity"]["sentence"]
    page = render_report(report)
    assert page.count(escape(report["capacity"]["sentence"])) == 1
    if rate:
        assert report["capacity"]["sentence"].startswith("The capacity is at least 400 requests per second")
        assert ">capacity at least 400/s</span>" in page
        assert ">at least 400/s</div>" in page
        (capacity,) = make_charts(report)["goodput"].levels
        assert capacity.label == "capacity at least 400/s"
    marks = make_charts(report)["saturation"].content[1]
    assert isinstance(marks, Marks)
    assert ("hollow diamond", "2") in marks.styles
    assert "load generator too slow" in render_report(report)


def test_steps_that_disagree_make_a_lower_bound() -> None:
    report = build_document(replace(sample_search_record(), capacity=Capacity(400, "contradiction")))
    page = render_report(report)
    assert ">capacity at least 400/s</span>" in page
    assert "steps of the search contradict each other" in report["capacity"]["sentence"]
    assert escape(report["capacity"]["sentence"]) in page


def test_a_load_by_wrk_is_shown_beside_a_limited_search() -> None:
    """It takes the place of the advice to send from more processes."""
    summary = sample_search_record().steps[3].summary
    capacity = Capacity(400, "generator", WrkLoad(50, summary, kept=True))
    report = build_document(replace(sample_search_record(), capacity=capacity))
    assert report["capacity"]["wrk"]["connections"] == 50
    assert report["capacity"]["wrk"]["rate"] == summary.rate
    sentence = report["capacity"]["sentence"]
    assert "wrk, with 50 connections that wait for their answers, got 728 answers per second" in sentence
    assert "the SLO was kept" in sentence
    assert "--processes" not in sentence
    page = render_report(report)
    assert escape(sentence) in page
    assert ">capacity at least 400/s (wrk: 728/s)</span>" in page
    # its rate is not in the headline if it missed the SLO, or is lower
    slow = sample_search_record().steps[0].summary
    for load, verdict in (
        (WrkLoad(50, summary, kept=False), "missed"),
        (WrkLoad(50, slow, kept=True), "kept"),
    ):
        record = replace(sample_search_record(), capacity=replace(capacity, by_wrk=load))
        page = render_report(build_document(record))
        assert ">capacity at least 400/s</span>" in page
        assert f"the SLO was {verdict}" in page


def test_the_page_explains_coordinated_omission() -> None:
    assert "no coordinated omission" in render_report(build_document(mixed_record()))
    closed = render_report(build_document(sample_record()))
    assert "This test was a closed loop" in closed
    assert "This test was an open loop" not in closed
