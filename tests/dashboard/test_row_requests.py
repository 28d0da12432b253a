"""Requests for the current row: limited rate, latest row only, and as much detail as the server allows."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import OpenDashboard, hold_first, wait_until
from tests.support.dashboard_try import CURRENT_READING, CURRENT_ROW, OPENING_SAMPLE, wait_for_prediction
from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

PUT = """async (row) => (await import("/dashboard/state/store.js")).publish("row", row)"""
MOST_PER_SECOND = 6.2


def test_requests_are_rate_limited(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """About six requests per second are sent, and the last row is always answered."""
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        (row,) = page.evaluate(CURRENT_ROW)
        tensor = {"name": "x", **row}
        requests = page.log.requests  # type: ignore[attr-defined]
        before, start, number = len(requests), time.monotonic(), 0
        while time.monotonic() - start < 3:
            number += 1
            page.evaluate(PUT, {"title": f"row {number}", "inputs": [tensor]})
        lasted = time.monotonic() - start
        wait_for_prediction(page, f"row {number}")
        gates = [url for url in requests[before:] if url.endswith("/gates")]
        assert number > 2 * len(gates)
        # the last request may be sent after the end
        assert 1 <= len(gates) - 1 <= MOST_PER_SECOND * lasted + 1


def test_an_outdated_response_is_ignored(dashboard: OpenDashboard, bundled_server: Server) -> None:
    held_routes: list[Route] = []
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.route("**/gates", lambda route: hold_first(held_routes, route))
        page.get_by_role("button", name="sample: 1").click()
        wait_until(page, lambda: held_routes)
        page.get_by_role("button", name="sample: 2").click()
        wait_for_prediction(page, "sample: 2")
        held_routes[0].continue_()
        page.wait_for_timeout(400)
        wait_for_prediction(page, "sample: 2")
        assert page.evaluate(CURRENT_READING)["title"] == "sample: 2"


def test_another_model_cancels_requests(dashboard: OpenDashboard, all_models_server: Server) -> None:
    held_routes: list[Route] = []
    with dashboard(all_models_server.url, path="/#model=digits-10/1") as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.route("**/digits-10/**/gates", lambda route: hold_first(held_routes, route))
        page.get_by_role("button", name="sample: 1").click()
        wait_until(page, lambda: held_routes)
        page.evaluate("location.hash = '#model=letters/1'")
        page.get_by_role("textbox", name="Text").fill("abc")
        wait_for_prediction(page, "text")
        for route in held_routes:
            route.continue_()
        page.wait_for_timeout(400)
        wait_for_prediction(page, "text")
        assert len(held_routes) == 1


@pytest.mark.parametrize(
    ("max_gates", "tensors", "message"),
    [
        (5000, 10, "The layer outputs are too large"),
        (2000, 0, "The gates of this row are too large"),
    ],
)
def test_the_prediction_is_shown_if_gates_are_too_large(
    dashboard: OpenDashboard, max_gates: int, tensors: int, message: str
) -> None:
    """The page shows as many gates as the server sends, what is missing, and always the prediction."""
    from playwright.sync_api import expect

    with (
        serving("--max-gates", max_gates, "--no-access-log") as server,
        dashboard(server.url, allowed="413") as page,
    ):
        wait_for_prediction(page, OPENING_SAMPLE)
        expect(page.locator("#try .headline .label")).to_have_text("2")
        reading = page.evaluate(CURRENT_READING)
        assert message in reading["missing"]
        assert len(reading["tensors"]) == tensors
        page.get_by_role("button", name="sample: 1").click()
        wait_for_prediction(page, "sample: 1")
        # what the server refused once is not requested again
        queries = [url for url in page.log.requests if re.search("/(gates|infer)$", url)]  # type: ignore[attr-defined]
        assert len(queries) == {10: 3, 0: 4}[tensors]


def test_the_prediction_is_shown_if_gates_are_nan(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """If gates are NaN the service refuses them; the page passes its message on."""
    refused = {"status": 422, "content_type": "application/json", "body": '{"error": "layer03 is NaN"}'}
    with dashboard(bundled_server.url, allowed="422") as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.route("**/gates", lambda route: route.fulfill(**refused))
        page.get_by_role("button", name="sample: 6").click()
        wait_for_prediction(page, "sample: 6")
        reading = page.evaluate(CURRENT_READING)
        assert (reading["missing"], reading["gates"]) == ("layer03 is NaN", 0)
        page.unroute("**/gates")
        page.get_by_role("button", name="sample: 1").click()
        wait_for_prediction(page, "sample: 1")
        assert page.evaluate(CURRENT_READING)["missing"] is None


def test_an_error_shows_the_message_of_the_server(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    refused = {"status": 503, "content_type": "application/json", "body": '{"error": "too many wait"}'}
    with dashboard(bundled_server.url, allowed="503") as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.route("**/gates", lambda route: route.fulfill(**refused))
        page.get_by_role("button", name="sample: 6").click()
        expect(page.locator("#try").get_by_role("alert").filter(has_text="too many wait")).to_be_visible()
        expect(page.locator("#try .headline")).to_have_count(0)
        assert page.evaluate(CURRENT_READING) is None
        page.unroute("**/gates")
        page.get_by_role("button", name="Try again").click()
        wait_for_prediction(page, "sample: 6")


def test_the_prediction_stays_while_the_server_is_down(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """When the server is back, the page sends the current row by itself."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="ERR_CONNECTION_REFUSED") as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.route("**/v2/**", lambda route: route.abort("connectionrefused"))
        page.route("**/traffic?*", lambda route: route.abort("connectionrefused"))
        page.get_by_role("button", name="sample: 9").click()
        expect(page.locator("#try").get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
        wait_for_prediction(page, OPENING_SAMPLE)
        page.unroute("**/v2/**")
        page.unroute("**/traffic?*")
        wait_for_prediction(page, "sample: 9")
