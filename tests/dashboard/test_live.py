"""Section "Live": metrics as rates, times and rejections; and drift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.browser import OpenDashboard, wait_until_idle
from tests.support.dashboard_live import IMAGE, send_noise
from tests.support.dashboard_repository import MARKUP
from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser

# text of a tile that shows a figure
FIGURE = re.compile(r"\d")
SAMPLES = """async (text) => {
  const { parseSamples } = await import("/dashboard/live/metrics_parser.js");
  return [...parseSamples(text)].map(({ name, labels, value }) => [name, labels, String(value)]);
}"""
# derives figures from scrapes: requests, cumulative counts of a histogram with bounds 1, 2 and infinity, sum
MOMENTS = """async (scrapes) => {
  const { MetricsHistory } = await import("/dashboard/live/metrics_history.js");
  const { emptyHistogram } = await import("/dashboard/live/histogram.js");
  const history = new MetricsHistory();
  const results = [];
  for (const { at, started = 5, requests, counts, sum, refused = 0 } of scrapes) {
    const request = { bounds: [1, 2, Infinity], counts, sum };
    const histograms = { request, queue: emptyHistogram(), run: emptyHistogram(), batch: emptyHistogram() };
    const failed = new Map([["expired", refused]]);
    const drift = { drift: new Map(), driftRows: null };
    const modelCounts = { requests, rows: 2 * requests, waiting: 3, failed, histograms, ...drift };
    const models = new Map([
      ["net/1", modelCounts],
      ["other/1", { ...modelCounts, histograms: { ...histograms } }],
    ]);
    history.add({ at, started, workers: 2, refused: new Map([["expired", refused]]), models });
    const now = history.now;
    results.push(now && { ...now.models.get("net/1"), since: now.since, kept: history.moments.length,
      whole: now.total.requests, refused: now.total.refused, failed: now.models.get("net/1").failed });
  }
  return results;
}"""


@pytest.fixture(scope="module")
def page(dashboard: OpenDashboard, bundled_server: Server) -> Iterator[Page]:
    """One page for the tests that only use its modules."""
    with dashboard(bundled_server.url) as opened:
        yield opened


def test_samples_are_parsed_as_by_prometheus(page: Page, bundled_server: Server) -> None:
    """The parser agrees with that of prometheus_client."""
    bundled_server.post("/v2/models/digits-10/infer", {"inputs": [IMAGE]})
    bundled_server.post("/v2/models/digits-10/infer", b"{")
    text = bundled_server.get("/metrics").text
    ours = {
        (name, tuple(sorted(labels.items()))): float(value) for name, labels, value in samples(page, text)
    }
    theirs = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert len(theirs) > 100
    assert ours == theirs


def test_samples_with_unusual_labels_are_parsed(page: Page) -> None:
    """Labels may contain anything, values need not be finite, and lines without a sample are skipped."""
    text = (
        '# TYPE a counter\na{model="b} 1 \\"c\\"",reason="d\\\\n\\ne,f=g"} 2\n'
        'plain 3 1700000000000\nlast{le="+Inf"} +Inf\nnone NaN\n\n}{ 4\nonly\n'
    )
    assert samples(page, text) == [
        ["a", {"model": 'b} 1 "c"', "reason": "d\\n\ne,f=g"}, "2"],
        ["plain", {}, "3"],
        ["last", {"le": "+Inf"}, "Infinity"],
        ["none", {}, "NaN"],
    ]


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 4, 8, 8], 0.5, 2),  # half of the values are at or below the bound of the second bucket
        ([0, 4, 8, 8], 0.25, 1.5),  # the middle of the second bucket, from 1 to 2
        ([4, 4, 4, 4], 0.5, 0.5),  # the first bucket starts at 0
        ([0, 0, 0, 5], 0.99, 4),  # above the last finite bound
        ([0, 0, 10, 10], 0.1, 2.2),  # the empty buckets before it contain no quantile
        ([0, 0, 0, 0], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_quantiles_are_interpolated_in_buckets(
    page: Page, counts: list[int], share: float, expected: float | None
) -> None:
    script = """async ([counts, share]) => {
      const { quantile } = await import("/dashboard/live/histogram.js");
      return quantile({ bounds: [1, 2, 4, Infinity].slice(0, counts.length), counts, sum: 0 }, share);
    }"""
    assert page.evaluate(script, [counts, share]) == (
        expected if expected is None else pytest.approx(expected)
    )


def test_figures_are_derived_from_two_scrapes(page: Page) -> None:
    """One scrape alone gives no figures."""
    first, second = page.evaluate(
        MOMENTS,
        [
            {"at": 10, "requests": 100, "counts": [90, 100, 100], "sum": 1000, "refused": 7},
            {"at": 14, "requests": 108, "counts": [90, 108, 108], "sum": 1012, "refused": 9},
        ],
    )
    assert first is None
    assert {name: second[name] for name in ("requests", "rows", "queue", "since", "whole")} == {
        "requests": 2,
        "rows": 4,
        "queue": 3,
        "since": 4,
        "whole": 4,
    }
    assert (second["p50"], second["mean"], second["batch"]) == (1.5, 1.5, None)
    assert (second["refused"], second["failed"]) == (0.5, 0.5)


def test_a_reset_counter_gives_no_negative_rate(page: Page) -> None:
    """A counter that decreased was reset, so its whole value is new."""
    *_, last = page.evaluate(
        MOMENTS,
        [
            {"at": 0, "requests": 100, "counts": [100, 100, 100], "sum": 50, "refused": 50},
            {"at": 2, "requests": 6, "counts": [0, 6, 6], "sum": 9, "refused": 4},
        ],
    )
    assert (last["requests"], last["refused"], last["mean"], last["p50"]) == (3, 2, 1.5, 1.5)


@pytest.mark.parametrize("change", [{"started": 9}, {"at": 40}])
def test_history_restarts_after_a_gap(page: Page, change: dict[str, float]) -> None:
    """After a restart of the server or a long pause, the next scrape only sets the starting point."""
    scrapes: list[dict[str, Any]] = [
        {"at": at, "requests": at, "counts": [at, at, at], "sum": at} for at in (0, 2, 4)
    ]
    scrapes[2] |= change
    scrapes.append(scrapes[2] | {"at": scrapes[2]["at"] + 2, "requests": 14})
    _, second, third, fourth = page.evaluate(MOMENTS, scrapes)
    assert second["requests"] == 1
    assert third is None
    assert fourth["requests"] == 5
    # the gap is kept, so that no line is drawn across it
    assert fourth["kept"] == 3


def test_only_the_last_minutes_are_kept(page: Page) -> None:
    """Figures are averages over ten seconds; moments older than five minutes are removed."""
    scrapes = [{"at": 2 * n, "requests": n * n, "counts": [0, 0, 0], "sum": 0} for n in range(400)]
    results = page.evaluate(MOMENTS, scrapes)
    assert results[-1]["since"] == 10
    assert results[-1]["requests"] == (399**2 - 394**2) / 10
    assert results[-1]["kept"] == 151


def test_traffic_is_shown(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        live = page.locator("#live")
        live.scroll_into_view_if_needed()
        rate = live.locator(".tile", has_text="requests per second").locator(".figure")
        expect(rate).to_have_text("0")
        send_requests(bundled_server)
        expect(rate).not_to_have_text("0")
        rejected = live.locator(".tile", has_text="rejected per second")
        expect(rejected.locator(".figure")).not_to_have_text("0")
        counted = live.locator(".titled", has_text="Rejections since").get_by_role("row", name="bad request")
        expect(counted).to_be_visible()
        throughput = live.locator(".titled", has_text="Throughput")
        expect(throughput.locator(".plot .main-svg").first).to_be_visible()
        throughput.get_by_text("Data table").click()
        expect(throughput.get_by_role("columnheader")).to_have_text(["minutes", "requests", "rows"])
        live.get_by_role("button", name="digits-10/1").click()
        expect(live.get_by_role("button", name="digits-10/1")).to_have_attribute("aria-pressed", "true")
        expect(rate).to_have_text(FIGURE)
        known = page.evaluate(
            "async () => (await import('/dashboard/state/store.js'))"
            ".current('live').models.get('digits-10/1').p50"
        )
        assert known > 0


def test_model_names_are_shown_as_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url) as page:
        page.evaluate(
            "async (name) => (await import('/dashboard/state/store.js'))"
            ".publish('choose model', {name, version: '1'})",
            MARKUP,
        )
        expect(page.locator("#live").get_by_role("button", name=f"{MARKUP}/1")).to_be_visible()
        expect(page.locator("#live")).to_contain_text("no gate profile to compare with")
        assert page.title() != "owned"


@pytest.mark.thorough
def test_noise_raises_a_drift_alarm(dashboard: OpenDashboard) -> None:
    """First the page shows how many rows are needed; after noise, an alarm."""
    from playwright.sync_api import expect

    with serving("--no-access-log") as server, dashboard(server.url) as page:
        wait_until_idle(page)
        drift = page.locator("#live .drift")
        drift.scroll_into_view_if_needed()
        expect(drift).to_contain_text("of 200 rows so far")
        send_noise(server, rows=400)
        expect(drift.get_by_text("alarm: far from export")).to_be_visible()
        report = server.get("/v2/models/digits-10/gates/drift").json()
        expect(drift).to_contain_text(f"moved most is {report['worst']}")
        expect(drift.get_by_text("watch", exact=True)).to_be_visible()
        drift.locator(".titled", has_text="Drift by layer").get_by_text("Data table").click()
        expect(drift.get_by_role("row")).to_have_count(1 + len(report["layers"]))


@pytest.mark.thorough
def test_a_model_without_gates_has_no_drift(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path="/#model=bare/1") as page:
        expect(page.locator("#live .drift")).to_contain_text("no gates to drift")
        assert not [url for url in page.log.requests if url.endswith("/bare/versions/1/gates/drift")]


@pytest.mark.thorough
def test_a_late_drift_response_is_ignored(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path="/#model=digits-10/1") as page:
        wait_until_idle(page)
        drift = page.locator("#live .drift")
        report = all_models_server.get("/v2/models/digits-10/gates/drift").json() | {
            "reason": "of another model"
        }
        page.evaluate(
            """(late) => {
              const plain = window.fetch;
              window.fetch = async (path, options) => {
                const answer = await plain(path, options);
                if (!path.includes("digits-10") || !path.endsWith("/drift")) return answer;
                await new Promise((resolve) => setTimeout(resolve, 3000));
                return new Response(JSON.stringify(late));
              };
            }""",
            report,
        )
        with page.expect_response("**/digits-10/versions/1/gates/drift"):
            drift.scroll_into_view_if_needed()
        page.evaluate("location.hash = '#model=bare/1'")
        expect(drift).to_contain_text("no gates to drift")
        page.wait_for_timeout(4000)
        expect(drift).to_contain_text("no gates to drift")


@pytest.mark.thorough
def test_polling_has_fixed_intervals(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Every two seconds, and drift only while it is visible."""
    with dashboard(bundled_server.url, height=500) as page:
        wait_until_idle(page)
        before = len(page.log.requests)
        page.wait_for_timeout(8000)
        scrapes = sum(url.endswith("/metrics") for url in page.log.requests[before:])
        assert 1 <= scrapes <= 4, page.log.problems
        assert not [url for url in page.log.requests if url.endswith("/drift")]
        with page.expect_request("**/gates/drift"):
            page.locator("#live .drift").scroll_into_view_if_needed()


@pytest.mark.thorough
def test_a_slow_metrics_response_slows_polling(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """If a response takes long, the page waits longer before the next request."""
    with dashboard(bundled_server.url) as page:

        def slow(route: Route) -> None:
            page.wait_for_timeout(300)
            route.continue_()

        page.route("**/metrics", slow)
        page.wait_for_timeout(4000)
        before = len(page.log.requests)
        page.wait_for_timeout(9000)
        assert sum(url.endswith("/metrics") for url in page.log.requests[before:]) <= 2


def test_figures_stay_while_the_server_is_down(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="ERR_FAILED") as page:
        live = page.locator("#live")
        rate = live.locator(".tile", has_text="requests per second").locator(".figure")
        expect(rate).to_have_text(FIGURE)
        page.route("**/metrics", lambda route: route.abort())
        expect(live.get_by_role("status").first).to_contain_text("cannot be reached")
        expect(rate).to_have_text(FIGURE)
        assert (
            page.evaluate("async () => (await import('/dashboard/state/store.js')).current('live')") is None
        )
        page.unroute("**/metrics")
        expect(live.get_by_role("status").first).to_be_hidden()
        assert (
            page.evaluate("async () => (await import('/dashboard/state/store.js')).current('live')")
            is not None
        )


def test_a_refused_metrics_request_shows_the_message(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="403") as page:
        page.route(
            "**/metrics", lambda route: route.fulfill(status=403, json={"error": "not for <b>you</b>"})
        )
        expect(page.locator("#live").get_by_role("status").first).to_contain_text("not for <b>you</b>")


def samples(page: Page, text: str) -> list[Any]:
    read = page.evaluate(SAMPLES, text)
    assert isinstance(read, list)
    return read


def send_requests(server: Server) -> None:
    """Send a few valid requests and an invalid one."""
    for _ in range(20):
        assert server.post("/v2/models/digits-10/infer", {"inputs": [IMAGE]}).status_code == 200
    assert server.post("/v2/models/digits-10/infer", b"{").status_code == 400
