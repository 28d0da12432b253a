"""The section live: what `/metrics` says, read and told as rates, times and refusals; and drift."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.browser import Opener, settled
from tests.support.dashboard_repository import MARKUP
from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser

# of a tile that knows its figure
FIGURE = re.compile(r"\d")
IMAGE = {"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.0] * 64}
SAMPLES = """async (text) => {
  const { parseSamples } = await import("/dashboard/live/metrics_parser.js");
  return [...parseSamples(text)].map(({ name, labels, value }) => [name, labels, String(value)]);
}"""
# looks made by hand: requests, counts of the one histogram below 1, 2 and any seconds, its sum
MOMENTS = """async (looks) => {
  const { MetricsHistory } = await import("/dashboard/live/metrics_history.js");
  const { emptyHistogram } = await import("/dashboard/live/histogram.js");
  const history = new MetricsHistory();
  const told = [];
  for (const { at, started = 5, requests, counts, sum, refused = 0 } of looks) {
    const request = { bounds: [1, 2, Infinity], counts, sum };
    const histograms = { request, queue: emptyHistogram(), run: emptyHistogram(), batch: emptyHistogram() };
    const failed = new Map([["expired", refused]]);
    const drift = { drift: new Map(), driftRows: null };
    const one = { requests, rows: 2 * requests, waiting: 3, failed, histograms, ...drift };
    const models = new Map([["net/1", one], ["other/1", { ...one, histograms: { ...histograms } }]]);
    history.add({ at, started, workers: 2, refused: new Map([["expired", refused]]), models });
    const now = history.now;
    told.push(now && { ...now.models.get("net/1"), since: now.since, kept: history.moments.length,
      whole: now.total.requests, refused: now.total.refused, failed: now.models.get("net/1").failed });
  }
  return told;
}"""


@pytest.fixture(scope="module")
def page(dashboard: Opener, served: Server) -> Iterator[Page]:
    """A window for what needs no more than the page's modules."""
    with dashboard(served.url) as opened:
        yield opened


def test_samples_are_those_that_prometheus_reads(page: Page, served: Server) -> None:
    """All that the server tells is read as another reader of the same text reads it."""
    served.post("/v2/models/digits-10/infer", {"inputs": [IMAGE]})
    served.post("/v2/models/digits-10/infer", b"{")
    text = served.get("/metrics").text
    ours = {
        (name, tuple(sorted(labels.items()))): float(value) for name, labels, value in samples(page, text)
    }
    theirs = {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    assert len(theirs) > 100
    assert ours == theirs


def test_samples_of_strange_text(page: Page) -> None:
    """Labels hold whatever a name may, values need not be finite, and what is no sample is passed over."""
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
        ([0, 4, 8, 8], 0.5, 2),  # all of the second bucket lie at or below its bound
        ([0, 4, 8, 8], 0.25, 1.5),  # half of the second bucket, from 1 to 2
        ([4, 4, 4, 4], 0.5, 0.5),  # the first begins at 0
        ([0, 0, 0, 5], 0.99, 4),  # above the last bound no more is known
        ([0, 0, 10, 10], 0.1, 2.2),  # empty buckets before it hold no quantile
        ([0, 0, 0, 0], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_quantiles(page: Page, counts: list[int], share: float, expected: float | None) -> None:
    """A quantile lies in its bucket where its rank does; without values there is none."""
    script = """async ([counts, share]) => {
      const { quantile } = await import("/dashboard/live/histogram.js");
      return quantile({ bounds: [1, 2, 4, Infinity].slice(0, counts.length), counts, sum: 0 }, share);
    }"""
    assert page.evaluate(script, [counts, share]) == (
        expected if expected is None else pytest.approx(expected)
    )


def test_figures_come_from_what_lies_between_two_looks(page: Page) -> None:
    """Rates are by second, times are those of the requests in between, and one look tells nothing."""
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


def test_counters_that_go_back_are_no_negative_rates(page: Page) -> None:
    """Where a counter is lower than before it began anew, and what it has came since."""
    *_, last = page.evaluate(
        MOMENTS,
        [
            {"at": 0, "requests": 100, "counts": [100, 100, 100], "sum": 50, "refused": 50},
            {"at": 2, "requests": 6, "counts": [0, 6, 6], "sum": 9, "refused": 4},
        ],
    )
    assert (last["requests"], last["refused"], last["mean"], last["p50"]) == (3, 2, 1.5, 1.5)


@pytest.mark.parametrize("change", [{"started": 9}, {"at": 40}])
def test_what_does_not_follow_begins_anew(page: Page, change: dict[str, float]) -> None:
    """After the server's restart, or a long while unseen, the next look tells nothing but where it begins."""
    looks: list[dict[str, Any]] = [
        {"at": at, "requests": at, "counts": [at, at, at], "sum": at} for at in (0, 2, 4)
    ]
    looks[2] |= change
    looks.append(looks[2] | {"at": looks[2]["at"] + 2, "requests": 14})
    _, second, third, fourth = page.evaluate(MOMENTS, looks)
    assert second["requests"] == 1
    assert third is None
    assert fourth["requests"] == 5
    # the gap itself stays in what is kept, so that no line is drawn across it
    assert fourth["kept"] == 3


def test_only_the_last_minutes_are_kept(page: Page) -> None:
    """Figures are told from ten seconds, and moments older than five minutes are let go."""
    looks = [{"at": 2 * n, "requests": n * n, "counts": [0, 0, 0], "sum": 0} for n in range(400)]
    told = page.evaluate(MOMENTS, looks)
    assert told[-1]["since"] == 10
    assert told[-1]["requests"] == (399**2 - 394**2) / 10
    assert told[-1]["kept"] == 151


def test_traffic_is_shown(dashboard: Opener, served: Server) -> None:
    """Tiles, charts and tables tell of requests and refusals, of all models and of the chosen one."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        live = page.locator("#live")
        live.scroll_into_view_if_needed()
        rate = live.locator(".tile", has_text="requests per second").locator(".figure")
        expect(rate).to_have_text("0")
        ask(served)
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


def test_names_of_strangers_are_names(dashboard: Opener, gallery: Server) -> None:
    """A model that is called like markup is shown by that name."""
    from playwright.sync_api import expect

    with dashboard(gallery.url) as page:
        page.evaluate(
            "async (name) => (await import('/dashboard/state/store.js'))"
            ".publish('choose model', {name, version: '1'})",
            MARKUP,
        )
        expect(page.locator("#live").get_by_role("button", name=f"{MARKUP}/1")).to_be_visible()
        expect(page.locator("#live")).to_contain_text("no gate profile to compare with")
        assert page.title() != "owned"


@pytest.mark.thorough
def test_drift_is_told_of_noise(dashboard: Opener) -> None:
    """First it says how many rows are wanted; after noise that the gates are far from how they were."""
    from playwright.sync_api import expect

    with serving("--no-access-log") as server, dashboard(server.url) as page:
        settled(page)
        drift = page.locator("#live .drift")
        drift.scroll_into_view_if_needed()
        expect(drift).to_contain_text("of 200 rows so far")
        noise(server, rows=400)
        expect(drift.get_by_text("alarm: far from export")).to_be_visible()
        told = server.get("/v2/models/digits-10/gates/drift").json()
        expect(drift).to_contain_text(f"moved most is {told['worst']}")
        expect(drift.get_by_text("watch", exact=True)).to_be_visible()
        drift.locator(".titled", has_text="Drift by layer").get_by_text("Data table").click()
        expect(drift.get_by_role("row")).to_have_count(1 + len(told["layers"]))


@pytest.mark.thorough
def test_what_cannot_drift_says_so(dashboard: Opener, gallery: Server) -> None:
    """A model without gates has none that could drift."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=bare/1") as page:
        expect(page.locator("#live .drift")).to_contain_text("no gates to drift")
        assert not [url for url in page.record.requests if url.endswith("/bare/versions/1/gates/drift")]


@pytest.mark.thorough
def test_an_answer_that_comes_late_is_dropped(dashboard: Opener, gallery: Server) -> None:
    """What is told of a model's drift after another has been chosen is not shown as that one's."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=digits-10/1") as page:
        settled(page)
        drift = page.locator("#live .drift")
        told = gallery.get("/v2/models/digits-10/gates/drift").json() | {"reason": "of another model"}
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
            told,
        )
        with page.expect_response("**/digits-10/versions/1/gates/drift"):
            drift.scroll_into_view_if_needed()
        page.evaluate("location.hash = '#model=bare/1'")
        expect(drift).to_contain_text("no gates to drift")
        page.wait_for_timeout(4000)
        expect(drift).to_contain_text("no gates to drift")


@pytest.mark.thorough
def test_it_asks_seldom(dashboard: Opener, served: Server) -> None:
    """A look every two seconds, and drift only where it is in sight."""
    with dashboard(served.url, height=500) as page:
        settled(page)
        before = len(page.record.requests)
        page.wait_for_timeout(8000)
        looks = sum(url.endswith("/metrics") for url in page.record.requests[before:])
        assert 1 <= looks <= 4, page.record.wrongs
        assert not [url for url in page.record.requests if url.endswith("/drift")]
        with page.expect_request("**/gates/drift"):
            page.locator("#live .drift").scroll_into_view_if_needed()


@pytest.mark.thorough
def test_a_server_with_much_to_tell_is_asked_less(dashboard: Opener, served: Server) -> None:
    """Where an answer takes long the page waits longer for the next."""
    with dashboard(served.url) as page:

        def slow(route: Route) -> None:
            page.wait_for_timeout(300)
            route.continue_()

        page.route("**/metrics", slow)
        page.wait_for_timeout(4000)
        before = len(page.record.requests)
        page.wait_for_timeout(9000)
        assert sum(url.endswith("/metrics") for url in page.record.requests[before:]) <= 2


def test_the_server_gone_and_back(dashboard: Opener, served: Server) -> None:
    """The last figures stay while it is away, marked as such, and it goes on by itself."""
    from playwright.sync_api import expect

    with dashboard(served.url, wanted="ERR_FAILED") as page:
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


def test_a_server_that_does_not_tell(dashboard: Opener, served: Server) -> None:
    """What it answers instead of figures is shown as it stands."""
    from playwright.sync_api import expect

    with dashboard(served.url, wanted="403") as page:
        page.route(
            "**/metrics", lambda route: route.fulfill(status=403, json={"error": "not for <b>you</b>"})
        )
        expect(page.locator("#live").get_by_role("status").first).to_contain_text("not for <b>you</b>")


def samples(page: Page, text: str) -> list[Any]:
    read = page.evaluate(SAMPLES, text)
    assert isinstance(read, list)
    return read


def ask(server: Server) -> None:
    """A few requests that are answered, and one that is refused."""
    for _ in range(20):
        assert server.post("/v2/models/digits-10/infer", {"inputs": [IMAGE]}).status_code == 200
    assert server.post("/v2/models/digits-10/infer", b"{").status_code == 400


def noise(server: Server, rows: int) -> None:
    """Pictures that no digit looks like, until drift has been told from so many of them."""
    image = {**IMAGE, "shape": [128, 1, 8, 8], "data": [16.0, 0.0] * (128 * 32)}
    until = time.monotonic() + 60
    while server.get("/v2/models/digits-10/gates/drift").json()["rows"] < rows:
        assert time.monotonic() < until
        server.post("/v2/models/digits-10/infer", {"inputs": [image]})
        time.sleep(0.1)
