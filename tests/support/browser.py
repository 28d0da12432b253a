"""The dashboard in Debian's chromium, for the tests that are marked `browser`.

A test takes the fixtures that it wants, each made once for all tests:

    @pytest.mark.browser
    def test_it_shows(dashboard: Opener, served: Server) -> None:
        with dashboard(served.url, width=390, dark=True) as page:
            expect(page.get_by_role("heading", name="Models")).to_be_visible()
            settled(page)
            assert serious(page) == []

`served` is a server with the bundled model, `gallery` one with every kind of model (`tests/gallery.py`);
`serving(...)` of `tests/serving.py` starts one of a test's own. `dashboard(url)` opens the page in a window
of its own, where nothing is remembered, and on leaving it asserts that the page wrote no error or warning to
the console, threw nothing, lost no request and asked no other host. What a test wants to go wrong it names,
by a regular expression: `wanted="401"`. As Playwright runs an event loop in the test's own thread,
`asyncio.run` does not work beside it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.live_server import Server, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

Opener = Callable[..., AbstractContextManager["Page"]]

CHROMIUM = "chromium"
FLAGS = ["--disable-gpu", "--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
# several may share a few cores
PATIENCE_MS = 20_000
# where the page keeps the key of a tab
REMEMBER = "key => sessionStorage.setItem('turnpike-key', key)"

# until nothing has changed for a while
QUIET = """() => new Promise((resolve) => {
  let timer = setTimeout(resolve, 700);
  new MutationObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(resolve, 700);
  }).observe(document.body, { childList: true, subtree: true });
})"""


class Record:
    """What went wrong in a window, and whom it asked; `requests` are the addresses in order."""

    def __init__(self, context: BrowserContext) -> None:
        self.wrongs: list[str] = []
        self.requests: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.wrongs.append(f"thrown: {error.error}"))
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("requestfailed", self._failed)

    def hosts(self) -> set[str]:
        return {
            parts.netloc for url in self.requests if (parts := urlsplit(url)).scheme not in ("data", "blob")
        }

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrongs.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _failed(self, request: Any) -> None:
        # the page itself gives up requests that have been overtaken
        if request.failure != "net::ERR_ABORTED":
            self.wrongs.append(f"failed: {request.url} ({request.failure})")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests; without one they skip, or fail where the environment says that there must be one."""
    program = shutil.which(CHROMIUM)
    try:
        from playwright.sync_api import expect, sync_playwright
    except ModuleNotFoundError:
        program = None
    if program is None:
        if os.environ.get("TURNPIKE_BROWSER") == "required":
            pytest.fail("expected chromium on the PATH and playwright in the environment, got neither or one")
        pytest.skip("chromium or playwright is not installed")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def dashboard(browser: Browser) -> Opener:
    """Opens the page: `with dashboard(url, width=…, height=…, dark=…, key=…, path=…, wanted=…) as page`.

    `page.record` has the window's Record. With `clock=True` the test can let time pass by `passed`. Further
    options are those of Playwright's `new_context`.
    """

    @contextmanager
    def opened(
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        key: str | None = None,
        path: str = "/",
        wanted: str | None = None,
        clock: bool = False,
        **options: Any,
    ) -> Iterator[Page]:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            **options,
        )
        context.set_default_timeout(PATIENCE_MS)
        record = Record(context)
        if clock:
            context.clock.install()
        try:
            page = context.new_page()
            page.record = record  # type: ignore[attr-defined]
            if key is not None:
                page.add_init_script(f"({REMEMBER})({key!r})")
            page.goto(url + path)
            yield page
        finally:
            context.close()
        unwanted = [wrong for wrong in record.wrongs if wanted is None or not re.search(wanted, wrong)]
        assert unwanted == []
        assert record.hosts() == {urlsplit(url).netloc}

    return opened


@pytest.fixture(scope="session")
def served() -> Iterator[Server]:
    """A server with the bundled model."""
    with serving("--no-access-log") as server:
        yield server


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with every kind of model."""
    from tests.support.dashboard_repository import fill

    root = fill(tmp_path_factory.mktemp("gallery"))
    with serving("--models", root, "--allow-unverified", "--no-access-log") as server:
        yield server


def passed(page: Page, seconds: int) -> None:
    """Let so many seconds pass on the page's own clock, with a moment for what is asked in each."""
    for _ in range(seconds):
        page.clock.run_for(1000)
        page.wait_for_timeout(50)


def settled(page: Page) -> None:
    """Wait until the page has what it asked for at first, and has drawn it."""
    page.wait_for_load_state("networkidle")
    page.evaluate(QUIET)


def serious(page: Page) -> list[str]:
    """What axe finds serious or critical in the page as it is now."""
    import axe_playwright_python

    script = Path(axe_playwright_python.__file__).parent / "axe.min.js"
    page.evaluate(script.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]} {node['target']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
