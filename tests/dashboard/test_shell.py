"""The page as a whole, in a real browser: quiet, confined, readable at every width, awake to its server."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.browser import Opener, passed, serious, settled
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server, serving
from tests.support.prefix_proxy import prefixing

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def further(*values: object) -> Any:
    """A case that is no part of what runs before each landing."""
    return pytest.param(*values, marks=pytest.mark.thorough)


MODELS = ("digits-10", "pictures", "steps", "letters", "own", MARKUP, "bare")
# how the browser says that nobody answers
NOBODY = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED|503"

# what can be reached by the keyboard: of a group of which one is reached, arrows reach the others
REACHABLE = """() => {
  const all = [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0'], [contenteditable=true]")];
  const groups = new Set();
  return all.filter((node) => {
    if (node.disabled || node.tabIndex < 0 || node.closest("[inert], dialog:not([open])")) return false;
    if (!node.checkVisibility({ visibilityProperty: true })) return false;
    if (node.type !== "radio") return true;
    const first = !groups.has(node.name);
    groups.add(node.name);
    return first;
  });
}"""
# the outline of what has the focus, or of what shows it in its place
SHOWN = """() => {
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
NAMED = """(node) => `${node.localName} ${node.type ?? ""} ` +
  `${node.ariaLabel ?? node.name ?? ""} ${node.textContent.trim().slice(0, 40)}`"""


def chosen(model: str) -> str:
    """The page's address that chooses a model."""
    return f"/#model={quote(model, safe='')}/1"


def through(page: Page) -> None:
    """Scroll to the end and back, so that all is drawn that is drawn when it is seen."""
    settled(page)
    page.evaluate("""async () => {
      for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight / 2) {
        scrollTo({ top: y, behavior: "instant" });
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }""")
    settled(page)
    page.evaluate("() => scrollTo({ top: 0, behavior: 'instant' })")


def sideways(page: Page) -> list[str]:
    """What sticks out of the window where the page can be moved sideways."""
    return page.evaluate("""() => {
      const wide = document.documentElement.clientWidth;
      if (document.scrollingElement.scrollWidth <= wide) return [];
      return [...document.querySelectorAll("body *")]
        .filter((node) => node.getBoundingClientRect().right > wide + 1)
        .map((node) => `${node.localName}.${node.className} ${node.id}`);
    }""")


def test_it_opens_in_peace(dashboard: Opener, served: Server) -> None:
    """The parts are there, the model is shown, and what it draws with comes from its own server."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        for name in ("Models", "Try it", "Gates of this row", "Gates of the model", "Live"):
            expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        settled(page)
        assert len({urlsplit(url).path for url in page.record.requests}) > 10


def test_code_of_strangers_does_not_run(dashboard: Opener, served: Server) -> None:
    """Should any get into the page, in whatever form, the policy stops it."""
    with dashboard(served.url, wanted="Content Security Policy|violates the following") as page:
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
        page.wait_for_timeout(500)
        assert page.evaluate("() => window.owned") is None
        assert (
            page.evaluate("() => getComputedStyle(document.getElementById('styled')).color") != "rgb(1, 2, 3)"
        )
        assert urlsplit(page.url).path == "/"
        assert len(page.record.wrongs) >= 5


def test_another_host_is_not_asked(dashboard: Opener, served: Server) -> None:
    """Neither for data nor for a picture, even where the page is told to."""
    with serving("--no-access-log") as other, dashboard(served.url, wanted=".") as page:
        asked = """async (url) => {
          const picture = new Image();
          const lost = new Promise((resolve) => { picture.onerror = () => resolve("lost"); });
          picture.src = `${url}/docs/favicon.png`;
          const fetched = await fetch(`${url}/v2`, { mode: "no-cors" }).then(() => "got", () => "lost");
          return [fetched, await lost];
        }"""
        assert page.evaluate(asked, other.url) == ["lost", "lost"]
        page.record.requests[:] = [url for url in page.record.requests if not url.startswith(other.url)]


def test_what_went_wrong_is_seen(dashboard: Opener, served: Server) -> None:
    """The checks of every test here fail where a page complains, throws, or asks another host."""
    wrongs = {
        "console.warn('careful')": "careful",
        "setTimeout(() => { throw new Error('thrown'); })": "thrown",
        "fetch('/nowhere')": "404",
        "fetch('http://elsewhere.example/').catch(() => {})": "elsewhere",
    }
    for script, said in wrongs.items():
        with pytest.raises(AssertionError, match=said):
            ran(dashboard, served.url, script)


def ran(dashboard: Opener, url: str, script: str) -> None:
    """Open the page and run a line in it."""
    with dashboard(url) as page:
        page.evaluate(f"() => {{ {script} }}")
        page.wait_for_timeout(300)


@pytest.mark.timeout(180)
def test_an_idle_page_is_cheap(dashboard: Opener, served: Server) -> None:
    """Below one request a second with all parts in sight, and none at all while nobody looks."""
    with dashboard(served.url, width=1600, height=8000, clock=True) as page:
        settled(page)
        before = len(page.record.requests)
        page.wait_for_timeout(15_000)
        asked = page.record.requests[before:]
        assert 0 < len(asked) < 15, asked
        hide = """(state) => {
          Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
          Object.defineProperty(document, "hidden", { value: state === "hidden", configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
        page.evaluate(hide, "hidden")
        page.wait_for_timeout(1_000)
        before = len(page.record.requests)
        page.clock.run_for(61_000)
        page.wait_for_timeout(500)
        assert page.record.requests[before:] == []
        with (
            page.expect_request("**/repository/index"),
            page.expect_request("**/metrics"),
            page.expect_request("**/gates/drift"),
        ):
            page.evaluate(hide, "visible")


@pytest.mark.thorough
@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model_fits_a_phone(dashboard: Opener, gallery: Server, model: str) -> None:
    """It is shown without a complaint of the page's or of axe's, and nothing is wider than a small window."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, width=360, height=740, path=chosen(model), has_touch=True) as page:
        expect(page.get_by_role("main").get_by_text(model).first).to_be_visible()
        through(page)
        assert sideways(page) == []
        assert serious(page) == []


@pytest.mark.parametrize("width", [390, further(768), further(1280), 3840])
def test_it_fits_every_window(dashboard: Opener, served: Server, width: int) -> None:
    """Nothing is cut off or has to be moved sideways."""
    with dashboard(served.url, width=width) as page:
        through(page)
        assert sideways(page) == []


@pytest.mark.parametrize(
    ("width", "dark"), [(390, True), (1280, False), further(390, False), further(1280, True)]
)
def test_axe_finds_nothing_serious(dashboard: Opener, served: Server, width: int, dark: bool) -> None:
    """Names, roles, contrasts and orders are right for those who do not see the page as it looks."""
    with dashboard(served.url, width=width, dark=dark) as page:
        through(page)
        assert page.evaluate("() => document.documentElement.dataset.theme") == ("dark" if dark else "light")
        assert serious(page) == []


def test_axe_would_find_something(dashboard: Opener, served: Server) -> None:
    """The same check sees a button without a name and a text that is too pale."""
    with dashboard(served.url) as page:
        page.evaluate("""() => {
          const pale = document.createElement("p");
          pale.textContent = "pale";
          pale.style.setProperty("color", "#777");
          pale.style.setProperty("background", "#888");
          document.querySelector("main").append(document.createElement("button"), pale);
        }""")
        found = " ".join(serious(page))
        assert "button-name" in found
        assert "color-contrast" in found


def test_strangers_names_are_text(dashboard: Opener, gallery: Server) -> None:
    """A model and classes whose names are markup are shown by those names, and nothing of it comes alive."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=chosen(MARKUP)) as page:
        expect(page.get_by_role("main").get_by_text(MARKUP).first).to_be_visible()
        settled(page)
        page.goto(gallery.url + chosen("pictures"))
        page.reload()
        settled(page)
        # the names of classes stand in the text of the page, its charts and their tables
        assert LABELS[1] in page.locator("main").inner_text()
        assert page.title() != "owned"
        assert page.evaluate("() => document.querySelector('img[src=x], main script')") is None


@pytest.mark.timeout(240)
@pytest.mark.parametrize("width", [further(390), 1280])
def test_the_keyboard_reaches_all(dashboard: Opener, served: Server, width: int) -> None:
    """Tab goes to every control, and each is seen to have the focus."""
    with dashboard(served.url, width=width, reduced_motion="reduce") as page:
        through(page)
        page.evaluate("() => { window.reached = new WeakSet(); }")
        expected = page.evaluate(f"() => ({REACHABLE})().length")
        assert expected > 10
        unseen = []
        for _ in range(2 * expected):
            page.keyboard.press("Tab")
            if page.evaluate("() => document.activeElement === document.body"):
                break
            page.evaluate("() => { window.reached.add(document.activeElement); }")
            if not page.evaluate(SHOWN):
                unseen.append(page.evaluate(f"() => ({NAMED})(document.activeElement)"))
        else:
            pytest.fail("Tab never came to the end of the page")
        assert unseen == []
        missed = page.evaluate(
            f"() => ({REACHABLE})().filter((node) => !window.reached.has(node)).map({NAMED})"
        )
        assert missed == []


def test_the_focus_stays(dashboard: Opener, served: Server) -> None:
    """What the page asks for by itself redraws nothing under the hands of a person."""
    with dashboard(served.url, clock=True) as page:
        settled(page)
        buttons = page.get_by_role("main").get_by_role("button")
        buttons.first.focus()
        page.evaluate("() => { window.held = document.activeElement; }")
        before = len(page.record.requests)
        passed(page, 12)
        assert {url.rpartition("/")[2] for url in page.record.requests[before:]} >= {"index", "metrics"}
        assert page.evaluate("() => document.activeElement === window.held && window.held.isConnected")


def test_it_works_behind_a_proxy(dashboard: Opener, served: Server) -> None:
    """Under a prefix of somebody's site: all of its addresses are relative."""
    from playwright.sync_api import expect

    prefix = "/models/of/mine"
    with prefixing(served.url, prefix) as url, dashboard(url.removesuffix(prefix), path=f"{prefix}/") as page:
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        settled(page)
        assert all(urlsplit(url).path.startswith(f"{prefix}/") for url in page.record.requests)


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_server_that_goes_is_missed(dashboard: Opener) -> None:
    """The page says so, keeps what it shows, and goes on by itself when the server is back."""
    from playwright.sync_api import expect

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as windows:
        with serving("--no-access-log", "--port", port) as server:
            page = windows.enter_context(dashboard(server.url, wanted=NOBODY))
            settled(page)
            expect(page.locator("#notice")).to_be_empty()
        expect(page.locator("#notice")).not_to_be_empty(timeout=30_000)
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        assert serious(page) == []
        before = len(page.record.requests)
        page.wait_for_timeout(10_000)
        assert len(page.record.requests) - before < 10
        with serving("--no-access-log", "--port", port):
            expect(page.locator("#notice")).to_be_empty(timeout=60_000)
            settled(page)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A server that wants a key."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("open-sesame\n")
    with serving("--no-access-log", "--api-keys-file", keys) as server:
        yield server


def test_a_key_is_asked_for(dashboard: Opener, locked: Server) -> None:
    """A wrong one is told from the right one, which opens the page and lasts as long as the tab."""
    from playwright.sync_api import expect

    with dashboard(locked.url, wanted="401") as page:
        field = page.locator("dialog[open] input[type=password]")
        expect(field).to_be_visible()
        assert serious(page) == []
        field.fill("abracadabra")
        field.press("Enter")
        expect(
            page.locator("dialog[open]").get_by_text(re.compile("expected a key|another|wrong|not known"))
        ).to_be_visible()
        field.fill("open-sesame")
        field.press("Enter")
        expect(field).not_to_be_visible()
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        page.reload()
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        expect(field).not_to_be_visible()
        assert "open-sesame" not in page.url
        assert "open-sesame" not in page.evaluate(
            "() => JSON.stringify({ ...localStorage }) + document.cookie"
        )


def test_a_tab_that_has_the_key_asks_for_none(dashboard: Opener, locked: Server) -> None:
    """Everything is there, and not one request was refused."""
    from playwright.sync_api import expect

    with dashboard(locked.url, key="open-sesame") as page:
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        settled(page)
        expect(page.locator("dialog[open]")).to_have_count(0)


@pytest.mark.thorough
def test_nothing_moves_for_those_who_want_it_still(dashboard: Opener, served: Server) -> None:
    """With reduced motion nothing slides or fades, and a link within the page jumps."""
    measure = "() => getComputedStyle(document.documentElement).scrollBehavior"
    with dashboard(served.url) as page:
        assert page.evaluate(measure) == "smooth"
    with dashboard(served.url, reduced_motion="reduce") as page:
        settled(page)
        assert page.evaluate(measure) == "auto"
        page.get_by_role("link", name="Live").click()
        moving = "() => document.getAnimations().filter((one) => one.playState === 'running').length"
        assert page.evaluate(moving) == 0


def test_without_charts_the_rest_is_there(dashboard: Opener, served: Server) -> None:
    """Where their library cannot be had, the page says so in their place and works."""
    from playwright.sync_api import expect

    with dashboard(served.url, wanted="404|plotly.js") as page:
        page.route(re.compile("plotly.js"), lambda route: route.fulfill(status=404, body=""))
        page.reload()
        settled(page)
        expect(page.get_by_role("main").get_by_text("digits-10").first).to_be_visible()
        expect(page.get_by_role("main").get_by_text("could not be drawn").first).to_be_visible()
