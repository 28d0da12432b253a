"""API key, theme, server state and number formats."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import API_KEY, OpenDashboard, axe_violations, open_tab, wait_until_idle
from tests.support.live_server import Server, free_port, serving
from tests.support.tiny_repository import put_model

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

CONNECTION_ERRORS = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED"
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"


def theme(page: Page) -> str:
    return str(page.evaluate("() => document.documentElement.dataset.theme"))


def enter(page: Page, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")


def test_without_a_key_the_page_names_the_problem(dashboard: OpenDashboard, locked_server: Server) -> None:
    """After the dialog is closed there is a button for it, and the page sends no more requests."""
    from playwright.sync_api import expect

    with dashboard(locked_server.url, allowed="401") as page:
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).not_to_be_visible()
        expect(page.get_by_role("banner")).to_contain_text("key required")
        expect(page.locator("#try")).to_contain_text("requires an API key to use its models")
        open_tab(page, "Models")
        expect(page.locator("#models")).to_contain_text("requires an API key to list its models")
        open_tab(page, "Try it")
        wait_until_idle(page)
        before = len(page.log.requests)
        page.wait_for_timeout(12_000)
        assert page.log.requests[before:] == []
        expect(page.get_by_role("dialog")).not_to_be_visible()
        page.get_by_role("button", name="Enter a key").click()
        enter(page, API_KEY)
        expect(page.locator("#models")).to_contain_text("digits-10")


def test_axe_finds_nothing_serious_when_a_key_is_required(
    dashboard: OpenDashboard, locked_server: Server
) -> None:
    with dashboard(locked_server.url, allowed="401") as page:
        page.get_by_role("dialog").wait_for()
        assert axe_violations(page) == []
        page.keyboard.press("Escape")
        assert axe_violations(page) == []


def test_a_key_with_invalid_characters_is_refused(dashboard: OpenDashboard, locked_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(locked_server.url, allowed="401") as page:
        enter(page, "cl\u00e9 \u2192")
        expect(page.get_by_role("dialog")).to_contain_text("ASCII characters without spaces")
        enter(page, API_KEY)
        expect(page.locator("#models")).to_contain_text("digits-10")


@pytest.mark.parametrize("kept", [True, False])
def test_a_key_is_remembered_only_if_asked(
    dashboard: OpenDashboard, locked_server: Server, kept: bool
) -> None:
    """If the checkbox is set, the key survives a reload of the tab."""
    from playwright.sync_api import expect

    with dashboard(locked_server.url, allowed="401") as page:
        page.get_by_label("Remember the key in this tab").set_checked(kept)
        enter(page, API_KEY)
        expect(page.locator("#models")).to_contain_text("digits-10")
        page.reload()
        expect(page.get_by_role("dialog")).to_be_visible(visible=not kept)
        if kept:
            expect(page.locator("#models")).to_contain_text("digits-10")


def test_a_key_can_be_forgotten(dashboard: OpenDashboard, locked_server: Server) -> None:
    """Later requests do not send it."""
    from playwright.sync_api import expect

    with dashboard(locked_server.url, key="unused", allowed="401") as page:
        enter(page, API_KEY)
        expect(page.locator("#models")).to_contain_text("digits-10")
        page.get_by_role("button", name="Key", exact=True).click()
        with page.expect_request("**/v2/models") as request:
            page.get_by_role("button", name="Forget key").click()
        assert "x-api-key" not in request.value.headers
        expect(page.get_by_role("dialog")).to_contain_text("requires an API key")
        assert page.evaluate("() => sessionStorage.getItem('turnpike-key')") is None


def test_a_server_without_keys_shows_no_button_for_one(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        expect(page.get_by_role("banner")).to_contain_text("up")
        expect(page.get_by_role("button", name="Key", exact=True)).not_to_be_visible()


def test_the_page_works_without_browser_storage(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The browser may block storage: then no choice is stored, and everything else works."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        page.add_init_script("""
          for (const name of ["localStorage", "sessionStorage"]) {
            Object.defineProperty(window, name, { get() { throw new DOMException("no", "SecurityError"); } });
          }
        """)
        page.reload()
        expect(page.locator("#models")).to_contain_text("Proved In exact arithmetic")
        page.get_by_role("button", name="Dark theme").click()


@pytest.mark.thorough
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_follows_the_system_until_one_is_chosen(
    dashboard: OpenDashboard, bundled_server: Server, dark: bool
) -> None:
    """A choice survives a reload; choosing the system's theme follows the system again."""
    system, other = ("dark", "light") if dark else ("light", "dark")
    with dashboard(bundled_server.url, dark=dark) as page:
        assert theme(page) == system
        page.get_by_role("button", name=f"{other.title()} theme").click()
        assert theme(page) == other
        page.reload()
        assert theme(page) == other
        page.get_by_role("button", name=f"{system.title()} theme").click()
        page.emulate_media(color_scheme=other)  # type: ignore[arg-type]
        page.wait_for_function("(wanted) => document.documentElement.dataset.theme === wanted", arg=other)


def test_a_dark_page_does_not_flash_white(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url, dark=True, allowed="main.js") as page:
        page.route("**/main.js", lambda route: route.abort())
        page.reload()
        assert theme(page) == "dark"
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert max(int(part) for part in ground.removeprefix("rgb(").removesuffix(")").split(",")) < 40


def test_printing_uses_the_light_theme(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url, dark=True) as page:
        page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert theme(page) == "light"
        page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert theme(page) == "dark"


@pytest.mark.thorough
def test_states_are_visible_with_forced_colours(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """With forced colours, pressed, checked and likely items are still distinguishable."""
    ground = "node => getComputedStyle(node).backgroundColor"
    with dashboard(bundled_server.url, forced_colors="active") as page:
        wait_until_idle(page)
        pressed, other = page.locator("#try .segmented button").all()
        assert pressed.evaluate(ground) != other.evaluate(ground)
        checked, closed = page.locator("#row .state-switch").first.locator("input + span").all()[:2]
        assert checked.evaluate(ground) != closed.evaluate(ground)
        bar = page.locator("#try .share-bar").first
        assert bar.evaluate(ground) != page.locator("#try").evaluate(ground)


@pytest.mark.thorough
def test_all_data_is_reloaded_after_an_outage(dashboard: OpenDashboard, tmp_path: Path) -> None:
    """While the server is down the page keeps its content; then it reloads everything."""
    from playwright.sync_api import expect

    port = free_port()
    put_model(tmp_path, "net", 1)
    options = ("--models", tmp_path, "--port", port, "--no-access-log")
    with ExitStack() as opened:
        with serving(*options) as server:
            page = opened.enter_context(
                dashboard(server.url, tab="models", allowed=f"{CONNECTION_ERRORS}|503")
            )
            expect(page.locator("#models .about")).to_contain_text("Proved In exact arithmetic")
            before = server.get("/v2/models/net/certificate").json()["digest"]
        expect(page.locator("#notice")).to_contain_text("The server does not answer", timeout=30_000)
        expect(page.locator("#notice")).to_contain_text("Unreachable for")
        expect(page.locator("#models .about")).to_contain_text("Proved In exact arithmetic")
        page.get_by_role("button", name="Retry now").click()
        expect(page.locator("#notice")).to_contain_text("next attempt in")
        troubles = axe_violations(page)
        other = put_model(tmp_path, "other", 7)
        other.path.replace(tmp_path / "net" / "1" / "model.onnx")
        with serving(*options) as server:
            after = server.get("/v2/models/net/certificate").json()["digest"]
            assert after != before
            expect(page.locator("#notice")).to_be_empty(timeout=30_000)
            page.get_by_text("Full certificate").click()
            expect(page.locator("#models").get_by_text(after)).to_be_visible()
        assert troubles == []


def test_a_503_from_a_proxy_counts_as_down(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A 503 for the index can only come from a proxy without a server behind it."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="503") as page:
        expect(page.get_by_role("banner")).to_contain_text("up")
        body = json.dumps({"error": "no replica is ready"})
        page.route(re.compile("/v2/|/traffic"), lambda route: route.fulfill(status=503, body=body))
        page.evaluate("async () => (await import('/dashboard/state/store.js')).publish('refresh', true)")
        expect(page.locator("#notice")).to_contain_text("The server does not answer")


@pytest.mark.thorough
def test_a_server_that_hangs_counts_as_down(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A server that accepts requests but does not answer counts as down after a timeout."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="503") as page:
        expect(page.get_by_role("banner")).to_contain_text("up")
        page.route("**/traffic?*", lambda route: route.fulfill(status=503))
        page.route("**/v2/**", lambda route: None)
        page.evaluate("async () => (await import('/dashboard/state/store.js')).publish('refresh', true)")
        expect(page.locator("#notice")).to_contain_text("The server does not answer")
