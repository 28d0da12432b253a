"""Section "Models": the list, the choice of a model, its certificate, and changes of the repository."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser import OpenDashboard, axe_violations, open_tab, wait_until
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server, serving
from tests.support.tiny_repository import put_model

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.browser

TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"
# characters with a meaning in URLs
ODD = "50%41 #?&"
# the longest name allowed
LONG = "n" * 200


def shape(*parts: object) -> str:
    return f" {TIMES} ".join(map(str, parts))


def entry_of(page: Page, name: str) -> Locator:
    """A version's line in the list."""
    return page.locator("#models li.entry").filter(has=page.get_by_role("button", name=name, exact=True))


def chosen(page: Page) -> Locator:
    return page.locator("#models li.entry button[aria-current=true]")


def summary(page: Page) -> Locator:
    """The details of the chosen model."""
    return page.locator("#models .about")


def fact(place: Locator, title: str) -> Locator:
    """The value with this title in a list of facts."""
    return (
        place.locator("dl > div")
        .filter(has=place.page.locator("dt").get_by_text(title, exact=True))
        .locator("dd")
    )


def responding(status: int, answer: object) -> Callable[[Route], None]:
    """A route handler that responds in place of the server."""
    return lambda route: route.fulfill(
        status=status, body=json.dumps(answer), content_type="application/json"
    )


@pytest.fixture(scope="module")
def repository_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server]]:
    """A repository polled twice per second, with two versions of a model and a damaged file."""
    root = tmp_path_factory.mktemp("shelf")
    put_model(root, "net", 1)
    put_model(root, "net", 2)
    put_model(root, "broken", 1, b"no model at all")
    put_model(root, ODD, 1)
    put_model(root, LONG, 1)
    with serving("--models", root, "--versions", "all", "--poll", "0.5", "--no-access-log") as server:
        yield root, server


def test_every_version_is_listed(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="models") as page:
        for entry in all_models_server.post("/v2/repository/index", {}).json():
            expect(entry_of(page, f"{entry['name']}/{entry['version']}")).to_contain_text("served")
        digits = entry_of(page, "digits-10/1")
        expect(fact(digits, "inputs")).to_have_text(shape("x FP32 n", 1, 8, 8))
        expect(fact(digits, "outputs")).to_have_text(shape("output FP32 n", 10))
        expect(fact(digits, "precision")).to_have_text("fp32")
        expect(fact(digits, "size")).to_have_text(re.compile(r"^\d+ KiB$"))
        parity = all_models_server.get("/v2/models/digits-10/certificate").json()["parity"]
        worst = next(tensor for tensor in parity["tensors"] if tensor["name"] == parity["worst"])
        times = f"{worst['rms'] / worst['rms_torch']:.2f}{TIMES}"
        expect(fact(digits, "proof")).to_have_text(f"proved{parity['worst']} {times}")
        expect(fact(entry_of(page, "bare/1"), "proof")).to_have_text("unknown")
        expect(fact(entry_of(page, "letters/1"), "inputs")).to_have_text(
            f"{shape('ids INT64 n', '?', 5)}, or text"
        )
        expect(entry_of(page, f"{MARKUP}/1")).to_be_visible()


def test_the_reason_of_an_unserved_version_is_shown(
    dashboard: OpenDashboard, repository_server: tuple[Path, Server]
) -> None:
    from playwright.sync_api import expect

    with dashboard(repository_server[1].url, tab="models") as page:
        broken = entry_of(page, "broken/1")
        expect(broken).to_contain_text("not served")
        expect(broken).to_contain_text("its file is damaged or not an ONNX model")
        expect(broken.get_by_role("button")).to_be_disabled()


def test_the_certificate_is_shown_on_demand(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    certificate = bundled_server.get("/v2/models/digits-10/certificate").json()
    with dashboard(bundled_server.url, tab="models") as page:
        expect(summary(page)).to_contain_text(
            "Proved In exact arithmetic, the file is the same function of every input"
        )
        rows = sum(batch["rows"] for batch in certificate["parity"]["batches"])
        expect(summary(page)).to_contain_text(
            f"{len(certificate['parity']['batches'])} batches with {rows} rows in total"
        )
        expect(page.get_by_text(certificate["digest"])).to_have_count(0)
        page.get_by_text("Full certificate").click()
        tensors = page.get_by_role("region", name=re.compile("Error of each tensor")).locator("tbody tr")
        expect(tensors).to_have_count(len(certificate["parity"]["tensors"]))
        expect(tensors.filter(has_text="worst")).to_have_count(1)
        expect(tensors.filter(has_text="worst")).to_contain_text(certificate["parity"]["worst"])
        batches = page.get_by_role("region", name=re.compile("Batches of rows")).locator("tbody tr")
        expect(batches).to_have_count(len(certificate["parity"]["batches"]))
        for text in (certificate["digest"], certificate["weights"], f"torch {certificate['tools']['torch']}"):
            expect(summary(page).get_by_text(text)).to_be_visible()
        assert axe_violations(page) == []


def test_a_file_without_a_manifest_is_not_proved(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="models", path="/#model=bare/1") as page:
        expect(summary(page)).to_contain_text("Nothing proved")
        expect(summary(page)).to_contain_text("turnpike export FILE.onnx")
        expect(fact(summary(page), "Inputs")).to_contain_text(shape("b INT64 n", 4))
        expect(fact(summary(page), "Gates")).to_contain_text("none")


def test_the_url_keeps_the_chosen_model(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """The choice survives a reload, and the back button undoes it."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="models") as page:
        expect(chosen(page)).to_have_text(f"{MARKUP}/1")
        entry_of(page, "own/1").get_by_role("button").click()
        expect(chosen(page)).to_have_text("own/1")
        assert page.url.endswith("/#model=own/1&tab=models")
        entry_of(page, "pictures/1").get_by_role("button").click()
        expect(summary(page).get_by_role("heading")).to_have_text("pictures/1")
        page.reload()
        expect(chosen(page)).to_have_text("pictures/1")
        expect(page.get_by_role("link", name="Chosen model: pictures/1")).to_be_visible()
        for label in LABELS:
            expect(summary(page).get_by_text(label, exact=True)).to_be_visible()
        page.go_back()
        expect(summary(page).get_by_role("heading")).to_have_text("own/1")
        page.go_back()
        expect(chosen(page)).to_have_text(f"{MARKUP}/1")


def test_any_model_name_works_in_the_url(
    dashboard: OpenDashboard, repository_server: tuple[Path, Server]
) -> None:
    from playwright.sync_api import expect

    with dashboard(repository_server[1].url, tab="models", path="/#model=net/1") as page:
        expect(chosen(page)).to_have_text("net/1")
        entry_of(page, f"{ODD}/1").get_by_role("button").click()
        page.reload()
        expect(summary(page).get_by_role("heading")).to_have_text(f"{ODD}/1")


def test_the_longest_name_fits_a_phone(
    dashboard: OpenDashboard, repository_server: tuple[Path, Server]
) -> None:
    from playwright.sync_api import expect

    with dashboard(repository_server[1].url, tab="models", width=360, path=f"/#model={LONG}/1") as page:
        expect(summary(page).get_by_role("heading")).to_have_text(f"{LONG}/1")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        open_tab(page, "Live")
        expect(page.locator("#live").get_by_role("button", name=LONG)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_list_scrolls_to_the_chosen_version(
    dashboard: OpenDashboard, repository_server: tuple[Path, Server]
) -> None:
    """The list scrolls to the chosen version, the page does not."""
    from playwright.sync_api import expect

    with dashboard(repository_server[1].url, tab="models", width=360, path="/#model=net/2") as page:
        expect(chosen(page)).to_have_text("net/2")
        page.wait_for_function("document.querySelector('.models-list').scrollTop > 0")
        lines, mine = page.locator(".models-list").bounding_box(), chosen(page).bounding_box()
        assert lines is not None
        assert mine is not None
        assert lines["y"] <= mine["y"] <= lines["y"] + lines["height"] - mine["height"]
        assert page.evaluate("scrollY") == 0


def test_a_tab_is_part_of_the_address(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A link to a tab keeps the model and takes the focus. A reload and the back button find the tab."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, path="/#model=digits-10/1") as page:
        expect(page.locator("#try .headline")).to_be_visible()
        live = page.get_by_role("navigation").get_by_role("link", name="Live")
        live.click()
        expect(live).to_have_attribute("aria-current", "page")
        expect(page.locator("#live")).to_be_focused()
        expect(page.locator("#try")).to_be_hidden()
        assert page.url.endswith("/#model=digits-10/1&tab=live")
        page.reload()
        expect(page.locator("#live")).to_be_visible()
        # the page predicts its row behind the tab
        expect(page.locator("#try .headline")).to_be_attached()
        entries = page.evaluate("history.length")
        live.click()
        assert page.evaluate("history.length") == entries
        requests = len(page.log.requests)  # type: ignore[attr-defined]
        page.go_back()
        expect(page.locator("#try .headline")).to_be_visible()
        expect(page.locator("#live")).to_be_hidden()
        # the row is still there, and not predicted again
        assert not [url for url in page.log.requests[requests:] if url.endswith("/gates")]  # type: ignore[attr-defined]


def test_a_short_address_opens_a_tab(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """An unknown tab is the first one."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, path="/#live") as page:
        expect(page.locator("#live")).to_be_visible()
        assert page.url.endswith("/#tab=live")
        page.evaluate("location.hash = '#tab=nowhere'")
        expect(page.locator("#try")).to_be_visible()
        page.evaluate("location.hash = '#gates'")
        expect(page.locator("#gates")).to_be_visible()


@pytest.mark.parametrize("target", ["nobody/3", "net/9"])
def test_a_url_of_an_unknown_version_shows_a_message(
    dashboard: OpenDashboard, repository_server: tuple[Path, Server], target: str
) -> None:
    """No other model is shown instead, but another version is offered."""
    from playwright.sync_api import expect

    with dashboard(repository_server[1].url, tab="models", path=f"/#model={target}") as page:
        expect(summary(page)).to_contain_text(f"{target} is not served: no such version is in the repository")
        expect(chosen(page)).to_have_count(0)
        if target.startswith("net"):
            summary(page).get_by_role("button", name="Show net/2").click()
            expect(chosen(page)).to_have_text("net/2")


@pytest.mark.thorough
def test_added_and_removed_versions_are_shown(dashboard: OpenDashboard, tmp_path: Path) -> None:
    """A new version does not take the focus; a removed one is reported, and loaded again when it is back."""
    from playwright.sync_api import expect

    put_model(tmp_path, "net", 1)
    put_model(tmp_path, "net", 2)
    options = ("--models", tmp_path, "--versions", "all", "--poll", "0.2", "--no-access-log")
    with (
        serving(*options) as server,
        dashboard(server.url, tab="models", path="/#model=net/1", allowed="40[04]|503") as page,
    ):
        second = entry_of(page, "net/2").get_by_role("button")
        expect(chosen(page)).to_have_text("net/1")
        second.focus()
        put_model(tmp_path, "net", 3)
        put_model(tmp_path, "a-net", 1)
        expect(entry_of(page, "a-net/1")).to_contain_text("served", timeout=30_000)
        expect(entry_of(page, "net/3")).to_contain_text("served")
        expect(second).to_be_focused()
        shutil.rmtree(tmp_path / "net" / "1")
        expect(summary(page)).to_contain_text("net/1 is not served: no such version", timeout=30_000)
        expect(entry_of(page, "net/1")).to_have_count(0)
        expect(summary(page).get_by_role("button", name="Show net/3")).to_be_visible()
        put_model(tmp_path, "net", 1)
        expect(summary(page)).not_to_contain_text("not served", timeout=30_000)
        expect(chosen(page)).to_have_text("net/1")


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 7, 8, 100])
def test_many_models_cause_few_requests(dashboard: OpenDashboard, bundled_server: Server, count: int) -> None:
    """From eight versions on there is a filter, and only visible versions are requested."""
    from playwright.sync_api import expect

    index = [{"name": f"net-{at:03}", "version": "1", "state": "READY", "reason": ""} for at in range(count)]
    metadata = bundled_server.get("/v2/models/digits-10").json()
    certificate = bundled_server.get("/v2/models/digits-10/certificate").json() | {"gates": 0}

    def answered(route: Route) -> None:
        url = route.request.url
        if not url.endswith("/index") and "/net-" not in url:
            # a late request of the page as it was before the reload
            route.continue_()
            return
        answer: Any = index if url.endswith("/index") else metadata
        answer = certificate if url.endswith("/certificate") else answer
        answer = {"samples": []} if url.endswith("/samples") else answer
        route.fulfill(body=json.dumps(answer), content_type="application/json")

    with dashboard(bundled_server.url, tab="models") as page:
        page.route(re.compile("/v2/"), answered)
        page.log.requests.clear()
        page.reload()
        expect(fact(entry_of(page, "net-000/1"), "proof")).to_contain_text("proved")
        box = page.get_by_role("searchbox", name="Filter models")
        expect(box).to_be_visible(visible=count >= 8)
        page.wait_for_load_state("networkidle")
        certificate_urls = [url for url in page.log.requests if url.endswith("/certificate")]
        assert 1 <= len(certificate_urls) <= 30
        if count == 100:
            box.fill("net-09")
            expect(page.locator("#models li.entry:visible")).to_have_count(10)
            expect(page.get_by_text("10 of 100")).to_be_visible()
            expect(fact(entry_of(page, "net-099/1"), "proof")).to_contain_text("proved")
            box.fill("not served")
            expect(page.locator("#models li.entry:visible")).to_have_count(0)


@pytest.mark.thorough
def test_the_list_shows_figures_of_the_last_seconds(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    rows = {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}]}
    with dashboard(bundled_server.url, tab="models") as page:
        digits = entry_of(page, "digits-10/1")
        expect(fact(digits, "p50")).to_have_text(DASH)
        for _ in range(40):
            assert bundled_server.post("/v2/models/digits-10/infer", rows).ok
            page.wait_for_timeout(100)
        expect(fact(digits, "p50")).to_have_text(re.compile("[0-9] (µs|ms|s)$"))
        expect(fact(digits, "p99")).to_have_text(re.compile("[0-9] (µs|ms|s)$"))
        assert float(fact(digits, "requests/s").inner_text()) > 0
        trend = digits.get_by_role("img", name="Requests per second over the last minutes")
        assert not trend.get_attribute("aria-label").endswith("maximum 0")  # type: ignore[union-attr]
        page.evaluate("async () => (await import('/dashboard/state/store.js')).publish('live', null)")
        expect(fact(digits, "p50")).not_to_have_text(DASH, timeout=1)


@pytest.mark.thorough
def test_the_last_chosen_model_is_shown(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """A late response about the previous model is ignored."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="models", path="/#model=digits-10/1") as page:
        expect(summary(page).get_by_role("heading")).to_have_text("digits-10/1")
        page.wait_for_load_state("networkidle")
        held_routes: list[Route] = []

        def hold(route: Route) -> None:
            held_routes.append(route)

        page.route("**/models/own/versions/1/certificate", hold)
        entry_of(page, "own/1").get_by_role("button").click()
        wait_until(page, lambda: held_routes)
        entry_of(page, "pictures/1").get_by_role("button").click()
        expect(summary(page).get_by_role("heading")).to_have_text("pictures/1")
        for route in held_routes:
            route.continue_()
        page.wait_for_timeout(1000)
        expect(summary(page).get_by_role("heading")).to_have_text("pictures/1")
        expect(chosen(page)).to_have_text("pictures/1")


def test_an_unreadable_model_shows_a_message(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """The message is the API's own, and the user can retry."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="models", allowed="500") as page:
        expect(summary(page).get_by_role("heading")).to_be_visible()
        path = "**/models/own/versions/1/certificate"
        page.route(path, responding(500, {"error": "the shelf fell down"}))
        entry_of(page, "own/1").get_by_role("button").click()
        expect(summary(page)).to_contain_text("own/1 could not be loaded: the shelf fell down")
        page.unroute(path)
        summary(page).get_by_role("button", name="Try again").click()
        expect(summary(page).get_by_role("heading")).to_have_text("own/1")
        expect(summary(page)).not_to_contain_text("could not be loaded")


def test_an_unreadable_list_shows_a_message(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The message is the API's own; an empty repository has a hint how to add a model."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, tab="models", allowed="500") as page:
        page.route("**/v2/repository/index", responding(500, {"error": "the shelf fell down"}))
        page.reload()
        expect(page.locator("#models")).to_contain_text("could not be loaded: the shelf fell down")
        page.route("**/v2/repository/index", responding(200, []))
        page.reload()
        expect(page.locator("#models")).to_contain_text("The repository contains no models")
        expect(page.locator("#try")).to_contain_text("There is no model to try")


def test_a_replaced_model_file_is_detected(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Once a minute the page checks whether its model's file was replaced."""
    from playwright.sync_api import expect

    certificate = bundled_server.get("/v2/models/digits-10/certificate").json()
    with dashboard(bundled_server.url, tab="models") as page:
        page.add_init_script("""
          const plain = setInterval;
          window.setInterval = (call, every) => {
            if (every === 60_000) window.aMinuteLater = call;
            return plain(call, every);
          };
        """)
        page.reload()
        expect(summary(page)).to_contain_text("Proved In exact arithmetic")
        page.route("**/certificate", responding(200, certificate | {"digest": "0" * 64, "parity": None}))
        page.evaluate("() => window.aMinuteLater()")
        expect(summary(page)).to_contain_text("Nothing proved")
        expect(fact(entry_of(page, "digits-10/1"), "proof")).to_have_text("unknown")


def test_the_precision_of_the_device_is_shown(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The proof is for fp32, so the page says so if the service computes in bf16."""
    from playwright.sync_api import expect

    certificate = bundled_server.get("/v2/models/digits-10/certificate").json()
    with dashboard(bundled_server.url, tab="models") as page:
        expect(fact(summary(page), "Runs on")).to_have_text("cpu")
        expect(summary(page)).not_to_contain_text("The proof is for fp32")
        on_device = {"device": "openvino", "device_precision": "bf16"}
        page.route("**/certificate", responding(200, certificate | on_device))
        page.reload()
        expect(fact(summary(page), "Runs on")).to_have_text("openvino, in bf16")
        expect(summary(page)).to_contain_text("The proof is for fp32. This service computes in bf16.")
        expect(fact(entry_of(page, "digits-10/1"), "precision")).to_have_text("fp32, computed in bf16")
