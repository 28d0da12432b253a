"""The page begins with a row whose answer one layer flips, and points at this layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import OpenDashboard, axe_violations, wait_until_idle
from tests.support.dashboard_try import OPENING_SAMPLE, wait_for_prediction
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture
def page(dashboard: OpenDashboard, bundled_server: Server) -> Iterator[Page]:
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        yield page


def test_it_begins_with_a_row_that_a_layer_flips(page: Page) -> None:
    """The layer is framed and named, its lever is shown, and a press on it changes the answer as it says."""
    from playwright.sync_api import expect

    message = page.locator(".road-message")
    expect(message).to_contain_text("Press layer 2 to close it: it then transforms nothing")
    expect(page.locator(".layer-button.pointed")).to_have_attribute("aria-label", "Close layer 2")
    expect(page.locator(".lever-name")).to_contain_text("Lever of layer 2: as trained")
    expect(page.get_by_role("button", name=OPENING_SAMPLE)).to_have_attribute("aria-pressed", "true")
    assert axe_violations(page) == []
    page.locator(".layer-button.pointed").click()
    expect(page.locator(".road-answer.changed .answer")).to_have_text("8")
    # nothing is pointed at any more
    expect(page.locator(".layer-button.pointed")).to_have_count(0)
    expect(message).not_to_contain_text("Press layer 2")
    page.get_by_role("button", name="Reset layers").first.click()
    expect(page.locator(".layer-button.pointed")).to_have_count(1)


def test_a_row_that_no_layer_flips_leads_to_one(page: Page) -> None:
    """No layer is pointed at; a search that finds none offers the first row."""
    from playwright.sync_api import expect

    page.get_by_role("button", name="sample: 0").click()
    wait_for_prediction(page, "sample: 0")
    expect(page.locator(".layer-button.pointed")).to_have_count(0)
    expect(page.get_by_role("button", name="sample: 0")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name=OPENING_SAMPLE, exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )
    page.get_by_role("button", name="Which layer flips it?").click()
    message = page.locator(".road-message")
    expect(message).to_contain_text("No layer flips this answer alone.")
    expect(message).to_contain_text("Layer 2 flips another row:")
    wait_until_idle(page)
    assert axe_violations(page) == []
    message.get_by_role("button", name=f"Open {OPENING_SAMPLE}").click()
    wait_for_prediction(page, OPENING_SAMPLE)
    expect(page.locator(".layer-button.pointed")).to_have_count(1)


def test_the_page_begins_without_an_answer_about_layers(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """With the first sample, if the service does not tell which layer flips one."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, path="/docs", allowed="503") as page:
        page.route("**/lesion", lambda route: route.fulfill(status=503, json={"error": "no room"}))
        page.goto(bundled_server.url)
        wait_for_prediction(page, "sample: 0")
        expect(page.locator(".layer-button.pointed")).to_have_count(0)
        expect(page.locator(".road-message")).to_contain_text("Press a layer to close it")
