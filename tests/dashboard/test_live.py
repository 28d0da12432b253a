"""Section "Live": traffic of the last minutes, refused requests, and drift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import OpenDashboard, wait_until_idle
from tests.support.dashboard_live import IMAGE, send_noise
from tests.support.dashboard_repository import MARKUP
from tests.support.live_server import Server, serving
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

# text of a tile that shows a figure
FIGURE = re.compile(r"\d")
# adds answers of the server to a history, and returns after each of them what the history has


@pytest.fixture(scope="module")
def page(dashboard: OpenDashboard, bundled_server: Server) -> Iterator[Page]:
    """One page for the tests that only use its modules."""
    with dashboard(bundled_server.url, tab="live") as opened:
        yield opened


@pytest.mark.thorough
def test_a_reload_keeps_the_history(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The server has it: the first figures of the page are of the time before it was opened."""
    send_requests(bundled_server)
    wait_until(lambda: total_of(bundled_server) >= 20, 10)
    with dashboard(bundled_server.url, tab="live") as page:
        wait_until_idle(page)
        script = "async () => (await import('/dashboard/state/store.js')).current('live')?.moments.length"
        wait_until(lambda: page.evaluate(script), 5)
        before = page.evaluate(script)
        page.reload()
        wait_until(lambda: page.evaluate(script), 5)
        assert page.evaluate(script) >= before > 0


def test_traffic_is_shown(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, tab="live") as page:
        live = page.locator("#live")
        live.scroll_into_view_if_needed()
        rate = live.locator(".tile", has_text="requests per second").locator(".figure")
        refused = live.locator(".tile", has_text="refused per second").locator(".figure")
        expect(rate).to_have_text("0")
        expect(refused).to_have_text("0")

        def both_are_shown() -> bool:
            # the figures are those of the last seconds: a slow browser may miss a single burst
            send_requests(bundled_server)
            return rate.inner_text() != "0" and refused.inner_text() != "0"

        wait_until(both_are_shown)
        counted = live.locator(".titled", has_text="Refused requests since").get_by_role(
            "row", name="bad request"
        )
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
            ".current('live').figures('digits-10/1').map(({ p50_s }) => p50_s).filter(Boolean).at(0)"
        )
        assert known > 0


@pytest.mark.thorough
def test_model_names_are_shown_as_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="live") as page:
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

    with serving("--no-access-log") as server, dashboard(server.url, tab="live") as page:
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

    with dashboard(all_models_server.url, tab="live", path="/#model=bare/1") as page:
        expect(page.locator("#live .drift")).to_contain_text("no gates to drift")
        assert not [url for url in page.log.requests if url.endswith("/bare/versions/1/gates/drift")]


@pytest.mark.thorough
def test_a_late_drift_response_is_ignored(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="live", path="/#model=digits-10/1") as page:
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
    """Every three seconds, and drift only while it is visible."""
    with dashboard(bundled_server.url, tab="live", height=500) as page:
        wait_until_idle(page)
        before = len(page.log.requests)
        page.wait_for_timeout(8000)
        scrapes = sum("/traffic?" in url for url in page.log.requests[before:])
        assert 1 <= scrapes <= 4, page.log.problems
        assert not [url for url in page.log.requests if url.endswith("/drift")]
        with page.expect_request("**/gates/drift"):
            page.locator("#live .drift").scroll_into_view_if_needed()


def test_figures_stay_while_the_server_is_down(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, tab="live", allowed="ERR_FAILED") as page:
        live = page.locator("#live")
        rate = live.locator(".tile", has_text="requests per second").locator(".figure")
        expect(rate).to_have_text(FIGURE)
        page.route("**/traffic?*", lambda route: route.abort())
        expect(live.get_by_role("status").first).to_contain_text("cannot be reached")
        expect(rate).to_have_text(FIGURE)
        assert (
            page.evaluate("async () => (await import('/dashboard/state/store.js')).current('live')") is None
        )
        page.unroute("**/traffic?*")
        expect(live.get_by_role("status").first).to_be_hidden()
        assert (
            page.evaluate("async () => (await import('/dashboard/state/store.js')).current('live')")
            is not None
        )


def test_a_refused_traffic_request_shows_the_message(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, tab="live", allowed="403") as page:
        page.route(
            "**/traffic?*", lambda route: route.fulfill(status=403, json={"error": "not for <b>you</b>"})
        )
        expect(page.locator("#live").get_by_role("status").first).to_contain_text("not for <b>you</b>")


def total_of(server: Server) -> float:
    """How many requests are in the server's history."""
    moments = server.get("/traffic").json()["moments"]
    return sum(3 * moment["total"]["requests_per_s"] for moment in moments)


def send_requests(server: Server) -> None:
    """Send a few valid requests and an invalid one."""
    for _ in range(20):
        assert server.post("/v2/models/digits-10/infer", {"inputs": [IMAGE]}).status_code == 200
    assert server.post("/v2/models/digits-10/infer", b"{").status_code == 400
