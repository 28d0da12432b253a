"""How the dashboard asks about the row in hand: at a pace, the newest alone, and as much as is given."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Opener
from tests.support.dashboard_try import READING, ROW, took
from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

PUT = """async (row) => (await import("/dashboard/state/store.js")).publish("row", row)"""
MOST_PER_SECOND = 6.2


def hold(held: list[Route], route: Route) -> None:
    """Keep the first request, and let the others go."""
    if held:
        route.continue_()
    else:
        held.append(route)


def test_a_drawing_is_asked_about_at_a_measured_pace(dashboard: Opener, served: Server) -> None:
    """However fast rows come, about six questions a second leave, and the last row is always answered."""
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        (row,) = page.evaluate(ROW)
        tensor = {"name": "x", **row}
        requests = page.record.requests  # type: ignore[attr-defined]
        asked, start, number = len(requests), time.monotonic(), 0
        while time.monotonic() - start < 3:
            number += 1
            page.evaluate(PUT, {"title": f"row {number}", "inputs": [tensor]})
        lasted = time.monotonic() - start
        took(page, f"row {number}")
        gates = [one for one in requests[asked:] if one.endswith("/gates")]
        assert number > 2 * len(gates)
        # the last one may come after the end
        assert 1 <= len(gates) - 1 <= MOST_PER_SECOND * lasted + 1


def test_an_answer_that_was_overtaken_is_dropped(dashboard: Opener, served: Server) -> None:
    """The first row's answer comes late, after the second's, and changes nothing."""
    held: list[Route] = []
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        page.route("**/gates", lambda route: hold(held, route))
        page.get_by_role("button", name="sample: 1").click()
        page.wait_for_timeout(400)
        assert len(held) == 1
        page.get_by_role("button", name="sample: 2").click()
        took(page, "sample: 2")
        held[0].continue_()
        page.wait_for_timeout(400)
        took(page, "sample: 2")
        assert page.evaluate(READING)["title"] == "sample: 2"


def test_another_model_drops_what_was_asked_of_the_one_before(dashboard: Opener, gallery: Server) -> None:
    """An answer of the first model that comes when the second is there is nobody's."""
    held: list[Route] = []
    with dashboard(gallery.url, path="/#model=digits-10/1") as page:
        took(page, "sample: 0")
        page.route("**/digits-10/**/gates", lambda route: hold(held, route))
        page.get_by_role("button", name="sample: 1").click()
        page.wait_for_timeout(400)
        page.evaluate("location.hash = '#model=letters/1'")
        page.get_by_role("textbox", name="Text").fill("abc")
        took(page, "text")
        for route in held:
            route.continue_()
        page.wait_for_timeout(400)
        took(page, "text")
        assert len(held) == 1


@pytest.mark.parametrize(
    ("most", "tensors", "said"),
    [
        (5000, 10, "The layer outputs are too large"),
        (2000, 0, "The gates of this row are too large"),
    ],
)
def test_gates_that_are_too_many_leave_the_prediction(
    dashboard: Opener, most: int, tensors: int, said: str
) -> None:
    """As much of them as the server gives, word of what is missing, and the prediction in any case."""
    from playwright.sync_api import expect

    with (
        serving("--max-gates", most, "--no-access-log") as server,
        dashboard(server.url, wanted="413") as page,
    ):
        took(page, "sample: 0")
        expect(page.locator("#try .headline .label")).to_have_text("0")
        reading = page.evaluate(READING)
        assert said in reading["missing"]
        assert len(reading["tensors"]) == tensors
        page.get_by_role("button", name="sample: 1").click()
        took(page, "sample: 1")
        # what is too much once is not asked for again
        asked = [one for one in page.record.requests if re.search("/(gates|infer)$", one)]  # type: ignore[attr-defined]
        assert len(asked) == {10: 3, 0: 4}[tensors]


def test_a_row_without_a_summary_has_its_prediction(dashboard: Opener, served: Server) -> None:
    """Where gates are NaN the service tells none of them, in a sentence that is handed on."""
    refused = {"status": 422, "content_type": "application/json", "body": '{"error": "layer03 is NaN"}'}
    with dashboard(served.url, wanted="422") as page:
        took(page, "sample: 0")
        page.route("**/gates", lambda route: route.fulfill(**refused))
        page.get_by_role("button", name="sample: 6").click()
        took(page, "sample: 6")
        reading = page.evaluate(READING)
        assert (reading["missing"], reading["gates"]) == ("layer03 is NaN", 0)
        page.unroute("**/gates")
        page.get_by_role("button", name="sample: 1").click()
        took(page, "sample: 1")
        assert page.evaluate(READING)["missing"] is None


def test_a_refusal_is_told_in_the_servers_words(dashboard: Opener, served: Server) -> None:
    """And the row may be asked about again."""
    from playwright.sync_api import expect

    refused = {"status": 503, "content_type": "application/json", "body": '{"error": "too many wait"}'}
    with dashboard(served.url, wanted="503") as page:
        took(page, "sample: 0")
        page.route("**/gates", lambda route: route.fulfill(**refused))
        page.get_by_role("button", name="sample: 6").click()
        expect(page.locator("#try").get_by_role("alert").filter(has_text="too many wait")).to_be_visible()
        expect(page.locator("#try .headline")).to_have_count(0)
        assert page.evaluate(READING) is None
        page.unroute("**/gates")
        page.get_by_role("button", name="Try again").click()
        took(page, "sample: 6")


def test_what_is_shown_stays_while_the_server_is_away(dashboard: Opener, served: Server) -> None:
    """The row is asked about by itself when the server is back."""
    from playwright.sync_api import expect

    with dashboard(served.url, wanted="ERR_CONNECTION_REFUSED") as page:
        took(page, "sample: 0")
        page.route("**/v2/**", lambda route: route.abort("connectionrefused"))
        page.route("**/metrics", lambda route: route.abort("connectionrefused"))
        page.get_by_role("button", name="sample: 9").click()
        expect(page.locator("#try").get_by_role("alert").filter(has_text="cannot be reached")).to_be_visible()
        took(page, "sample: 0")
        page.unroute("**/v2/**")
        page.unroute("**/metrics")
        took(page, "sample: 9")
