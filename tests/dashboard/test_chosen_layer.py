"""One layer is looked at: by the lever, by the details, and by a link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import OpenDashboard
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


def test_the_details_follow_the_lever(page: Page) -> None:
    """And the lever follows the list of layers."""
    from playwright.sync_api import expect

    lever, title = page.locator(".lever-name"), page.get_by_role("heading", name="Layer 7", exact=True)
    page.get_by_role("button", name="Close layer 7").click()
    expect(lever).to_contain_text("Lever of layer 7")
    expect(title).to_be_visible()
    page.locator("#row .line").nth(4).click()
    expect(lever).to_contain_text("Lever of layer 4")
    expect(title).to_have_count(0)
    expect(page.get_by_role("heading", name="Layer 4", exact=True)).to_be_visible()


def test_a_link_keeps_the_layer(page: Page) -> None:
    """Also one whose lever was not touched."""
    from playwright.sync_api import expect

    page.get_by_role("button", name="sample: 3").click()
    wait_for_prediction(page, "sample: 3")
    page.locator("#row .line").nth(9).click()
    expect(page.locator(".lever-name")).to_contain_text("Lever of layer 9")
    page.wait_for_url("**&layer=9")
    page.reload()
    wait_for_prediction(page, "sample: 3")
    expect(page.locator(".lever-name")).to_contain_text("Lever of layer 9")
