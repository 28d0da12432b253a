"""Charts of section "Gates of this row"."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, model_path, wait_until_idle
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.dashboard_row import CELLS, chart, choose_sample, gates, layer_switch, publish_row
from tests.support.live_server import Server

pytestmark = pytest.mark.browser


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
        map_area = chart(page, "T of this row").locator(".nsewdrag")
        map_area.scroll_into_view_if_needed()
        ground = map_area.bounding_box()
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
        expect(page.locator("#try .request-time")).to_contain_text("random row")
        page.evaluate("async () => (await import('/dashboard/state/store.js')).publish('row', null)")
        expect(row.get_by_text("Make or choose a row under")).to_be_visible()
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


@pytest.mark.thorough
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
