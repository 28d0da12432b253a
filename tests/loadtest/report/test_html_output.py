"""The page of a report: self-contained, with verdicts and charts, and with names shown as text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from loadtest.ledger import Ledger
from loadtest.measure.record import Capacity, Record
from loadtest.plan import LoadPlan
from loadtest.report import html_output, sentences
from loadtest.report.charts import make_charts
from loadtest.report.document import build_document
from loadtest.report.report import render_report, write_report
from tests.support.loadtest_records import (
    RECORDS,
    START,
    URL,
    add_requests,
    empty_record,
    mixed_record,
    sample_record,
    sample_search_record,
    sample_target,
)

VOID = {"meta", "br"}
EVIL = '</script><script>alert("x")</script>'


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "an element was not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


def test_pages_are_self_contained(any_record: Record) -> None:
    report = build_document(any_record)
    elements = Elements(render_report(report))
    charts = json.loads(elements.scripts[0])
    assert [f"chart-{chart['name']}" for chart in charts] != [] or not report["series"]["at"]
    assert sorted(f"chart-{chart['name']}" for chart in charts) == sorted(
        name for name in elements.ids if name.startswith("chart-")
    )
    assert len(elements.ids) == len(set(elements.ids))
    assert not [pair for pair in elements.attributes if pair[0] in ("src", "href", "srcset", "action")]
    (policy,) = [value for _, value in elements.attributes if value and value.startswith("default-src")]
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    assert len(elements.scripts) == 3


def test_plotly_accepts_the_charts(any_record: Record) -> None:
    """Plotly's own validation accepts them, with the colours of the page's style."""
    style = (Path(html_output.__file__).parent / "template/shell.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): ([^;]+);", style.split("@media")[0]))

    def with_colours(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: with_colours(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [with_colours(item, key) for item in value]
        return colours[value] if key in ("color", "fillcolor") else value

    for chart in make_charts(build_document(any_record)).values():
        plotly.graph_objects.Figure(**with_colours({"data": chart.data, "layout": chart.layout}))


def test_names_are_shown_as_text() -> None:
    """Markup in names of models or servers is shown as text, in charts as well."""
    ledger = Ledger()
    add_requests(ledger, START, 10, 30, kinds=((EVIL, 1), ("b", 1)), faults={f"wrong: {EVIL}": 0.1})
    target = sample_target(model=EVIL, server=EVIL, server_version=EVIL, version=EVIL)
    report = build_document(sample_record(ledger=ledger, target=target, notes=(EVIL,), wrong_answer=EVIL))
    text = render_report(report)
    assert "<script>alert" not in text
    elements = Elements(text)
    assert len(elements.scripts) == 3
    # plotly reads markup of its own in names
    names = [line["name"] for chart in json.loads(elements.scripts[0]) for line in chart["data"]]
    assert '&lt;/script&gt;&lt;script&gt;alert("x")&lt;/script&gt;' in names
    assert not [name for name in names if "<" in name]


def test_each_limit_has_a_verdict() -> None:
    report = build_document(mixed_record())
    kept, missed = report["verdict"]["limits"]
    assert (kept["words"], kept["kept"]) == ("p99<1s", True)
    assert (missed["words"], missed["kept"]) == ("errors<1%", False)
    assert missed["value"] == report["total"]["errors"] > 0.01
    assert report["verdict"]["kept"] is False
    text = render_report(report)
    assert "✗ SLO missed" in text
    assert "✗ wrong answers" in text
    assert "expected 1, got 2" in text
    assert "something to know" in text
    assert "✓ SLO kept" in render_report(build_document(sample_record()))
    assert "no SLO was given" in render_report(build_document(sample_record(LoadPlan(URL))))


def test_many_errors_fail_a_test_without_slo() -> None:
    ledger = Ledger()
    add_requests(ledger, START, 10, 60, faults={"503": 0.5})
    text = render_report(build_document(sample_record(LoadPlan(URL), ledger)))
    assert "✗ failed" in text
    assert "no SLO was given" not in text


def test_no_limit_is_kept_without_requests() -> None:
    report = build_document(empty_record())
    assert [limit["value"] for limit in report["verdict"]["limits"]] == [None, None]
    assert "no request was due after the warm-up" in render_report(report)
    assert "Every request had a good answer" not in render_report(report)
    assert "no requests" in render_report(report)
    assert "✗ SLO missed" in render_report(report)


def test_a_search_shows_its_steps() -> None:
    report = build_document(sample_search_record())
    steps = report["capacity"]["steps"]
    assert [step["due_rate"] for step in steps] == [100, 200, 400, 800, 600, 500, 550]
    assert report["capacity"]["rate"] == 400
    assert report["total"]["requests"] == 2000
    charts = make_charts(report)
    _, saturation = charts["saturation"].data
    assert saturation["x"] == [100, 200, 400, 500, 550, 600, 800]
    assert saturation["marker"]["symbol"] == ["circle"] * 3 + ["x-thin"] * 4
    assert saturation["y"][2] == pytest.approx(report["total"]["p99"] * 1000)
    assert [line["hoverinfo"] for line in charts["goodput"].data[:2]] == ["skip"] * 2
    assert {shape["label"]["text"] for shape in charts["saturation"].layout["shapes"]} == {
        "p99&lt;50ms",
        "capacity 400/s",
    }
    assert "✓ capacity 400/s" in render_report(report)
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
    steps = (steps[0], steps[1], replace(steps[2], held=False))
    line, marks = make_charts(build_document(replace(sample_search_record((100, 200, 100)), steps=steps)))[
        "saturation"
    ].data
    assert marks["x"] == [100, 100, 200]
    assert marks["marker"]["symbol"] == ["circle", "x-thin", "circle"]
    assert line["x"] == [100, 200]
    assert line["y"] == marks["y"][1:]


@pytest.mark.parametrize("rate", [400.0, None])
def test_a_slow_generator_is_shown_as_the_limit(rate: float | None) -> None:
    record = sample_search_record()
    steps = tuple(replace(step, generator_limited=step.rate > 400) for step in record.steps)
    report = build_document(replace(record, steps=steps, capacity=Capacity(rate, "generator")))
    assert "--processes" in sentences.capacity_sentence(report["capacity"])
    assert "diamond-open" in make_charts(report)["saturation"].data[1]["marker"]["symbol"]
    assert "load generator too slow" in render_report(report)


def test_the_page_explains_coordinated_omission() -> None:
    assert "no coordinated omission" in render_report(build_document(mixed_record()))
    closed = render_report(build_document(sample_record()))
    assert "This test was a closed loop" in closed
    assert "This test was an open loop" not in closed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "search", "nothing"])
def test_a_browser_draws_the_charts(name: str, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    record = RECORDS[name]()
    path = write_report(tmp_path, record)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    ran = subprocess.run(
        [
            chromium,
            *options,
            f"--user-data-dir={tmp_path}/browser",
            "--virtual-time-budget=6000",
            "--dump-dom",
            f"file://{path}",
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert "CONSOLE" not in ran.stderr
    charts = make_charts(build_document(record))
    assert ran.stdout.count('class="main-svg"') >= 2 * len(charts)
    for chart in charts.values():
        assert f'class="chart js-plotly-plot" id="chart-{chart.name}"' in ran.stdout
