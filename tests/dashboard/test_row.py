"""Section "Gates of this row"."""

from __future__ import annotations

import contextlib
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.browser import (
    DOCUMENT_IDLE,
    OpenDashboard,
    axe_violations,
    hold_first,
    model_path,
    wait_until_idle,
)
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.browser

# publishes a row as the section "Try it" does, and waits for its reading
PUT = """async ([model, title, inputs]) => {
  const { current, publish } = await import("/dashboard/state/store.js");
  const until = async (holds) => {
    for (let n = 0; !holds(); n += 1) {
      if (n > 1000) throw new Error(`expected an answer, got ${JSON.stringify(current("request"))}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  await until(() => current("model")?.name === model);
  const row = { title, inputs };
  publish("row", row);
  await until(() => current("reading")?.row === row);
}"""
LESIONED = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const lesioned = current("lesioned");
  if (!lesioned) return lesioned;
  const { closed, open, outputs } = lesioned;
  return { closed, open, outputs: Array.from(outputs[0].data) };
}"""
# waits for the lesion of the current reading
WAIT_FOR_LESION = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  while (current("lesioned")?.reading !== current("reading")) await new Promise((go) => setTimeout(go, 20));
}"""
CELLS = "(plot) => plot.data[0].z.map((row) => Array.from(row))"


def samples(server: Server, model: str) -> list[Any]:
    return server.get(f"/v2/models/{model}/samples").json()["samples"]


def choose_sample(page: Page, server: Server, model: str, number: int = 0) -> list[Any]:
    """Choose a sample and return its inputs."""
    sample = samples(server, model)[number]
    publish_row(page, model, f"sample {number}", sample["inputs"])
    return sample["inputs"]


def publish_row(page: Page, model: str, title: str, inputs: list[Any]) -> None:
    page.evaluate(PUT, [model, title, inputs])
    page.evaluate(DOCUMENT_IDLE)


def gates(server: Server, model: str, inputs: list[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """T of each gate and the outputs of the layers, from the API."""
    answer = server.post(f"/v2/models/{model}/gates?detail=rows&blocks=true", {"inputs": inputs}).json()
    return {tensor["name"]: np.array(tensor["data"]).reshape(tensor["shape"]) for tensor in answer["tensors"]}


def chart(page: Page, label: str) -> Locator:
    """The chart whose label starts with this text, once it is drawn."""
    plot = page.locator("#row").get_by_role("img", name=re.compile(f"^{label}"))
    plot.locator(".main-svg").first.wait_for()
    return plot


def layer_switch(page: Page, layer: int, state: str) -> Locator:
    group = page.get_by_role("radiogroup", name=f"layer {layer}", exact=True)
    return group.get_by_role("radio", name=state, exact=True)


def test_the_map_shows_the_gates_of_the_api(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The tooltip names layer, unit and value."""
    with dashboard(bundled_server.url) as page:
        inputs = choose_sample(page, bundled_server, "digits-10", 7)
        gate_values = gates(bundled_server, "digits-10", inputs)
        expected = np.stack([gate_values[f"layer{n:02}.transform_gate"][0] for n in range(10)])
        plot = chart(page, "T of this row")
        np.testing.assert_allclose(plot.evaluate(CELLS), expected, rtol=1e-6)
        plot.scroll_into_view_if_needed()
        ground = plot.locator(".nsewdrag").bounding_box()
        assert ground is not None
        count = expected.shape[1]
        for layer, unit in ((2, 5), (9, count - 1)):
            x = ground["x"] + (unit + 0.5) / count * ground["width"]
            y = ground["y"] + (layer + 0.5) / 10 * ground["height"]
            page.mouse.move(x - 2, y)
            page.mouse.move(x, y)
            hover = plot.locator(".hoverlayer")
            hover.get_by_text(f"layer {layer}").wait_for()
            text = hover.text_content() or ""
            match = re.search(r"layer (\d+)unit (\d+)T ([\d.e-]+)", text)
            assert match is not None, text
            assert (int(match[1]), int(match[2])) == (layer, unit)
            assert float(match[3]) == pytest.approx(expected[layer, unit], rel=1e-3)


def test_a_layer_is_chosen_by_mouse_and_keyboard(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A click in the map or an arrow key in the list chooses a layer."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        inputs = choose_sample(page, bundled_server, "digits-10")
        ground = chart(page, "T of this row").locator(".nsewdrag").bounding_box()
        assert ground is not None
        page.mouse.click(ground["x"] + 40, ground["y"] + 4.5 / 10 * ground["height"])
        expect(page.get_by_role("heading", name="Layer 4", exact=True)).to_be_visible()
        look = page.get_by_role("radio", name="show layer 4", exact=True)
        expect(look).to_be_checked()
        look.press("ArrowDown")
        expect(page.get_by_role("heading", name="Layer 5", exact=True)).to_be_visible()
        bars = chart(page, "T of layer 5 in")
        expected = gates(bundled_server, "digits-10", inputs)["layer05.transform_gate"][0]
        np.testing.assert_allclose(bars.evaluate("(plot) => plot.data[0].y"), expected, rtol=1e-6)
        frames = chart(page, "T of this row").evaluate("(plot) => plot.layout.shapes.map((one) => one.y0)")
        assert frames == [4.5, 4.5]


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
            re.compile(r"With layers 0, 2 closed and layer 9 open: \S+ \(.+ %\); as is: ")
        )
        body = {"inputs": inputs, "close": [0, 2], "open": [9]}
        expected = bundled_server.post("/v2/models/digits-10/lesion", body).json()["lesioned"]["outputs"][0][
            "data"
        ]
        lesioned = page.evaluate(LESIONED)
        assert (lesioned["closed"], lesioned["open"]) == ([0, 2], [9])
        np.testing.assert_allclose(lesioned["outputs"], expected, rtol=1e-6)
        # the states of the layers stay when the row changes
        other = choose_sample(page, bundled_server, "digits-10", 4)
        expected = bundled_server.post("/v2/models/digits-10/lesion", body | {"inputs": other}).json()
        expected = expected["lesioned"]["outputs"][0]["data"]
        page.evaluate(WAIT_FOR_LESION)
        np.testing.assert_allclose(page.evaluate(LESIONED)["outputs"], expected, rtol=1e-6)
        page.get_by_role("button", name="Reset layers").click()
        expect(effect).to_be_hidden()
        expect(layer_switch(page, 2, "as is")).to_be_checked()
        assert page.evaluate(LESIONED) is None


def test_layer_switches_work_by_keyboard(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Tab leads from the list to the switch of the chosen layer, and arrow keys change it."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10")
        look = page.get_by_role("radio", name="show layer 0", exact=True)
        look.focus()
        look.press("ArrowDown")
        page.keyboard.press("Tab")
        expect(layer_switch(page, 1, "as is")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(layer_switch(page, 1, "closed")).to_be_checked()
        expect(page.locator("#row .effect")).to_contain_text("With layer 1 closed")
        page.keyboard.press("Tab")
        # past the switches of all other layers
        assert page.evaluate("document.activeElement.closest('.list')") is None


@pytest.mark.thorough
def test_an_outdated_lesion_response_is_ignored(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Of two requests, the later one counts, even if the earlier one is answered last."""
    from playwright.sync_api import Error, expect

    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10")
        held_routes: list[Route] = []

        page.route("**/lesion", lambda route: hold_first(held_routes, route))
        layer_switch(page, 3, "closed").check()
        layer_switch(page, 3, "open").check()
        expect(page.locator("#row .effect")).to_contain_text("; as is: ")
        # the page aborted the request, so it may be gone
        with contextlib.suppress(Error):
            held_routes[0].continue_()
        page.wait_for_timeout(500)
        assert page.evaluate(LESIONED)["open"] == [3]
        assert page.evaluate(LESIONED)["closed"] == []


@pytest.mark.thorough
def test_a_refused_lesion_shows_the_message_of_the_api(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="422") as page:
        choose_sample(page, bundled_server, "digits-10")
        page.route(
            "**/lesion", lambda route: route.fulfill(status=422, json={"error": "lesion: NaN <b>there</b>"})
        )
        layer_switch(page, 3, "closed").check()
        effect = page.locator("#row .effect")
        expect(effect).to_have_text("With layer 3 closed: lesion: NaN <b>there</b>")
        assert page.evaluate(LESIONED) is None
        page.unroute("**/lesion")
        layer_switch(page, 4, "closed").check()
        expect(effect).to_contain_text("With layers 3, 4 closed: ")
        expect(effect).to_contain_text("; as is: ")


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


def test_independent_carry_gates_are_shown(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path("own")) as page:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [0.1, -2, 3, 0.4, -0.5, 1]}]
        publish_row(page, "own", "made", inputs)
        expected = gates(all_models_server, "own", inputs)["layer00.carry_gate"][0]
        expect(page.locator("#row").get_by_text("C is an independent gate")).to_be_visible()
        page.get_by_label("Gate", exact=True).select_option("carry gate C")
        bars = chart(page, "C of layer 0 in 6 units")
        np.testing.assert_allclose(bars.evaluate("(plot) => plot.data[0].y"), expected, rtol=1e-6)
        page.get_by_role("radio", name="show layer 1", exact=True).check()
        expect(page.locator("#row").get_by_text("of a projection of the input")).to_be_visible()


@pytest.mark.thorough
def test_pictures_are_shown_channel_by_channel(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """The map shows means over pixels; the details show one channel or the mean of all."""
    with dashboard(all_models_server.url, path=model_path("pictures")) as page:
        inputs = choose_sample(page, all_models_server, "pictures", 1)
        gate_values = gates(all_models_server, "pictures", inputs)["layer00.transform_gate"][0]
        means = chart(page, "T of this row").evaluate(CELLS)
        np.testing.assert_allclose(means[0], gate_values.mean((1, 2)), rtol=1e-5)
        pixels = chart(page, "T of layer 0 over 8 by 8 pixels")
        np.testing.assert_allclose(pixels.evaluate(CELLS), gate_values.mean(0), rtol=1e-5)
        page.get_by_label("Channel").select_option("2")
        page.get_by_role("heading", name="T of channel 2").wait_for()
        page.wait_for_function(
            "(value) => Math.abs([...document.querySelectorAll('#row .plot')]"
            ".find((plot) => plot.ariaLabel.includes('pixels')).data[0].z[0][0] - value) < 1e-5",
            arg=gate_values[2, 0, 0],
        )
        np.testing.assert_allclose(pixels.evaluate(CELLS), gate_values[2], rtol=1e-6)


@pytest.mark.thorough
def test_steps_are_shown_one_by_one(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """The map has a row per depth of a recurrent layer; the details show all steps."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path("steps")) as page:
        data = np.linspace(0, 1, 64).tolist()
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": data}]
        publish_row(page, "steps", "made", inputs)
        gate_values = gates(all_models_server, "steps", inputs)
        steps = [
            np.stack([gate_values[f"layer00.depth{d}.time{t}.transform_gate"][0] for t in range(8)])
            for d in (0, 1)
        ]
        means = chart(page, "T of this row: 2 layers by 6 units").evaluate(CELLS)
        np.testing.assert_allclose(means, [values.mean(0) for values in steps], rtol=1e-5)
        page.get_by_role("radio", name="show layer 0.1", exact=True).check()
        shown = chart(page, "T of layer 0.1: 8 places by 6 units").evaluate(CELLS)
        np.testing.assert_allclose(shown, steps[1], rtol=1e-6)
        expect(page.get_by_text("set together with layer 0")).to_be_visible()


def test_the_route_of_a_row_is_shown(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        inputs = choose_sample(page, bundled_server, "digits-10", 5)
        answer = bundled_server.post("/v2/models/digits-10/gates", {"inputs": inputs}).json()
        drawn = chart(page, "Share that each of 10 layers carries over").evaluate("(plot) => plot.data[0].y")
        np.testing.assert_allclose(drawn, [gate["carried"] for gate in answer["gates"]], rtol=1e-6)
        row = page.locator("#row")
        expect(row.get_by_text(f"{answer['route']['effective_depth'][0]:.3g} of 10 layers")).to_be_visible()
        expect(
            row.get_by_text("of the input of the first layer leaves the last one unchanged")
        ).to_be_visible()
        gate_values = gates(bundled_server, "digits-10", inputs)
        y = [gate_values[f"layer{n:02}.output"] for n in range(10)]
        expected = [np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in pairwise(y)]
        changes = chart(page, "Distance of the output of each").evaluate("(plot) => plot.data[0].y")
        assert changes[0] is None
        np.testing.assert_allclose(changes[1:], expected, rtol=1e-5)
        outputs = chart(page, "Outputs of 10 layers").evaluate(CELLS)
        np.testing.assert_allclose(outputs, np.concatenate(y), rtol=1e-6, atol=1e-7)


def test_two_rows_are_compared(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        row_a = choose_sample(page, bundled_server, "digits-10", 1)
        row = page.locator("#row")
        page.get_by_role("button", name="Keep as A").click()
        expect(row.get_by_text("Now choose or draw another row")).to_be_visible()
        row_b = choose_sample(page, bundled_server, "digits-10", 8)
        stacked = [
            np.concatenate([gate_values[f"layer{n:02}.transform_gate"] for n in range(10)])
            for gate_values in (gates(bundled_server, "digits-10", inputs) for inputs in (row_a, row_b))
        ]
        a, b = chart(page, "T of A: sample 1"), chart(page, "T of B: sample 8")
        np.testing.assert_allclose(a.evaluate(CELLS), stacked[0], rtol=1e-6)
        np.testing.assert_allclose(b.evaluate(CELLS), stacked[1], rtol=1e-6)
        for plot in (a, b):
            assert plot.evaluate("(plot) => [plot.data[0].zmin, plot.data[0].zmax]") == [0, 1]
        apart = chart(page, "T of B minus T of A").evaluate(CELLS)
        np.testing.assert_allclose(apart, stacked[1] - stacked[0], atol=1e-6)
        expect(row.get_by_role("row", name=re.compile("^prediction 1 .* 8 "))).to_be_visible()
        page.get_by_role("button", name="Discard A").click()
        expect(row.get_by_role("heading", name="Comparison of A and B")).to_be_hidden()


@pytest.mark.thorough
def test_missing_data_is_explained(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """No row yet, no gates at all, gates that are too large, and a row that was refused."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path("bare")) as page:
        row = page.locator("#row")
        expect(row.get_by_text("No gates are known for bare.")).to_be_visible()
        assert row.locator(".plot").count() == 0
    with dashboard(all_models_server.url, path=model_path("own"), allowed="400") as page:
        row = page.locator("#row")
        expect(row.get_by_text("Draw or choose a row under")).to_be_visible()
        publish_row(
            page, "own", "made", [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1] * 6}]
        )
        chart(page, "Outputs of 3 layers")
        page.evaluate("""async () => {
          const { current, publish } = await import("/dashboard/state/store.js");
          publish("reading", { ...current("reading"), tensors: new Map(), missing: "Too <b>many</b>." });
        }""")
        expect(row.get_by_text("Too <b>many</b>.").first).to_be_visible()
        # the summary of the gates is shown all the same
        expect(page.get_by_role("img", name="Share that each of 3 layers carries over.")).to_be_visible()
        bad = [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1e39, *[1] * 5]}]
        page.evaluate(
            "async (inputs) => (await import('/dashboard/state/store.js'))"
            ".publish('row', { title: '', inputs })",
            bad,
        )
        expect(row.get_by_text("The gates of this row could not be loaded: ")).to_be_visible()


def test_names_and_labels_are_shown_as_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path(MARKUP)) as page:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [0.5] * 6}]
        metadata = all_models_server.get(f"/v2/models/{quote(MARKUP, safe='')}").json()
        inputs[0] |= {"name": metadata["inputs"][0]["name"]}
        shape = [1 if length < 0 else length for length in metadata["inputs"][0]["shape"]]
        inputs[0] |= {"shape": shape, "data": [0.5] * int(np.prod(shape))}
        publish_row(page, MARKUP, "<i>mine</i>", inputs)
        expect(page.locator("#row .row-title")).to_contain_text("<i>mine</i>")
        page.evaluate(
            """async ([names]) => {
              const { drawHeatmap } = await import("/dashboard/charts/heatmap.js");
              const figure = document.createElement("figure");
              document.querySelector("#row .body").prepend(figure);
              await drawHeatmap(figure, {
                label: "strange",
                z: [[1, 2, 3], [4, 5, 6]],
                rows: ["<b>x</b>", '<a href="http://elsewhere">y</a>'],
                columns: { title: "<i>class</i>", names },
                scale: "plain",
                hover: { row: "a", column: "b", value: "c" },
              });
            }""",
            [list(LABELS)],
        )
        plot = page.get_by_role("img", name="strange")
        expect(plot.locator(".ytick text").first).to_have_text("<b>x</b>")
        expect(plot.locator(".xtitle")).to_have_text("<i>class</i>")
        assert plot.locator("a").count() == 0
        plot.scroll_into_view_if_needed()
        ground = plot.locator(".nsewdrag").bounding_box()
        assert ground is not None
        for x in (18, 20):
            page.mouse.move(ground["x"] + x, ground["y"] + ground["height"] - 5)
        expect(plot.locator(".hoverlayer")).to_contain_text('a <a href="http://elsewhere">y</a>')
        expect(plot.locator(".hoverlayer")).to_contain_text(f"b {LABELS[0]}")
        assert plot.locator("a").count() == 0
        assert page.title() != "owned"


@pytest.mark.thorough
def test_charts_follow_theme_and_size(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url) as page:
        choose_sample(page, bundled_server, "digits-10")
        plot = chart(page, "Outputs of 10 layers")
        colours = "(plot) => JSON.stringify(plot.data[0].colorscale)"
        before = plot.evaluate(colours)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(
            "([plot, before]) => JSON.stringify(plot.data[0].colorscale) !== before",
            arg=[plot.element_handle(), before],
        )
        page.set_viewport_size({"width": 600, "height": 900})
        page.wait_for_function(
            """(plot) => {
              const { clientWidth } = plot;
              return clientWidth < 600 && plot.querySelector(".main-svg").clientWidth === clientWidth;
            }""",
            arg=plot.element_handle(),
        )
        left = page.evaluate(
            """async () => {
              const { drawChart, eraseChart } = await import("/dashboard/charts/chart.js");
              const figure = document.createElement("figure");
              document.querySelector("#row .body").prepend(figure);
              const make = () => ({ data: [{ y: [1, 2] }], layout: {} });
              await drawChart(figure, { label: "short", make, table: () => ({ head: [], rows: [] }) });
              const there = figure.querySelectorAll("svg").length > 0;
              eraseChart(figure);
              return [there, figure.childNodes.length];
            }"""
        )
        assert left == [True, 0]


def test_charts_without_their_library_show_a_message(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """The table still works, and the next chart tries to load the library again."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, allowed="plotly|ERR_FAILED") as page:
        page.route("**/plotly.js*", lambda route: route.abort())
        # another section may already have loaded the library
        page.reload()
        choose_sample(page, bundled_server, "digits-10", 2)
        row = page.locator("#row")
        expect(row.get_by_text("The chart could not be drawn: the chart library").first).to_be_visible()
        row.get_by_text("Data table").first.click()
        expect(row.locator("table").first.get_by_role("row")).to_have_count(11)
        page.unroute("**/plotly.js*")
        choose_sample(page, bundled_server, "digits-10", 3)
        chart(page, "T of this row")


@pytest.mark.thorough
def test_the_section_fits_every_window_and_is_accessible(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    for width, dark in ((360, True), (1280, False)):
        with dashboard(bundled_server.url, width=width, dark=dark) as page:
            choose_sample(page, bundled_server, "digits-10", 1)
            page.get_by_role("button", name="Keep as A").click()
            choose_sample(page, bundled_server, "digits-10", 2)
            layer_switch(page, 4, "closed").check()
            chart(page, "T of B minus T of A")
            wait_until_idle(page)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width
            assert axe_violations(page) == []


def test_binary_tensors_are_read_in_order(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Outputs, lesioned outputs and tensors follow each other, also in half precision and as integers."""
    with dashboard(bundled_server.url) as page:
        read = page.evaluate("""async () => {
          const { parseTensors } = await import("/dashboard/state/tensors.js");
          const tensor = (name, datatype, size) =>
            ({ name, datatype, shape: [size], parameters: { binary_data_size: size } });
          const head = new TextEncoder().encode(JSON.stringify({
            outputs: [tensor("o", "BOOL", 1), { name: "j", datatype: "FP32", shape: [2], data: [[1, 2]] }],
            gates: [{ name: "not a tensor" }],
            lesioned: { outputs: [tensor("l", "INT64", 8)] },
            tensors: [tensor("t", "FP16", 4), tensor("u", "FP32", 4)],
          }));
          const tail = new DataView(new ArrayBuffer(17));
          tail.setUint8(0, 1);
          tail.setBigInt64(1, -5n, true);
          tail.setUint16(9, 0xc500, true);
          tail.setUint16(11, 0x0001, true);
          tail.setFloat32(13, 0.25, true);
          const whole = new Uint8Array(head.length + 17);
          whole.set(head);
          whole.set(new Uint8Array(tail.buffer), head.length);
          const answer = parseTensors(whole.buffer, String(head.length));
          const all = [...answer.outputs, ...answer.lesioned.outputs, ...answer.tensors];
          return all.map(({ data }) => Array.from(data, Number));
        }""")
        assert read == [[1], [1, 2], [-5], [-5, 2**-24], [0.25]]


def test_values_are_grouped_by_unit_and_pixel(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The unit axis may have steps before it and pixels after it."""
    with dashboard(bundled_server.url) as page:
        array = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
        units, places, one_unit, mean = page.evaluate(
            """async (data) => {
              const { unitsByPlace, meansByUnit, gateLayout, unitPicture } =
                await import("/dashboard/row/gate_values.js");
              const layout = gateLayout({ shape: [2, 3, 2, 2], data }, -3);
              const lists = (all) => all.map((list) => Array.from(list));
              const pictures = [unitPicture(layout, 1), unitPicture(layout, null)].map(lists);
              return [[...meansByUnit(layout)], lists(unitsByPlace(layout)), ...pictures];
            }""",
            array.ravel().tolist(),
        )
        assert units == array.mean((0, 2, 3)).tolist()
        assert places == np.moveaxis(array, 1, -1).reshape(-1, 3).tolist()
        assert one_unit == array[:, 1].mean(0).tolist()
        assert mean == array.mean((0, 1)).tolist()


def test_the_predicted_class_has_its_probability(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Logits become probabilities without overflow."""
    with dashboard(bundled_server.url) as page:
        texts = page.evaluate("""async () => {
          const { predictedClassText } = await import("/dashboard/row/predicted_class.js");
          const output = (...data) => [{ shape: [1, data.length], data: Float32Array.from(data) }];
          const labels = ["a", "b"];
          return [
            predictedClassText({ distribution: "logits", labels }, output(1000, 1000 + Math.log(3))),
            predictedClassText({ distribution: "probabilities", labels: [] }, output(0.125, 0.25, 0.625)),
            predictedClassText({ distribution: "logits", labels }, output(8, 0)),
            predictedClassText({ distribution: null, labels }, output(1, 2)),
          ];
        }""")
        assert texts == ["b (75.0 %)", "class 2 (62.5 %)", "a (> 99.9 %)", None]
