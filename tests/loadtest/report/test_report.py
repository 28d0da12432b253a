"""Reports: correct figures, self-contained files, and names that are never taken for markup."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest

import loadtest
from loadtest.errors import LoadTestError, UsageError
from loadtest.ledger import Ledger, Outcome
from loadtest.measure.record import Capacity, Record
from loadtest.plan import LoadPlan
from loadtest.report import html_output, sentences
from loadtest.report import number_format as fmt
from loadtest.report.charts import make_charts
from loadtest.report.document import build_document
from loadtest.report.report import prepare_folder, render_report, write_report
from loadtest.slo import Slo
from tests.support.loadtest_records import (
    START,
    URL,
    add_requests,
    sample_record,
    sample_scrape,
    sample_search_record,
    sample_target,
)

VOID = {"meta", "br"}
EVIL = '</script><script>alert("x")</script>'


def mixed() -> Record:
    """A test with several kinds, rows, faults, a wrong answer and a missed limit."""
    ledger = Ledger()
    kinds = (("json, 1 row", 1), ("binary, 4 rows", 4))
    add_requests(ledger, START, 6, 50, kinds=kinds)
    add_requests(ledger, START + 6, 2, 50, kinds=kinds, faults={"503": 0.3, "wrong: shape": 0.1}, seed=1)
    add_requests(ledger, START + 8, 2, 50, kinds=kinds, seed=2)
    plan = LoadPlan(
        URL, wire="mixed", rows=(1, 4), rate=50, duration=9, warmup=1, slo=Slo.parse("p99<1s, errors<1%")
    )
    return sample_record(
        plan, ledger, notes=("something to know",), wrong_answer="output x: expected 1, got 2"
    )


def nothing() -> Record:
    """A test that was stopped before the first request."""
    return sample_record(ledger=Ledger(), scrapes=(), first=START, last=START)


def refused() -> Record:
    """A test in which no request had a good answer."""
    ledger = Ledger()
    add_requests(ledger, START, 5, 20, faults={"connection refused": 1.0})
    return sample_record(ledger=ledger, seconds=5, scrapes=())


def soak() -> Record:
    """Four minutes; the last is slower."""
    ledger = Ledger()
    add_requests(ledger, START, 180, 5, median=0.004)
    add_requests(ledger, START + 180, 60, 5, median=0.040)
    plan = LoadPlan(URL, shape="soak", duration=240, warmup=0)
    return sample_record(plan, ledger, seconds=240, first=START, scrapes=())


RECORDS = {
    "plain": sample_record,
    "mixed": mixed,
    "search": sample_search_record,
    "nothing": nothing,
    "refused": refused,
    "soak": soak,
    "second": lambda: sample_record(seconds=1, first=START),
    "no rate": lambda: replace(sample_search_record(), capacity=Capacity(None, "server")),
    "stopped": lambda: replace(sample_search_record(), capacity=None, interrupted=True),
    "no slo": lambda: sample_record(LoadPlan(URL)),
}


@pytest.fixture(params=RECORDS)
def any_record(request: pytest.FixtureRequest) -> Record:
    return RECORDS[request.param]()


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


def test_figures_equal_those_of_numpy() -> None:
    """Percentiles, rates and errors equal those that numpy computes from the same outcomes."""
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
    assert "hours since the start" not in json.dumps([chart.json for chart in make_charts(report).values()])
    assert "minutes since the start" in json.dumps([chart.json for chart in make_charts(report).values()])


def test_a_soak_test_has_a_row_per_minute() -> None:
    report = build_document(soak())
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
    assert sorted(keys) == sorted(build_document(mixed()))


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
    report = build_document(mixed())
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
    """Without an SLO, a test still fails if many requests have no good answer."""
    ledger = Ledger()
    add_requests(ledger, START, 10, 60, faults={"503": 0.5})
    text = render_report(build_document(sample_record(LoadPlan(URL), ledger)))
    assert "✗ failed" in text
    assert "no SLO was given" not in text


def test_no_limit_is_kept_without_requests() -> None:
    report = build_document(nothing())
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
    """It has no capacity, which does not mean that there is none."""
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
    assert "no coordinated omission" in render_report(build_document(mixed()))
    closed = render_report(build_document(sample_record()))
    assert "This test was a closed loop" in closed
    assert "This test was an open loop" not in closed


def test_a_report_has_a_page_and_a_json_file(tmp_path: Path) -> None:
    path = write_report(tmp_path / "a" / "report", mixed())
    assert path == tmp_path / "a" / "report" / "report.html"
    report = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))
    assert report == build_document(mixed())
    assert path.read_text(encoding="utf-8") == render_report(report)
    assert sorted(file.name for file in path.parent.iterdir()) == ["report.html", "report.json"]


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full halfway, an older report stays as it was, and no other file is left."""
    write_report(tmp_path, sample_record())
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write = html_output._write

    def full(path: Path, text: str) -> None:
        write(path, text[:1000])
        if path.name.endswith("html"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(html_output, "_write", full)
    with pytest.raises(LoadTestError, match="could not be written .No space left"):
        write_report(tmp_path, mixed())
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_folder_is_checked_before_the_load(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="--report: expected a writable folder"):
        prepare_folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0000123, "0.0123 ms"),
        (0.00123, "1.23 ms"),
        (0.0123456, "12.3 ms"),
        (0.1, "100 ms"),
        (0.9994, "999 ms"),
        (0.99951, "1 s"),
        (1.234, "1.23 s"),
        (123.4, "123 s"),
        (0.0, "0 ms"),
        (math.nan, "-"),
        (None, "-"),
    ],
)
def test_times_have_three_digits(value: float | None, text: str) -> None:
    assert fmt.seconds(value) == text


def test_numbers_have_three_digits_and_separators() -> None:
    assert [fmt.number(value) for value in (0, 0.256, 12.34, 99.96, 1234.5, None)] == [
        "0",
        "0.256",
        "12.3",
        "100",
        "1,234",
        "-",
    ]
    assert [fmt.share(value) for value in (0.0, 0.00012, 0.125, 1.0, None)] == [
        "0 %",
        "0.012 %",
        "12.5 %",
        "100 %",
        "-",
    ]
    assert [fmt.length(value) for value in (0.5, 45, 150, 3600, 3905)] == [
        "0.5 s",
        "45 s",
        "2 min 30 s",
        "1 h",
        "1 h 5 min",
    ]
    assert [fmt.rows(value) for value in ([1], [32], [1, 1000])] == [
        "1 row",
        "32 rows",
        "1 or 1,000 rows",
    ]


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
