"""Every name on the dashboard and in reports is a script: none runs, and the layout holds.

The Content-Security-Policy is turned off, unless a test says otherwise, so that names that are not escaped
would run. Another test takes the escaping away, and checks that the scripts then run and that the policy
stops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, wait_until_idle
from tests.support.dashboard_row import choose_sample
from tests.support.dashboard_try import SET_LAYER_STATE
from tests.support.hostile_names import (
    MODEL,
    RECORD_RUNS,
    create_hostile_repository,
    hostile,
    hostile_model,
    injected,
    manifest,
)
from tests.support.live_server import Server, serving
from tests.support.loadtest_records import START, add_requests, sample_record, sample_target
from tests.support.tune_results import sample_result
from turnpike.export.network import Rows
from turnpike.export.report.data import ReportData, gate_panel
from turnpike.export.report.write import write_report as write_export_report
from turnpike.loadtest.ledger import Ledger
from turnpike.loadtest.report.write_report import write_report as write_load_report
from turnpike.service.artifact.runtime import open_model
from turnpike.tune.report.write_report import write_results

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytestmark = pytest.mark.browser

# the part of the page that puts names into the document
ELEMENT_MODULE = "**/dashboard/dom/element.js"
ESCAPED = "node.append(...flattened(children));"
UNESCAPED = """for (const child of flattened(children)) {
  if (child instanceof Node) node.append(child);
  else node.insertAdjacentHTML("beforeend", String(child));
}"""

SHOW_EVERYTHING = """async () => {
  for (const section of document.querySelectorAll("main > section")) section.hidden = false;
  for (const node of document.querySelectorAll("details")) node.open = true;
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight / 2) {
    scrollTo({ top: y, behavior: "instant" });
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}"""
# elements that reach out of the window, if the page can be scrolled sideways; not those in a box that scrolls
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth <= width) return [];
  const clipped = (node) => node !== document.body &&
    (getComputedStyle(node).overflowX !== "visible" || clipped(node.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !clipped(node.parentElement))
    .map((node) => `${node.localName}.${node.className} ${node.textContent.slice(0, 60)}`);
}"""


@pytest.fixture(scope="module")
def hostile_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("hostile")
    create_hostile_repository(root)
    with serving("--models", root, "--no-access-log") as server:
        yield server


def hover_charts(page: Page) -> None:
    """Move the mouse over every chart, so that its labels are drawn."""
    for plot in page.locator(".plot, figure > svg").all():
        if plot.is_visible():
            plot.scroll_into_view_if_needed()
            plot.hover(force=True)
            page.wait_for_timeout(50)


def use_dashboard(page: Page, server: Server) -> None:
    """Predict, close a layer, open all details, get an error, and look at all charts."""
    wait_until_idle(page)
    inputs = choose_sample(page, server, MODEL)
    page.evaluate(SET_LAYER_STATE, [0, "closed"])
    wait_until_idle(page)
    page.evaluate(SHOW_EVERYTHING)
    hover_charts(page)
    assert server.post(f"/v2/models/{quote(MODEL, safe='')}/infer", {"inputs": inputs}).ok
    wrong = [{**inputs[0], "name": hostile("wrong")}]
    page.evaluate(
        """async ([title, inputs]) => {
          const { publish } = await import("/dashboard/state/store.js");
          publish("row", { title, inputs });
        }""",
        [hostile("title"), wrong],
    )
    wait_until_idle(page)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_name_on_the_dashboard_is_markup(
    dashboard: OpenDashboard, hostile_server: Server, width: int
) -> None:
    """Names of models, versions, inputs, outputs, layers, gates, labels, samples, the certificate, errors."""
    path = f"/#model={quote(MODEL, safe='')}/1"
    # the request with a wrong name is answered with 400
    with dashboard(
        hostile_server.url, path=path, width=width, bypass_csp=True, allowed="400", script=RECORD_RUNS
    ) as page:
        use_dashboard(page, hostile_server)
        text = page.locator("body").inner_text()
        for place in ("model", "broken", "refused", "x", "logits", "label 0", "reference", "tensor", "batch"):
            assert f"{place} <img src=x" in text, place
        # it would turn the direction of the text that follows
        assert "\u202e" not in text
        assert "\\u202ewww" in text
        assert injected(page) == []
        assert page.evaluate(TOO_WIDE) == []
        assert page.locator(".plot .main-svg").count() > 0


@pytest.mark.parametrize("policy", [False, True])
def test_markup_that_is_not_escaped_is_found_and_stopped_by_the_policy(
    dashboard: OpenDashboard, hostile_server: Server, policy: bool
) -> None:
    """Without escaping, the same names run scripts. The Content-Security-Policy alone stops them, too."""
    source = hostile_server.get("/dashboard/dom/element.js").text
    assert source.count(ESCAPED) == 1
    unescaped = source.replace(ESCAPED, UNESCAPED)
    path = f"/#model={quote(MODEL, safe='')}/1"
    with dashboard(
        hostile_server.url,
        path="/docs",
        bypass_csp=not policy,
        allowed=".",
        script=RECORD_RUNS,
    ) as page:
        page.route(
            ELEMENT_MODULE, lambda route: route.fulfill(body=unescaped, content_type="text/javascript")
        )
        page.goto(hostile_server.url + path)
        page.locator("#models img[src='x']").first.wait_for(state="attached")
        page.wait_for_timeout(500)
        assert bool(page.evaluate("() => ran.length")) != policy
        assert injected(page) != []


@contextmanager
def opened(browser: Browser, path: Path, width: int) -> Iterator[Page]:
    """A page of a report, without its Content-Security-Policy."""
    theme: Literal["dark", "light"] = "dark" if width < 600 else "light"
    viewport: ViewportSize = {"width": width, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme=theme, bypass_csp=True)
    try:
        page = context.new_page()
        page.add_init_script(RECORD_RUNS)
        page.goto(path.as_uri())
        page.wait_for_load_state("networkidle")
        yield page
    finally:
        context.close()


def export_report(folder: Path) -> Path:
    runtime = open_model(hostile_model())
    record = manifest()
    rows = Rows({runtime.inputs[0].name: np.ones((4, 4), np.float32)}, np.array([0, 1, 2, 0]))
    biases = {lever.tensor: np.zeros(6, np.float32) for gate in record.gates for lever in gate.levers}
    report = ReportData(
        manifest=record,
        inputs=tuple(map(str, runtime.inputs)),
        outputs=tuple(map(str, runtime.outputs)),
        size=1000,
        warnings=(hostile("warning"),),
        seconds={hostile("step"): 1.0},
        histograms={},
        panel=gate_panel(runtime, record.gates, biases, record.profile, rows, record.labels),
        comparison=None,
    )
    return write_export_report(folder, report)


def load_report(folder: Path) -> Path:
    ledger = Ledger()
    kinds = ((hostile("kind"), 1), (hostile("other"), 1))
    add_requests(ledger, START, 10, 30, kinds=kinds, faults={f"wrong: {hostile('fault')}": 0.1})
    names = {name: hostile(name) for name in ("model", "version", "server", "server_version")}
    record = sample_record(ledger=ledger, target=sample_target(**names), notes=(hostile("note"),))
    return write_load_report(folder, replace(record, wrong_answer=hostile("answer")))


def tune_report(folder: Path) -> Path:
    result = sample_result(model=hostile("model"), notes=(hostile("note"),), source=hostile("source"))
    machine = {**result.machine, "cpu": hostile("cpu")}
    versions = {hostile("tool"): hostile("version")}
    folder.mkdir()
    return write_results(folder, replace(result, machine=machine, versions=versions))[1]


@pytest.mark.parametrize("width", [pytest.param(390, marks=pytest.mark.thorough), 1280])
@pytest.mark.parametrize("write", [export_report, load_report, tune_report])
def test_no_name_in_a_report_is_markup(
    browser: Browser, tmp_path: Path, write: Callable[[Path], Path], width: int
) -> None:
    path = write(tmp_path / "report")
    with opened(browser, path, width) as page:
        page.evaluate(SHOW_EVERYTHING)
        hover_charts(page)
        text = page.locator("body").inner_text()
        assert axe_violations(page) == []
        assert text.count("<img src=x") > 3
        assert "\u202e" not in text
        assert "\\u202ewww" in text
        assert injected(page) == []
        assert page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("write", [export_report, load_report, tune_report])
def test_the_policy_of_a_report_stops_injected_scripts(
    browser: Browser, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    """Markup that was put into the file by hand runs without the policy, and not with it."""
    path = write(tmp_path / "report")
    html = path.read_text().replace(
        "<main>", "<main><script>ran.push(1)</script><img src=x onerror=ran.push(2)>"
    )
    path.write_text(html)
    ran: dict[bool, Any] = {}
    for bypass in (True, False):
        context = browser.new_context(bypass_csp=bypass)
        page = context.new_page()
        page.add_init_script(RECORD_RUNS)
        page.goto(path.as_uri())
        if bypass:
            page.wait_for_function("() => ran.length === 2")
        page.wait_for_timeout(300)
        ran[bypass] = page.evaluate("() => ran")
        context.close()
    assert ran == {True: [1, 2], False: []}
