"""Reports: that they say what was measured, are whole by themselves, and never take a name for markup."""

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
from loadtest.plan import Plan
from loadtest.report import number_format as wording
from loadtest.report import place, sentences
from loadtest.report import report as module
from loadtest.report.charts import charts
from loadtest.report.document import document
from loadtest.report.page import page
from loadtest.report.report import prepare, write
from loadtest.slo import Slo
from tests.support.loadtest_records import BEGUN, URL, load, record, scrape, search, target

VOID = {"meta", "br"}
EVIL = '</script><script>alert("x")</script>'


def mixed() -> Record:
    """A test in which everything happens: kinds, rows, faults, a wrong answer, a missed limit."""
    ledger = Ledger()
    kinds = (("json, 1 row", 1), ("binary, 4 rows", 4))
    load(ledger, BEGUN, 6, 50, kinds=kinds)
    load(ledger, BEGUN + 6, 2, 50, kinds=kinds, faults={"503": 0.3, "wrong: shape": 0.1}, seed=1)
    load(ledger, BEGUN + 8, 2, 50, kinds=kinds, seed=2)
    plan = Plan(
        URL, wire="mixed", rows=(1, 4), rate=50, duration=9, warmup=1, slo=Slo.parse("p99<1s, errors<1%")
    )
    return record(plan, ledger, notes=("something to know",), wrong="output x: expected 1, got 2")


def nothing() -> Record:
    """A test that was ended before a request left."""
    return record(ledger=Ledger(), scrapes=(), first=BEGUN, last=BEGUN)


def refused() -> Record:
    """A test in which no request had a good answer."""
    ledger = Ledger()
    load(ledger, BEGUN, 5, 20, faults={"connection refused": 1.0})
    return record(ledger=ledger, seconds=5, scrapes=())


def soak() -> Record:
    """Four minutes, of which the last is slower."""
    ledger = Ledger()
    load(ledger, BEGUN, 180, 5, median=0.004)
    load(ledger, BEGUN + 180, 60, 5, median=0.040)
    plan = Plan(URL, shape="soak", duration=240, warmup=0)
    return record(plan, ledger, seconds=240, first=BEGUN, scrapes=())


RECORDS = {
    "plain": record,
    "mixed": mixed,
    "search": search,
    "nothing": nothing,
    "refused": refused,
    "soak": soak,
    "second": lambda: record(seconds=1, first=BEGUN),
    "no rate": lambda: replace(search(), capacity=Capacity(None, "server")),
    "stopped": lambda: replace(search(), capacity=None, interrupted=True),
    "no slo": lambda: record(Plan(URL)),
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


def test_figures_are_those_of_the_requests() -> None:
    """Percentiles, rates and errors are what numpy says of the very same outcomes."""
    ledger, draws = Ledger(), np.random.default_rng(0)
    latencies = draws.lognormal(-5, 1, 2000)
    for number, latency in enumerate(latencies):
        fault = "503" if number % 100 == 0 else None
        ledger.add(Outcome("json, 2 rows", BEGUN + number / 200, 0.001, latency, 2, fault))
    found = document(record(ledger=ledger, first=BEGUN))
    good = np.delete(latencies, np.arange(0, 2000, 100))
    total = found["total"]
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
    assert found["late"]["p99"] == pytest.approx(0.001, rel=0.01)
    curve = dict(map(tuple, found["distribution"]))
    assert curve[1.0] == pytest.approx(good.max())
    assert curve[0.9] == pytest.approx(np.percentile(good, 90, method="inverted_cdf"), rel=0.011)
    assert list(curve) == sorted(curve)


def test_the_warm_up_counts_for_nothing_but_is_shown() -> None:
    """Figures are of the seconds that count; the series over time has all."""
    ledger = Ledger()
    load(ledger, BEGUN, 2, 100, median=0.5, faults={"503": 0.5})
    load(ledger, BEGUN + 2, 8, 100, median=0.001)
    found = document(record(ledger=ledger, first=BEGUN + 2))
    assert found["total"]["bad"] == 0
    assert found["total"]["requests"] == 800
    assert found["total"]["p90"] < 0.01
    assert sum(found["series"]["faults"]["503"]) > 50
    assert found["series"]["p50"][0] > 0.1
    assert found["counted"] == {"from": 2.0, "seconds": 8.0}


def test_a_series_has_a_place_for_each_second() -> None:
    """Every column is as long as the test; seconds without a request have no percentiles, but a rate of 0."""
    ledger = Ledger()
    load(ledger, BEGUN, 2, 10)
    load(ledger, BEGUN + 5, 2, 10)
    series = document(record(ledger=ledger, seconds=7))["series"]
    assert series["interval"] == 1
    assert series["at"] == [0, 1, 2, 3, 4, 5, 6]
    columns = {name: column for name, column in series.items() if name not in ("interval", "faults")}
    assert {len(column) for column in columns.values()} == {7}
    assert series["due_rate"] == [10, 10, 0, 0, 0, 10, 10]
    assert [value is None for value in series["p99"]] == [False, False, True, True, True, False, False]


def test_good_answers_count_when_they_came() -> None:
    """A request that waits through a stall is due before it and answered after it."""
    ledger = Ledger()
    for number in range(10):
        ledger.add(Outcome("a", BEGUN + 0.5, 0, 2.0, 1))
        ledger.add(Outcome("a", BEGUN + 2 + number / 20, 0, 0.01, 1))
    series = document(record(ledger=ledger, seconds=3, first=BEGUN))["series"]
    assert series["due_rate"] == [10, 0, 10]
    assert series["good_rate"] == [0, 0, 20]


def test_what_left_after_the_end_is_not_shown() -> None:
    """Users stop within a second, which would look like a fall at the end of every chart."""
    ledger = Ledger()
    load(ledger, BEGUN, 6, 10)
    found = document(record(ledger=ledger, seconds=5))
    assert found["series"]["due_rate"] == [10] * 5
    assert found["total"]["requests"] == 40


@pytest.mark.parametrize(("every", "covered"), [(1.06, 9), (1.0, 9), (2.5, 9)])
def test_scrapes_leave_no_holes(every: float, covered: int) -> None:
    """A scrape tells of every second that it covers, however scrapes and seconds fall."""
    scrapes = [replace(scrape(BEGUN + every * n, 60), seconds=every) for n in range(1, 12)]
    found = document(record(scrapes=tuple(scrapes)))
    assert None not in found["series"]["server_run_p99"][:covered]


def test_hours_have_fewer_points() -> None:
    """A test of three hours is told in longer stretches, with percentiles of all requests in each."""
    ledger = Ledger()
    for second in range(0, 10_800, 2):
        ledger.add(Outcome("a", BEGUN + second, 0, 0.001 if second % 4 else 0.1, 1))
    found = document(record(ledger=ledger, seconds=10_800, scrapes=()))
    assert found["series"]["interval"] == 5
    assert len(found["series"]["at"]) == 2160
    assert sum(found["series"]["due_rate"]) * 5 == pytest.approx(5400)
    assert set(found["series"]["max"]) == {0.1}
    assert len(found["stretches"]) <= 24
    assert "hours since the begin" not in json.dumps([chart.drawn for chart in charts(found).values()])
    assert "minutes since the begin" in json.dumps([chart.drawn for chart in charts(found).values()])


def test_a_soak_is_told_by_the_minute() -> None:
    """A line a minute, and the first quarter beside the last."""
    found = document(soak())
    assert [one["seconds"] for one in found["stretches"]] == [60] * 4
    assert found["drift"]["seconds"] == 60
    assert found["drift"]["last"]["p50"] > 5 * found["drift"]["first"]["p50"]
    assert "first quarter" in page(found)
    assert document(record())["drift"] is None


def test_the_server_is_told_of_the_time_that_counts() -> None:
    """Its histograms are added up over the seconds that figures are told from."""
    found = document(record())["server"]
    inside = [scrape(BEGUN + second + 0.9, 60) for second in range(1, 10)]
    assert found["queue"]["count"] == sum(one.queue.count for one in inside)
    assert found["depth"] == max(one.depth for one in inside)
    assert found["rows"]["mean"] == pytest.approx(3.2)
    assert document(record(scrapes=()))["server"] is None


def test_what_is_secret_stays_so() -> None:
    """Neither the key nor a path of this machine is in the report."""
    plan = Plan(URL, api_key="sesame-7", data=Path("/home/ann/rows.npy"), report=Path("/home/ann/out"))
    found = document(record(plan))
    assert found["load"]["own_rows"]
    text = json.dumps(found) + page(found)
    assert "sesame" not in text
    assert "/home/ann" not in text


def test_the_document_is_strict_json(any_record: Record) -> None:
    """No NaN in it, and it is the same when it is read again."""
    found = document(any_record)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_keys_are_those_of_the_documentation() -> None:
    """Programs read them: each is in README.md, and none is there that is not written."""
    table = (Path(loadtest.__file__).parent / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)
    assert sorted(told) == sorted(document(mixed()))


def test_pages_are_whole(any_record: Record) -> None:
    """Every element is closed, every chart has one place, and nothing is fetched from elsewhere."""
    found = document(any_record)
    elements = Elements(page(found))
    drawn = json.loads(elements.scripts[0])
    assert [f"chart-{chart['name']}" for chart in drawn] != [] or not found["series"]["at"]
    assert sorted(f"chart-{chart['name']}" for chart in drawn) == sorted(
        one for one in elements.ids if one.startswith("chart-")
    )
    assert len(elements.ids) == len(set(elements.ids))
    assert not [pair for pair in elements.attributes if pair[0] in ("src", "href", "srcset", "action")]
    (policy,) = [value for _, value in elements.attributes if value and value.startswith("default-src")]
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    assert len(elements.scripts) == 3


def test_charts_are_what_plotly_takes(any_record: Record) -> None:
    """Plotly's own check of names and values passes, with the colours as the page's style has them."""
    style = (Path(module.__file__).parent / "template/report.css").read_text(encoding="utf-8")
    known = dict(re.findall(r"--(\w+): ([^;]+);", style.split("@media")[0]))

    def coloured(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: coloured(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [coloured(one, key) for one in value]
        return known[value] if key in ("color", "fillcolor") else value

    for chart in charts(document(any_record)).values():
        plotly.graph_objects.Figure(**coloured({"data": chart.data, "layout": chart.layout}))


def test_names_are_text() -> None:
    """Markup in a name, of the model or of what a server said, is shown and not run, in charts as well."""
    ledger = Ledger()
    load(ledger, BEGUN, 10, 30, kinds=((EVIL, 1), ("b", 1)), faults={f"wrong: {EVIL}": 0.1})
    about = target(model=EVIL, server=EVIL, server_version=EVIL, version=EVIL)
    found = document(record(ledger=ledger, about=about, notes=(EVIL,), wrong=EVIL))
    text = page(found)
    assert "<script>alert" not in text
    elements = Elements(text)
    assert len(elements.scripts) == 3
    # plotly reads markup of its own in names
    names = [line["name"] for chart in json.loads(elements.scripts[0]) for line in chart["data"]]
    assert '&lt;/script&gt;&lt;script&gt;alert("x")&lt;/script&gt;' in names
    assert not [name for name in names if "<" in name]


def test_verdicts_are_told_limit_by_limit() -> None:
    """Each limit with what was measured and whether it was kept; the whole is what the record says."""
    found = document(mixed())
    kept, missed = found["verdict"]["limits"]
    assert (kept["words"], kept["kept"]) == ("p99<1s", True)
    assert (missed["words"], missed["kept"]) == ("errors<1%", False)
    assert missed["value"] == found["total"]["errors"] > 0.01
    assert found["verdict"]["kept"] is False
    text = page(found)
    assert "✗ SLO missed" in text
    assert "✗ wrong answers" in text
    assert "expected 1, got 2" in text
    assert "something to know" in text
    assert "✓ SLO kept" in page(document(record()))
    assert "no SLO was given" in page(document(record(Plan(URL))))


def test_many_errors_are_no_quiet_verdict() -> None:
    """Without an SLO a test has failed all the same when a good part of its requests has no good answer."""
    ledger = Ledger()
    load(ledger, BEGUN, 10, 60, faults={"503": 0.5})
    text = page(document(record(Plan(URL), ledger)))
    assert "✗ failed" in text
    assert "no SLO was given" not in text


def test_nothing_to_judge_by_is_no_kept_limit() -> None:
    """Without a request no limit was kept, and no value is made up."""
    found = document(nothing())
    assert [limit["value"] for limit in found["verdict"]["limits"]] == [None, None]
    assert "no request was due after the warm-up" in page(found)
    assert "Every request had a good answer" not in page(found)
    assert "nothing to judge by" in page(found)
    assert "✗ SLO missed" in page(found)


def test_a_search_shows_its_steps() -> None:
    """Each rate with its verdict, which charts tell by shape as well as by colour; and the capacity."""
    found = document(search())
    steps = found["capacity"]["steps"]
    assert [step["due_rate"] for step in steps] == [100, 200, 400, 800, 600, 500, 550]
    assert found["capacity"]["rate"] == 400
    assert found["total"]["requests"] == 2000
    drawn = charts(found)
    _, saturation = drawn["saturation"].data
    assert saturation["x"] == [100, 200, 400, 500, 550, 600, 800]
    assert saturation["marker"]["symbol"] == ["circle"] * 3 + ["x-thin"] * 4
    assert saturation["y"][2] == pytest.approx(found["total"]["p99"] * 1000)
    assert [line["hoverinfo"] for line in drawn["goodput"].data[:2]] == ["skip"] * 2
    assert {shape["label"]["text"] for shape in drawn["saturation"].layout["shapes"]} == {
        "p99&lt;50ms",
        "capacity 400/s",
    }
    assert "✓ capacity 400/s" in page(found)
    assert "no rate kept the SLO" in page(document(replace(search(), capacity=Capacity(None, "server"))))


def test_a_search_that_was_stopped_has_its_steps() -> None:
    """It has found no capacity, which is not to say that there is none."""
    found = document(replace(search(), capacity=None, interrupted=True))
    assert found["capacity"]["done"] is False
    assert len(found["capacity"]["steps"]) == 7
    text = page(found)
    assert "search not finished" in text
    assert "It was ended before its time." in text
    assert "no rate kept the SLO" not in text
    assert "ended before" not in page(document(record()))


def test_a_rate_that_was_tried_twice() -> None:
    """Both tries are marked, in the order in which they were; the line is of the last."""
    steps = search((100, 200, 100)).steps
    steps = (steps[0], steps[1], replace(steps[2], held=False))
    line, marks = charts(document(replace(search((100, 200, 100)), steps=steps)))["saturation"].data
    assert marks["x"] == [100, 100, 200]
    assert marks["marker"]["symbol"] == ["circle", "x-thin", "circle"]
    assert line["x"] == [100, 200]
    assert line["y"] == marks["y"][1:]


@pytest.mark.parametrize("rate", [400.0, None])
def test_a_generator_at_its_limit_proves_nothing(rate: float | None) -> None:
    """The report says that the server may do more, and what to do."""
    record = search()
    steps = tuple(replace(step, limited=step.rate > 400) for step in record.steps)
    found = document(replace(record, steps=steps, capacity=Capacity(rate, "generator")))
    assert "--processes" in sentences.capacity(found["capacity"])
    assert "diamond-open" in charts(found)["saturation"].data[1]["marker"]["symbol"]
    assert "generator at its limit" in page(found)


def test_how_omission_is_handled_is_said() -> None:
    """An open loop has none; a closed one has it by its nature, and says so."""
    assert "no coordinated omission" in page(document(mixed()))
    closed = page(document(record()))
    assert "This was a closed loop" in closed
    assert "This was an open loop" not in closed


def test_reports_are_written(tmp_path: Path) -> None:
    """Both files, the JSON being all that the page is made of."""
    path = write(tmp_path / "a" / "report", mixed())
    assert path == tmp_path / "a" / "report" / "report.html"
    found = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))
    assert found == document(mixed())
    assert path.read_text(encoding="utf-8") == page(found)
    assert sorted(one.name for one in path.parent.iterdir()) == ["report.html", "report.json"]


def test_a_report_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full halfway, an older report stays as it was, and nothing else is left."""
    write(tmp_path, record())
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    put = place._put

    def full(path: Path, text: str) -> None:
        put(path, text[:1000])
        if path.name.endswith("html"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(place, "_put", full)
    with pytest.raises(LoadTestError, match="could not be written .No space left"):
        write(tmp_path, mixed())
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_a_folder_is_tried_before_the_load(tmp_path: Path) -> None:
    """What cannot be a folder of a report is a mistake in the call; a good one is there afterwards, empty."""
    prepare(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="--report: expected a folder that can be written"):
        prepare(tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "told"),
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
def test_times_have_three_figures(value: float | None, told: str) -> None:
    """In the unit that fits."""
    assert wording.seconds(value) == told


def test_numbers_are_easy_to_read() -> None:
    """Rates, shares and lengths, each in its way."""
    assert [wording.number(value) for value in (0, 0.256, 12.34, 99.96, 1234.5, None)] == [
        "0",
        "0.256",
        "12.3",
        "100",
        "1,234",
        "-",
    ]
    assert [wording.share(value) for value in (0.0, 0.00012, 0.125, 1.0, None)] == [
        "0 %",
        "0.012 %",
        "12.5 %",
        "100 %",
        "-",
    ]
    assert [wording.length(value) for value in (0.5, 45, 150, 3600, 3905)] == [
        "0.5 s",
        "45 s",
        "2 min 30 s",
        "1 h",
        "1 h 5 min",
    ]
    assert [wording.rows(value) for value in ([1], [32], [1, 1000])] == [
        "1 row",
        "32 rows",
        "1 or 1,000 rows",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "search", "nothing"])
def test_a_browser_draws_it(name: str, tmp_path: Path) -> None:
    """Every chart is drawn, under the page's own policy, without an error."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium here")
    record = RECORDS[name]()
    path = write(tmp_path, record)
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
    drawn = charts(document(record))
    assert ran.stdout.count('class="main-svg"') >= 2 * len(drawn)
    for chart in drawn.values():
        assert f'class="chart js-plotly-plot" id="chart-{chart.name}"' in ran.stdout
