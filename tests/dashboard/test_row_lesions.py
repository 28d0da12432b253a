"""Closing and opening layers in section "Gates of this row"."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support.browser import DOCUMENT_IDLE, OpenDashboard, hold_first, model_path
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Route
from tests.support.dashboard_row import CELLS, chart, choose_sample, layer_switch, publish_row

pytestmark = pytest.mark.browser


LESIONED = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const lesioned = current("lesioned");
  if (!lesioned) return lesioned;
  const { levers, outputs } = lesioned;
  return { levers: Object.fromEntries(levers), outputs: Array.from(outputs[0].data) };
}"""
# waits for the lesion of the current reading
WAIT_FOR_LESION = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  while (current("lesioned")?.reading !== current("reading")) await new Promise((go) => setTimeout(go, 20));
}"""


def test_closing_a_layer_changes_the_prediction_at_once(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """The page requests exactly these layers; "Reset layers" undoes it."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        inputs = choose_sample(page, bundled_server, "digits-10", 3)
        effect = page.locator("#row .effect")
        assert page.evaluate(LESIONED) is None
        layer_switch(page, 0, "closed").check()
        expect(effect).to_contain_text("With layer 0 closed")
        layer_switch(page, 2, "closed").check()
        layer_switch(page, 9, "open").check()
        expect(effect).to_contain_text(
            re.compile(r"With layers 0, 2 closed and layer 9 open: \S+ \(.+ %\); as trained: ")
        )
        body = {"inputs": inputs, "close": [0, 2], "open": [9]}
        expected = bundled_server.post("/v2/models/digits-10/lesion", body).json()["lesioned"]["outputs"][0][
            "data"
        ]
        lesioned = page.evaluate(LESIONED)
        assert lesioned["levers"] == {"0": "closed", "2": "closed", "9": "open"}
        np.testing.assert_allclose(lesioned["outputs"], expected, rtol=1e-6)
        # the states of the layers stay when the row changes
        other = choose_sample(page, bundled_server, "digits-10", 4)
        expected = bundled_server.post("/v2/models/digits-10/lesion", body | {"inputs": other}).json()
        expected = expected["lesioned"]["outputs"][0]["data"]
        page.evaluate(WAIT_FOR_LESION)
        np.testing.assert_allclose(page.evaluate(LESIONED)["outputs"], expected, rtol=1e-6)
        page.locator("#row").get_by_role("button", name="Reset layers").click()
        expect(effect).to_be_hidden()
        expect(layer_switch(page, 2, "as trained")).to_be_checked()
        assert page.evaluate(LESIONED) is None


def test_closing_a_layer_moves_the_charts(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Map, route and outputs show the gates of the network with the layer closed."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        inputs = choose_sample(page, bundled_server, "digits-10", 3)
        layer_switch(page, 2, "closed").check()
        expect(page.locator("#row .row-title")).to_contain_text("with layer 2 closed")
        body = {"inputs": inputs, "close": [2]}
        answer = bundled_server.post("/v2/models/digits-10/gates?detail=rows&blocks=true", body).json()
        tensors = {tensor["name"]: np.array(tensor["data"]) for tensor in answer["tensors"]}
        page.evaluate(DOCUMENT_IDLE)
        shown = np.array(chart(page, "T of this row").evaluate(CELLS))
        np.testing.assert_allclose(
            shown, [tensors[f"layer{n:02}.transform_gate"] for n in range(10)], rtol=1e-6
        )
        assert (shown[2] == 0).all()
        carried = chart(page, "Share that each of 10 layers carries over").evaluate(
            "(plot) => plot.data[0].y"
        )
        np.testing.assert_allclose(carried, [gate["carried"] for gate in answer["gates"]], rtol=1e-6)
        outputs = np.array(chart(page, "Outputs of 10 layers").evaluate(CELLS))
        np.testing.assert_allclose(outputs[9], tensors["layer09.output"], rtol=1e-6, atol=1e-7)


def test_layer_switches_work_by_keyboard(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Tab leads from the list to the switch of the chosen layer, and arrow keys change it."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10")
        look = page.get_by_role("radio", name="show layer 0", exact=True)
        look.focus()
        look.press("ArrowDown")
        page.keyboard.press("Tab")
        expect(layer_switch(page, 1, "as trained")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(layer_switch(page, 1, "closed")).to_be_checked()
        expect(page.locator("#row .effect")).to_contain_text("With layer 1 closed")
        page.keyboard.press("Tab")
        # past the switches of all other layers
        assert page.evaluate("document.activeElement.closest('.list')") is None


@pytest.mark.thorough
def test_an_outdated_lesion_response_is_ignored(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The later of two requests counts, even if the earlier one is answered last."""
    from playwright.sync_api import Error, expect

    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10")
        held_routes: list[Route] = []

        page.route("**/gates", lambda route: hold_first(held_routes, route))
        layer_switch(page, 3, "closed").check()
        layer_switch(page, 3, "open").check()
        expect(page.locator("#row .effect")).to_contain_text("; as trained: ")
        # the page aborted the request, so it may be gone
        with contextlib.suppress(Error):
            held_routes[0].continue_()
        page.wait_for_timeout(500)
        assert page.evaluate(LESIONED)["levers"] == {"3": "open"}


@pytest.mark.thorough
def test_a_refused_lesion_shows_the_message_of_the_api(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="422") as page:
        choose_sample(page, bundled_server, "digits-10")
        error = {"error": "lesion: NaN <b>there</b>"}
        page.route(re.compile("/(gates|lesion)$"), lambda route: route.fulfill(status=422, json=error))
        layer_switch(page, 3, "closed").check()
        effect = page.locator("#row .effect")
        expect(effect).to_have_text("With layer 3 closed: lesion: NaN <b>there</b>")
        assert page.evaluate(LESIONED) is None
        page.unroute(re.compile("/(gates|lesion)$"))
        layer_switch(page, 4, "closed").check()
        expect(effect).to_contain_text("With layers 3, 4 closed: ")
        expect(effect).to_contain_text("; as trained: ")


@pytest.mark.thorough
def test_fixed_layers_show_the_reason(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """A layer whose gate has no bias in the file shows a note instead of its switch."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path("own")) as page:
        publish_row(
            page, "own", "made", [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [0.5] * 6}]
        )
        chart(page, "T of this row")
        expect(page.get_by_role("radiogroup", name=re.compile("^layer"))).to_have_count(3)
        page.evaluate("""async () => {
          const { current, publish } = await import("/dashboard/state/store.js");
          const [reading, about] = [current("reading"), structuredClone(current("model"))];
          about.gates[1].levers = [];
          publish("model", about);
          publish("reading", reading);
        }""")
        expect(page.get_by_text("fixed: it has no bias to change")).to_have_count(1)
        expect(page.get_by_role("radiogroup", name=re.compile("^layer"))).to_have_count(2)
