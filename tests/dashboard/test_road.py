"""The road: a row's way through the layers, which a press on a layer changes."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, model_path, open_tab, wait_until_idle
from tests.support.dashboard_row import choose_sample, layer_switch, publish_row, samples
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

# the width of each carried lane, as a share of the road
CARRIED = """() => {
  const height = (node) => node.height.baseVal.value;
  const road = height(document.querySelector(".road-track .asphalt"));
  return [...document.querySelectorAll(".road-track .carried")].map((lane) => height(lane) / road);
}"""
# waits until the lanes have stopped moving
LANES_AT_REST = """async () => {
  const lanes = () => document.querySelector(".road-track").outerHTML;
  for (let before = "", n = 0; n < 50 && before !== lanes(); n += 1) {
    before = lanes();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}"""


def layer_button(page: Page, layer: int) -> Locator:
    return page.get_by_role("button", name=f"Close layer {layer}", exact=True)


def carried_shares(page: Page) -> list[float]:
    page.evaluate(LANES_AT_REST)
    return page.evaluate(CARRIED)


def carried_by_api(server: Server, inputs: list[Any], **levers: Any) -> list[float]:
    answer = server.post("/v2/models/digits-10/gates", {"inputs": inputs, **levers}).json()
    return [gate["carried"] for gate in answer["gates"]]


def test_lanes_show_the_shares_of_the_row(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url) as page:
        for number in (3, 4):
            inputs = choose_sample(page, bundled_server, "digits-10", number)
            np.testing.assert_allclose(
                carried_shares(page), carried_by_api(bundled_server, inputs), atol=1e-3
            )


def test_a_press_closes_a_layer_and_changes_what_follows(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """A barrier blocks its lane, later lanes and the sign change, and the switch in the list agrees."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        inputs = choose_sample(page, bundled_server, "digits-10", 3)
        as_is = carried_shares(page)
        button, barriers = layer_button(page, 4), page.locator(".road-track .barrier:not(.absent)")
        expect(button).to_have_attribute("aria-pressed", "false")
        expect(barriers).to_have_count(0)
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(barriers).to_have_count(1)
        expect(layer_switch(page, 4, "closed")).to_be_checked()
        expect(page.locator(".road-answer")).to_contain_text("was 3")
        closed = carried_shares(page)
        np.testing.assert_allclose(closed, carried_by_api(bundled_server, inputs, close=[4]), atol=1e-3)
        assert (closed[4], closed[:4]) == (1, as_is[:4])
        assert np.abs(np.subtract(closed, as_is)[5:]).max() > 1e-3
        assert axe_violations(page) == []
        # by keyboard: arrow keys lead to the other layers, and a press resets the layer
        button.press("ArrowRight")
        expect(layer_button(page, 5)).to_be_focused()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Space")
        expect(button).to_have_attribute("aria-pressed", "false")
        expect(layer_switch(page, 4, "as trained")).to_be_checked()
        expect(page.locator(".road-answer")).not_to_contain_text("was")
        assert carried_shares(page) == as_is
        layer_switch(page, 7, "open").check()
        expect(barriers).to_have_count(1)


def row_that_some_layers_flip(server: Server) -> tuple[list[Any], list[Any]]:
    """The mean of two samples, and the entries of the lesion curve that flip its class."""
    for a, b in combinations([sample["inputs"][0] for sample in samples(server, "digits-10")], 2):
        inputs = [{**a, "data": (np.add(a["data"], b["data"]) / 2).tolist()}]
        answer = server.post("/v2/models/digits-10/lesion", {"inputs": inputs, "curve": True}).json()
        layers = answer["curve"]["layers"]
        flipping = [entry for entry in layers if entry["flipped"]]
        if 1 < len(flipping) < len(layers):
            return inputs, flipping
    raise AssertionError("expected a mean of two samples whose class a layer flips")


def test_the_focus_ring_of_the_lever_leaves_its_words_free(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """The words below the lever begin where the ring ends, or later."""
    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10", 3)
        lever = page.locator(".lever input")
        lever.press("ArrowLeft")
        ring = lever.evaluate(
            """(input) => {
              const { outlineOffset, outlineWidth } = getComputedStyle(input);
              const { bottom } = input.getBoundingClientRect();
              return bottom + parseFloat(outlineOffset) + parseFloat(outlineWidth);
            }"""
        )
        words = page.locator(".lever-ends").evaluate("(node) => node.getBoundingClientRect().top")
        assert ring <= words


def test_the_layer_that_flips_the_answer_is_found(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """One request closes each layer in turn; the one that takes most from the class stays closed."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        inputs, flipping = row_that_some_layers_flip(bundled_server)
        publish_row(page, "digits-10", "mixed", inputs)
        strongest = min(flipping, key=lambda entry: entry["change"])["layer"]
        before = len([url for url in page.log.requests if url.endswith("/lesion")])
        page.get_by_role("button", name="Which layer flips it?").click()
        expect(page.locator(".road-message")).to_contain_text(
            f"Layer {strongest} alone, closed here, flips the answer."
        )
        expect(layer_button(page, strongest)).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".layer-button.flips")).to_have_count(len(flipping))
        expect(page.locator(".road-answer.changed")).to_be_visible()
        assert len([url for url in page.log.requests if url.endswith("/lesion")]) == before + 1
        # the marks belong to that row
        choose_sample(page, bundled_server, "digits-10", 0)
        expect(page.locator(".layer-button.flips")).to_have_count(0)


def test_a_search_that_finds_no_layer_leaves_the_levers(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        for sample in samples(bundled_server, "digits-10"):
            body = {"inputs": sample["inputs"], "curve": True}
            layers = bundled_server.post("/v2/models/digits-10/lesion", body).json()["curve"]["layers"]
            if not any(entry["flipped"] for entry in layers):
                break
        else:
            raise AssertionError("expected a sample whose class no layer flips")
        publish_row(page, "digits-10", "steady", sample["inputs"])
        layer_switch(page, 1, "open").check()
        page.get_by_role("button", name="Which layer flips it?").click()
        expect(page.locator(".road-message")).to_contain_text("No layer flips this answer alone. Layer ")
        expect(layer_switch(page, 1, "open")).to_be_checked()
        expect(page.locator(".layer-button[aria-pressed=true]")).to_have_count(0)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1400, 900)])
def test_board_answer_and_road_are_on_the_first_screen(
    dashboard: OpenDashboard, bundled_server: Server, width: int, height: int
) -> None:
    with dashboard(bundled_server.url, width=width, height=height) as page:
        wait_until_idle(page)
        for place in (".board", ".road-answer", ".road-scene"):
            box = page.locator(place).first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= height, place
            assert box["x"] >= 0, place
            assert box["x"] + box["width"] <= width, place


def test_other_kinds_of_models_have_a_road(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """A recurrent layer has a stretch per depth and one button; without gates there is a sentence."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path("steps")) as page:
        data = np.linspace(0, 1, 64).tolist()
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": data}]
        publish_row(page, "steps", "made", inputs)
        gates = all_models_server.post("/v2/models/steps/gates", {"inputs": inputs}).json()["gates"]
        expected = [
            np.mean([gate["carried"] for gate in gates if gate["depth"] == depth]) for depth in (0, 1)
        ]
        np.testing.assert_allclose(carried_shares(page), expected, atol=1e-3)
        layer_button(page, 0).click()
        expect(page.locator(".road-track .barrier:not(.absent)")).to_have_count(2)
        assert carried_shares(page) == [1, 1]
        page.goto(all_models_server.url + model_path("bare"))
        expect(page.locator(".road")).to_contain_text("bare has no gates that are known")
        expect(page.locator(".road-scene")).to_be_hidden()


def test_numbers_are_thinned_and_a_long_road_scrolls_in_its_box(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """Shown with a hundred layers, which are made from those of the model."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, width=390, height=844) as page:
        choose_sample(page, bundled_server, "digits-10", 3)
        page.evaluate("""async () => {
          const { current, publish } = await import("/dashboard/state/store.js");
          const model = structuredClone(current("model"));
          const [gate] = model.gates;
          const copy = (_, layer) => ({ ...gate, layer, name: `gate ${layer}` });
          model.gates = Array.from({ length: 100 }, copy);
          publish("model", model);
        }""")
        expect(page.locator(".layer-button")).to_have_count(100)
        expect(page.locator(".road h3")).to_have_text("The way through 100 layers")
        shown = page.locator(".layer-number:not(.thinned)")
        places = shown.evaluate_all("(nodes) => nodes.map((node) => node.getBoundingClientRect().x)")
        assert min(b - a for a, b in pairwise(places)) > 20
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
        assert page.locator(".road-scroll").evaluate("(node) => node.scrollWidth > 2 * node.clientWidth")


def test_a_tab_begins_at_its_top(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url) as page:
        wait_until_idle(page)
        page.evaluate("scrollTo(0, 900)")
        for tab in ("Gates", "Try it"):
            assert page.evaluate("scrollY") > 500
            open_tab(page, tab)
            assert page.evaluate("scrollY") == 0
            wait_until_idle(page)
            page.evaluate("scrollTo(0, 900)")


def test_a_kept_road_goes_with_its_model(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The road of A is not drawn for a moment without a model, or with the next one."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10", 3)
        page.get_by_role("button", name="Keep as A").click()
        expect(page.locator(".kept-road")).to_contain_text("A: sample 3")
        page.evaluate("""async () => (await import("/dashboard/state/store.js")).publish("model", null)""")
        expect(page.locator(".kept-road")).to_be_hidden()
