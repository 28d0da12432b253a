"""Fixtures that open the dashboard in Debian's chromium, for the tests marked `browser`.

A test takes the fixtures it needs; each is created once for all tests:

    @pytest.mark.browser
    def test_models_are_shown(dashboard: OpenDashboard, bundled_server: Server) -> None:
        with dashboard(bundled_server.url, width=390, dark=True) as page:
            expect(page.get_by_role("heading", name="Models")).to_be_visible()
            wait_until_idle(page)
            assert axe_violations(page) == []

`bundled_server` serves the bundled model, `locked_server` requires a key for it, and `all_models_server`
serves every kind of model (`tests/support/dashboard_repository.py`). `serving(...)` of
`tests/support/live_server.py` starts a server for one test.

`dashboard(url)` opens the page in a fresh window without stored data. On leaving, it asserts that the page
wrote no error or warning to the console, raised no exception, had no failed request and contacted no other
host. A regular expression allows expected problems: `allowed="401"`.

Playwright runs an event loop in the test's own thread, so `asyncio.run` does not work beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

OpenDashboard = Callable[..., AbstractContextManager["Page"]]

CHROMIUM = "chromium"
# the links to the tabs of the page, in order
TABS = ("Try it", "Models", "Gates", "Live")
# the key of `locked_server`
API_KEY = "open-sesame"
FLAGS = ["--disable-gpu", "--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
# several tests may share a few cores
TIMEOUT_MS = 20_000
# stores a key the way the page does
STORE_KEY = "key => sessionStorage.setItem('turnpike-key', key)"

# resolves when the document has not changed for 0.7 seconds
DOCUMENT_IDLE = """() => new Promise((resolve) => {
  let timer = setTimeout(resolve, 700);
  new MutationObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(resolve, 700);
  }).observe(document.body, { childList: true, subtree: true });
})"""


class WindowLog:
    """Problems in a window, and the URLs of its requests in order."""

    def __init__(self, context: BrowserContext) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(f"thrown: {error.error}"))
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("requestfailed", self._failed)

    def hosts(self) -> set[str]:
        return {
            parts.netloc for url in self.requests if (parts := urlsplit(url)).scheme not in ("data", "blob")
        }

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _failed(self, request: Any) -> None:
        # the page itself aborts requests that are no longer needed
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"failed: {request.url} ({request.failure})")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Without a browser tests skip, or fail if the environment requires one."""
    program = shutil.which(CHROMIUM)
    try:
        from playwright.sync_api import expect, sync_playwright
    except ModuleNotFoundError:
        program = None
    if program is None:
        if os.environ.get("TURNPIKE_BROWSER") == "required":
            pytest.fail("expected chromium on the PATH and playwright in the environment")
        pytest.skip("chromium or playwright is not installed")
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def dashboard(browser: Browser) -> OpenDashboard:
    """Opens the page: `with dashboard(url, width=…, height=…, dark=…, key=…, path=…, allowed=…) as page`.

    `tab` (try, models, gates or live) is added to the path. `page.log` is the window's WindowLog. With
    `clock=True` the test controls time with `advance_clock`. A `script` runs before those of the page. Other
    options are passed to Playwright's `new_context`.
    """

    @contextmanager
    def open_page(
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        key: str | None = None,
        path: str = "/",
        tab: str | None = None,
        allowed: str | None = None,
        clock: bool = False,
        script: str | None = None,
        **options: Any,
    ) -> Iterator[Page]:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            **options,
        )
        context.set_default_timeout(TIMEOUT_MS)
        log = WindowLog(context)
        if clock:
            context.clock.install()
        try:
            page = context.new_page()
            page.log = log  # type: ignore[attr-defined]
            if key is not None:
                page.add_init_script(f"({STORE_KEY})({key!r})")
            if script is not None:
                page.add_init_script(script)
            page.goto(url + (path if tab is None else with_tab(path, tab)))
            yield page
        finally:
            context.close()
        unexpected = [text for text in log.problems if allowed is None or not re.search(allowed, text)]
        assert unexpected == []
        assert log.hosts() == {urlsplit(url).netloc}

    return open_page


@pytest.fixture(scope="session")
def bundled_server() -> Iterator[Server]:
    """Serves the bundled model."""
    with serving("--no-access-log") as server:
        yield server


@pytest.fixture(scope="session")
def locked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves the bundled model to requests with the key API_KEY."""
    keys: Path = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{API_KEY}\n")
    with serving("--no-access-log", "--api-keys-file", keys) as server:
        yield server


@pytest.fixture(scope="session")
def all_models_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves one model of each kind."""
    from tests.support.dashboard_repository import create_repository

    root = create_repository(tmp_path_factory.mktemp("models"))
    with serving("--models", root, "--allow-unverified", "--no-access-log") as server:
        yield server


def model_path(name: str) -> str:
    """The path of the page that shows version 1 of a model."""
    return f"/#model={quote(name, safe='')}/1"


def with_tab(path: str, tab: str) -> str:
    """The path of the page that shows one of its tabs: try, models, gates or live."""
    return f"{path}{'&' if '#' in path else '#'}tab={tab}"


def open_tab(page: Page, name: str) -> None:
    """Press the link to one of TABS."""
    page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()


def hold_first(held_routes: list[Route], route: Route) -> None:
    """Hold the first request back and let the others through."""
    if held_routes:
        route.continue_()
    else:
        held_routes.append(route)


def advance_clock(page: Page, seconds: int) -> None:
    """Advance the page's clock second by second, with a short pause for the requests of each."""
    for _ in range(seconds):
        page.clock.run_for(1000)
        page.wait_for_timeout(50)


def wait_until(page: Page, condition: Callable[[], object]) -> None:
    """Wait until a condition holds that Python evaluates, such as the arrival of an event."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        page.wait_for_timeout(20)


def wait_until_idle(page: Page) -> None:
    """Wait until the page has loaded its data and drawn it."""
    page.wait_for_load_state("networkidle")
    page.evaluate(DOCUMENT_IDLE)


def axe_violations(page: Page) -> list[str]:
    """Violations of axe's rules, of any impact, in the current page."""
    import axe_playwright_python

    script = Path(axe_playwright_python.__file__).parent / "axe.min.js"
    page.evaluate(script.read_text(encoding="utf-8"))
    violations = page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    )
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]} {node['target']}"
        for violation in violations
        for node in violation["nodes"]
    ]
