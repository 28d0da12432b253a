"""The page as a whole: loads without problems, follows its policy, fits every width, notices outages."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.browser import (
    API_KEY,
    TABS,
    OpenDashboard,
    advance_clock,
    axe_violations,
    model_path,
    open_tab,
    wait_until,
    wait_until_idle,
)
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server, free_port, serving
from tests.support.prefix_proxy import proxy_with_prefix

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def thorough(*values: object) -> Any:
    """A case that only runs with the thorough tests."""
    return pytest.param(*values, marks=pytest.mark.thorough)


MODELS = ("digits-10", "pictures", "steps", "letters", "own", MARKUP, "bare")
# the browser's errors when no server answers
CONNECTION_ERRORS = (
    "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED|503"
)

# elements reachable by keyboard; in a group of radio buttons one is reached, and arrow keys reach the others
FOCUSABLE = """() => {
  const all = [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0'], [contenteditable=true]")];
  const groups = new Set();
  return all.filter((node) => {
    if (node.disabled || node.tabIndex < 0 || node.closest("[inert], dialog:not([open])")) return false;
    if (!node.checkVisibility({ visibilityProperty: true })) return false;
    if (node.type !== "radio") return true;
    // Tab stops at the checked button of a group, and at the first if none is checked
    const checked = all.find((other) => other.name === node.name && other.checked);
    const first = !groups.has(node.name);
    groups.add(node.name);
    return checked ? node === checked : first;
  });
}"""
# whether the focused element, or one that shows it in its place, has an outline
FOCUS_IS_VISIBLE = """() => {
  const node = document.activeElement;
  const label = node.closest("label");
  const around = [node, label, ...(node.labels ?? []), node.parentElement, node.nextElementSibling];
  return around.some((one) => {
    if (!one) return false;
    const style = getComputedStyle(one);
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return outlined || style.boxShadow !== "none";
  });
}"""
DESCRIPTION = """(node) => `${node.localName} ${node.type ?? ""} ` +
  `${node.ariaLabel ?? node.name ?? ""} ${node.textContent.trim().slice(0, 40)}`"""


def scroll_through(page: Page) -> None:
    """Scroll to the end and back, so that everything that is drawn on demand is drawn."""
    wait_until_idle(page)
    page.evaluate("""async () => {
      for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight / 2) {
        scrollTo({ top: y, behavior: "instant" });
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }""")
    wait_until_idle(page)
    page.evaluate("() => scrollTo({ top: 0, behavior: 'instant' })")


def overflowing(page: Page) -> list[str]:
    """Elements wider than the window, if the page can be scrolled sideways."""
    return page.evaluate("""() => {
      const wide = document.documentElement.clientWidth;
      if (document.scrollingElement.scrollWidth <= wide) return [];
      return [...document.querySelectorAll("body *")]
        .filter((node) => node.getBoundingClientRect().right > wide + 1)
        .map((node) => `${node.localName}.${node.className} ${node.id}`);
    }""")


def test_the_page_opens_without_problems(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        headings = ("Try it", "Gates of this row"), ("Models",), ("Gates of the model",), ("Live",)
        for tab, names in zip(TABS, headings, strict=True):
            open_tab(page, tab)
            shown = page.locator("main > section > header").get_by_role("heading")
            expect(shown).to_have_text(names)
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        wait_until_idle(page)
        assert len({urlsplit(url).path for url in page.log.requests}) > 10


def test_injected_code_does_not_run(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The Content-Security-Policy blocks injected code in every form."""
    with dashboard(bundled_server.url, allowed="Content Security Policy|violates the following") as page:
        page.evaluate("""() => {
          const made = (tag, change) => Object.assign(document.createElement(tag), change);
          document.body.append(
            made("script", { textContent: "window.owned = 'script'" }),
            made("script", { src: "data:text/javascript,window.owned='data'" }),
          );
          const holder = made("div", {});
          holder.innerHTML = "<img src=data:, onerror=\\"window.owned='handler'\\">" +
            "<p id=styled style='color: rgb(1, 2, 3)'>text</p>" +
            "<iframe srcdoc=\\"<script>parent.owned = 'frame'</script>\\"></iframe>" +
            "<form id=sent action=/v2><button></button></form>";
          document.body.append(holder);
          document.getElementById("sent").requestSubmit();
          try { setTimeout("window.owned = 'timer'"); } catch { /* as good */ }
        }""")
        wait_until(page, lambda: len(page.log.problems) >= 5)
        page.wait_for_timeout(500)
        assert page.evaluate("() => window.owned") is None
        assert (
            page.evaluate("() => getComputedStyle(document.getElementById('styled')).color") != "rgb(1, 2, 3)"
        )
        assert urlsplit(page.url).path == "/"


def test_other_hosts_are_not_contacted(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The policy blocks data and images from other hosts."""
    with serving("--no-access-log") as other, dashboard(bundled_server.url, allowed=".") as page:
        script = """async (url) => {
          const picture = new Image();
          const lost = new Promise((resolve) => { picture.onerror = () => resolve("lost"); });
          picture.src = `${url}/docs/favicon.png`;
          const fetched = await fetch(`${url}/v2`, { mode: "no-cors" }).then(() => "got", () => "lost");
          return [fetched, await lost];
        }"""
        assert page.evaluate(script, other.url) == ["lost", "lost"]
        page.log.requests[:] = [url for url in page.log.requests if not url.startswith(other.url)]


def test_browser_problems_fail_a_test(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The fixture fails tests on console messages, exceptions, failed requests and other hosts."""
    scripts = {
        "console.warn('careful')": "careful",
        "setTimeout(() => { throw new Error('thrown'); })": "thrown",
        "fetch('/nowhere')": "404",
        "fetch('http://elsewhere.example/').catch(() => {})": "elsewhere",
    }
    for script, problem in scripts.items():
        with pytest.raises(AssertionError, match=problem):
            run_script(dashboard, bundled_server.url, script)


def run_script(dashboard: OpenDashboard, url: str, script: str) -> None:
    """Run a script in the page and wait until the browser has reported a problem."""
    with dashboard(url) as page:
        page.evaluate(f"() => {{ {script} }}")
        wait_until(page, lambda: page.log.problems)


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_an_idle_page_sends_few_requests(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Less than one request per second, and none while the tab is hidden."""
    with dashboard(bundled_server.url, tab="live", width=1600, height=8000, clock=True) as page:
        wait_until_idle(page)
        before = len(page.log.requests)
        page.wait_for_timeout(15_000)
        urls = page.log.requests[before:]
        assert 0 < len(urls) < 15, urls
        hide = """(state) => {
          Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
          Object.defineProperty(document, "hidden", { value: state === "hidden", configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
        page.evaluate(hide, "hidden")
        page.wait_for_timeout(1_000)
        before = len(page.log.requests)
        page.clock.run_for(61_000)
        page.wait_for_timeout(500)
        assert page.log.requests[before:] == []
        with (
            page.expect_request("**/repository/index"),
            page.expect_request("**/traffic?*"),
            page.expect_request("**/gates/drift"),
        ):
            page.evaluate(hide, "visible")


@pytest.mark.thorough
@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model_fits_a_phone(
    dashboard: OpenDashboard, all_models_server: Server, model: str
) -> None:
    from playwright.sync_api import expect

    with dashboard(
        all_models_server.url, width=360, height=740, path=model_path(model), has_touch=True
    ) as page:
        expect(page.get_by_role("link", name=f"Chosen model: {model}/1")).to_be_visible()
        for tab in TABS:
            open_tab(page, tab)
            scroll_through(page)
            assert overflowing(page) == [], tab
            assert axe_violations(page) == [], tab


@pytest.mark.parametrize("width", [390, thorough(768), thorough(1280), 3840])
def test_the_page_fits_every_window(dashboard: OpenDashboard, bundled_server: Server, width: int) -> None:
    with dashboard(bundled_server.url, width=width) as page:
        for tab in TABS:
            open_tab(page, tab)
            scroll_through(page)
            assert overflowing(page) == [], tab


@pytest.mark.parametrize(
    ("width", "dark"), [(390, True), (1280, False), thorough(390, False), thorough(1280, True)]
)
def test_axe_finds_nothing(dashboard: OpenDashboard, bundled_server: Server, width: int, dark: bool) -> None:
    with dashboard(bundled_server.url, width=width, dark=dark) as page:
        assert page.evaluate("() => document.documentElement.dataset.theme") == ("dark" if dark else "light")
        for tab in TABS:
            open_tab(page, tab)
            scroll_through(page)
            assert axe_violations(page) == [], tab


@pytest.mark.thorough
def test_axe_detects_planted_problems(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The check above finds a button without a name, too little contrast, and a heading that skips levels."""
    with dashboard(bundled_server.url) as page:
        page.evaluate("""() => {
          const pale = document.createElement("p");
          pale.textContent = "pale";
          pale.style.setProperty("color", "#777");
          pale.style.setProperty("background", "#888");
          const deep = document.createElement("h6");
          deep.textContent = "deep";
          document.querySelector("main").append(document.createElement("button"), pale, deep);
        }""")
        violations = " ".join(axe_violations(page))
        assert "button-name" in violations
        assert "color-contrast" in violations
        assert "heading-order" in violations


def test_model_names_are_shown_as_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path(MARKUP), tab="models") as page:
        expect(page.get_by_role("main").get_by_text(MARKUP).first).to_be_visible()
        wait_until_idle(page)
        page.goto(all_models_server.url + model_path("pictures"))
        page.reload()
        wait_until_idle(page)
        # names of classes appear in text, charts and tables
        for tab in ("Models", "Gates"):
            open_tab(page, tab)
            wait_until_idle(page)
            assert LABELS[1] in page.locator("main").inner_text(), tab
        assert page.title() != "owned"
        assert page.evaluate("() => document.querySelector('img[src=x], main script')") is None


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("width", "tab"),
    [(1280, "try"), (1280, "models"), *(thorough(390, tab) for tab in ("try", "models", "gates", "live"))],
)
def test_the_keyboard_reaches_every_control(
    dashboard: OpenDashboard, bundled_server: Server, width: int, tab: str
) -> None:
    """The tab key reaches every control, and each shows that it has the focus."""
    with dashboard(bundled_server.url, tab=tab, width=width, reduced_motion="reduce") as page:
        scroll_through(page)
        page.evaluate("() => { window.reached = new WeakSet(); }")
        expected = page.evaluate(f"() => ({FOCUSABLE})().length")
        assert expected > 8
        unseen = []
        for _ in range(2 * expected):
            page.keyboard.press("Tab")
            if page.evaluate("() => document.activeElement === document.body"):
                break
            page.evaluate("() => { window.reached.add(document.activeElement); }")
            if not page.evaluate(FOCUS_IS_VISIBLE):
                unseen.append(page.evaluate(f"() => ({DESCRIPTION})(document.activeElement)"))
        else:
            pytest.fail("the tab key never came to the end of the page")
        assert unseen == []
        missed = page.evaluate(
            f"() => ({FOCUSABLE})().filter((node) => !window.reached.has(node)).map({DESCRIPTION})"
        )
        assert missed == []


def test_the_reference_page_sends_a_request(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Under the policy of the dashboard, which the browser would complain about."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, path="/docs") as page:
        infer = page.locator(".opblock").filter(has_text="/v2/models/{model}/infer")
        infer.click()
        infer.get_by_role("button", name="Try it out").click()
        infer.get_by_placeholder("model").fill("digits-10")
        infer.get_by_role("button", name="Execute").click()
        expect(infer.locator(".live-responses-table .response .response-col_status")).to_have_text("200")


def test_polling_keeps_the_focus(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Polling does not replace elements that the user is using."""
    with dashboard(bundled_server.url, clock=True) as page:
        wait_until_idle(page)
        buttons = page.get_by_role("main").get_by_role("button")
        buttons.first.focus()
        page.evaluate("() => { window.held = document.activeElement; }")
        before = len(page.log.requests)
        advance_clock(page, 12)
        polled = {urlsplit(url).path.rpartition("/")[2] for url in page.log.requests[before:]}
        assert polled >= {"index", "traffic"}
        assert page.evaluate("() => document.activeElement === window.held && window.held.isConnected")


def test_the_page_works_behind_a_proxy(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """All URLs of the page are relative."""
    from playwright.sync_api import expect

    prefix = "/models/of/mine"
    with (
        proxy_with_prefix(bundled_server.url, prefix) as url,
        dashboard(url.removesuffix(prefix), path=f"{prefix}/") as page,
    ):
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        wait_until_idle(page)
        assert all(urlsplit(url).path.startswith(f"{prefix}/") for url in page.log.requests)


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_an_outage_is_shown_until_it_ends(dashboard: OpenDashboard) -> None:
    from playwright.sync_api import expect

    port = free_port()
    with ExitStack() as windows:
        with serving("--no-access-log", "--port", port) as server:
            page = windows.enter_context(dashboard(server.url, allowed=CONNECTION_ERRORS))
            wait_until_idle(page)
            expect(page.locator("#notice")).to_be_empty()
        expect(page.locator("#notice")).not_to_be_empty(timeout=30_000)
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        assert axe_violations(page) == []
        before = len(page.log.requests)
        page.wait_for_timeout(10_000)
        assert len(page.log.requests) - before < 10
        with serving("--no-access-log", "--port", port):
            expect(page.locator("#notice")).to_be_empty(timeout=60_000)
            wait_until_idle(page)


def test_a_missing_key_opens_a_dialog(dashboard: OpenDashboard, locked_server: Server) -> None:
    """A wrong key is refused; the right one is kept as long as the tab, and only there."""
    from playwright.sync_api import expect

    with dashboard(locked_server.url, allowed="401") as page:
        field = page.locator("dialog[open] input[type=password]")
        expect(field).to_be_visible()
        assert axe_violations(page) == []
        field.fill("abracadabra")
        field.press("Enter")
        expect(
            page.locator("dialog[open]").get_by_text(re.compile("expected a key|another|wrong|not known"))
        ).to_be_visible()
        field.fill(API_KEY)
        field.press("Enter")
        expect(field).not_to_be_visible()
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        page.reload()
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        expect(field).not_to_be_visible()
        assert API_KEY not in page.url
        assert API_KEY not in page.evaluate("() => JSON.stringify({ ...localStorage }) + document.cookie")


@pytest.mark.thorough
def test_a_stored_key_is_used_without_a_dialog(dashboard: OpenDashboard, locked_server: Server) -> None:
    """No request is refused."""
    from playwright.sync_api import expect

    with dashboard(locked_server.url, key=API_KEY) as page:
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        wait_until_idle(page)
        expect(page.locator("dialog[open]")).to_have_count(0)


@pytest.mark.thorough
def test_reduced_motion_disables_animations(dashboard: OpenDashboard, bundled_server: Server) -> None:
    measure = "() => getComputedStyle(document.querySelector('.share-bar')).transitionDuration"
    with dashboard(bundled_server.url) as page:
        wait_until_idle(page)
        assert page.evaluate(measure) == "0.12s"
    with dashboard(bundled_server.url, reduced_motion="reduce") as page:
        wait_until_idle(page)
        assert page.evaluate(measure) == "0s"
        moving = "() => document.getAnimations().filter((one) => one.playState === 'running').length"
        assert page.evaluate(moving) == 0


def test_the_page_works_without_the_chart_library(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """If the chart library cannot be loaded, messages replace the charts and the rest works."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="404|plotly.js") as page:
        page.route(re.compile("plotly.js"), lambda route: route.fulfill(status=404, body=""))
        page.reload()
        expect(page.get_by_role("link", name="Chosen model: digits-10")).to_be_visible()
        expect(page.get_by_role("main").get_by_text("could not be drawn").first).to_be_visible()
