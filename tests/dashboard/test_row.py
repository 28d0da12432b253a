"""The part of the dashboard on the gates of one row, in a real browser."""

from __future__ import annotations

import contextlib
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.browser import QUIET, Opener, serious, settled
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.browser

# a row as the part "Try it" puts it, and the answer to it
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
  const told = current("lesioned");
  return told && { closed: told.closed, open: told.open, outputs: Array.from(told.outputs[0].data) };
}"""
# until a lesion of the present row is there
FOLLOWED = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  while (current("lesioned")?.reading !== current("reading")) await new Promise((go) => setTimeout(go, 20));
}"""
NUMBERS = "(plot) => plot.data[0].z.map((row) => Array.from(row))"


def chosen(model: str) -> str:
    return f"/#model={quote(model, safe='')}/1"


def samples(server: Server, model: str) -> list[Any]:
    return server.get(f"/v2/models/{model}/samples").json()["samples"]


def put(page: Page, server: Server, model: str, number: int = 0) -> list[Any]:
    """Ask about a sample as a person does who picks it; the answer is what the sample is made of."""
    sample = samples(server, model)[number]
    put_row(page, model, f"sample {number}", sample["inputs"])
    return sample["inputs"]


def put_row(page: Page, model: str, title: str, inputs: list[Any]) -> None:
    page.evaluate(PUT, [model, title, inputs])
    page.evaluate(QUIET)


def gates(server: Server, model: str, inputs: list[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What the API itself says: T of each gate and the layers' outputs."""
    answer = server.post(f"/v2/models/{model}/gates?detail=rows&blocks=true", {"inputs": inputs}).json()
    return {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in answer["tensors"]}


def chart(page: Page, label: str) -> Locator:
    """A chart by how its label begins, when it has been drawn."""
    plot = page.locator("#row").get_by_role("img", name=re.compile(f"^{label}"))
    plot.locator(".main-svg").first.wait_for()
    return plot


def lever(page: Page, layer: int, state: str) -> Locator:
    group = page.get_by_role("radiogroup", name=f"layer {layer}", exact=True)
    return group.get_by_role("radio", name=state, exact=True)


def test_the_map_holds_what_the_gates_are(dashboard: Opener, served: Server) -> None:
    """Layers by units from the first to the last; under the pointer stand layer, unit and value."""
    with dashboard(served.url) as page:
        inputs = put(page, served, "digits-10", 7)
        told = gates(served, "digits-10", inputs)
        expected = np.stack([told[f"layer{n:02}.transform_gate"][0] for n in range(10)])
        plot = chart(page, "T of this row")
        np.testing.assert_allclose(plot.evaluate(NUMBERS), expected, rtol=1e-6)
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
            found = re.search(r"layer (\d+)unit (\d+)T ([\d.e-]+)", text)
            assert found is not None, text
            assert (int(found[1]), int(found[2])) == (layer, unit)
            assert float(found[3]) == pytest.approx(expected[layer, unit], rel=1e-3)


def test_a_layer_is_picked_by_mouse_and_by_key(dashboard: Opener, served: Server) -> None:
    """A click into the map or an arrow key in the list picks a layer, whose units are shown then."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        inputs = put(page, served, "digits-10")
        ground = chart(page, "T of this row").locator(".nsewdrag").bounding_box()
        assert ground is not None
        page.mouse.click(ground["x"] + 40, ground["y"] + 4.5 / 10 * ground["height"])
        expect(page.get_by_role("heading", name="Layer 4", exact=True)).to_be_visible()
        look = page.get_by_role("radio", name="show layer 4", exact=True)
        expect(look).to_be_checked()
        look.press("ArrowDown")
        expect(page.get_by_role("heading", name="Layer 5", exact=True)).to_be_visible()
        bars = chart(page, "T of layer 5 in")
        expected = gates(served, "digits-10", inputs)["layer05.transform_gate"][0]
        np.testing.assert_allclose(bars.evaluate("(plot) => plot.data[0].y"), expected, rtol=1e-6)
        frames = chart(page, "T of this row").evaluate("(plot) => plot.layout.shapes.map((one) => one.y0)")
        assert frames == [4.5, 4.5]


def test_a_layer_closed_changes_the_answer_at_once(dashboard: Opener, served: Server) -> None:
    """Closing and opening ask the API for just that; all as they are takes it back."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        inputs = put(page, served, "digits-10", 3)
        effect = page.locator("#row .effect")
        assert page.evaluate(LESIONED) is None
        lever(page, 0, "closed").check()
        expect(effect).to_contain_text("With layer 0 closed")
        lever(page, 2, "closed").check()
        lever(page, 9, "open").check()
        expect(effect).to_contain_text(
            re.compile(r"With layers 0, 2 closed and layer 9 open: \S+ \(.+ %\); as is: ")
        )
        body = {"inputs": inputs, "close": [0, 2], "open": [9]}
        expected = served.post("/v2/models/digits-10/lesion", body).json()["lesioned"]["outputs"][0]["data"]
        told = page.evaluate(LESIONED)
        assert (told["closed"], told["open"]) == ([0, 2], [9])
        np.testing.assert_allclose(told["outputs"], expected, rtol=1e-6)
        # the wish outlives the row
        other = put(page, served, "digits-10", 4)
        expected = served.post("/v2/models/digits-10/lesion", body | {"inputs": other}).json()
        expected = expected["lesioned"]["outputs"][0]["data"]
        page.evaluate(FOLLOWED)
        np.testing.assert_allclose(page.evaluate(LESIONED)["outputs"], expected, rtol=1e-6)
        page.get_by_role("button", name="Reset layers").click()
        expect(effect).to_be_hidden()
        expect(lever(page, 2, "as is")).to_be_checked()
        assert page.evaluate(LESIONED) is None


def test_levers_work_by_keys(dashboard: Opener, served: Server) -> None:
    """From a layer in the list one step of Tab leads to its own lever, and arrows move that."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        put(page, served, "digits-10")
        look = page.get_by_role("radio", name="show layer 0", exact=True)
        look.focus()
        look.press("ArrowDown")
        page.keyboard.press("Tab")
        expect(lever(page, 1, "as is")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(lever(page, 1, "closed")).to_be_checked()
        expect(page.locator("#row .effect")).to_contain_text("With layer 1 closed")
        page.keyboard.press("Tab")
        # past all other levers
        assert page.evaluate("document.activeElement.closest('.list')") is None


@pytest.mark.thorough
def test_an_answer_that_is_overtaken_is_dropped(dashboard: Opener, served: Server) -> None:
    """Of two lesions the later counts, though the earlier is answered last."""
    from playwright.sync_api import Error, expect

    with dashboard(served.url) as page:
        put(page, served, "digits-10")
        held: list[Route] = []

        def hold(route: Route) -> None:
            if held:
                route.continue_()
            else:
                held.append(route)

        page.route("**/lesion", hold)
        lever(page, 3, "closed").check()
        lever(page, 3, "open").check()
        expect(page.locator("#row .effect")).to_contain_text("; as is: ")
        # the page has given it up, and so it may be gone
        with contextlib.suppress(Error):
            held[0].continue_()
        page.wait_for_timeout(500)
        assert page.evaluate(LESIONED)["open"] == [3]
        assert page.evaluate(LESIONED)["closed"] == []


@pytest.mark.thorough
def test_a_refused_lesion_is_told_in_the_words_of_the_api(dashboard: Opener, served: Server) -> None:
    """No answer is shown then, and the next wish works again."""
    from playwright.sync_api import expect

    with dashboard(served.url, wanted="422") as page:
        put(page, served, "digits-10")
        page.route(
            "**/lesion", lambda route: route.fulfill(status=422, json={"error": "lesion: NaN <b>there</b>"})
        )
        lever(page, 3, "closed").check()
        effect = page.locator("#row .effect")
        expect(effect).to_have_text("With layer 3 closed: lesion: NaN <b>there</b>")
        assert page.evaluate(LESIONED) is None
        page.unroute("**/lesion")
        lever(page, 4, "closed").check()
        expect(effect).to_contain_text("With layers 3, 4 closed: ")
        expect(effect).to_contain_text("; as is: ")


def test_layers_that_cannot_be_moved_say_why(dashboard: Opener, gallery: Server) -> None:
    """A layer whose gate has no bias in the file has words in the place of its lever."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=chosen("own")) as page:
        put_row(page, "own", "made", [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [0.5] * 6}])
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


def test_a_carry_gate_of_its_own_can_be_looked_at(dashboard: Opener, gallery: Server) -> None:
    """Beside T stands C where the network has one, and words say what it is applied to."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=chosen("own")) as page:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [0.1, -2, 3, 0.4, -0.5, 1]}]
        put_row(page, "own", "made", inputs)
        expected = gates(gallery, "own", inputs)["layer00.carry_gate"][0]
        expect(page.locator("#row").get_by_text("C is an independent gate")).to_be_visible()
        page.get_by_label("Gate", exact=True).select_option("carry gate C")
        bars = chart(page, "C of layer 0 in 6 units")
        np.testing.assert_allclose(bars.evaluate("(plot) => plot.data[0].y"), expected, rtol=1e-6)
        page.get_by_role("radio", name="show layer 1", exact=True).check()
        expect(page.locator("#row").get_by_text("of a projection of the input")).to_be_visible()


@pytest.mark.thorough
def test_pictures_are_shown_channel_by_channel(dashboard: Opener, gallery: Server) -> None:
    """The map has the mean over the pixels, the chosen layer its picture of one channel or of all."""
    with dashboard(gallery.url, path=chosen("pictures")) as page:
        inputs = put(page, gallery, "pictures", 1)
        told = gates(gallery, "pictures", inputs)["layer00.transform_gate"][0]
        means = chart(page, "T of this row").evaluate(NUMBERS)
        np.testing.assert_allclose(means[0], told.mean((1, 2)), rtol=1e-5)
        pixels = chart(page, "T of layer 0 over 8 by 8 pixels")
        np.testing.assert_allclose(pixels.evaluate(NUMBERS), told.mean(0), rtol=1e-5)
        page.get_by_label("Channel").select_option("2")
        page.get_by_role("heading", name="T of channel 2").wait_for()
        page.wait_for_function(
            "(told) => Math.abs([...document.querySelectorAll('#row .plot')]"
            ".find((plot) => plot.ariaLabel.includes('pixels')).data[0].z[0][0] - told) < 1e-5",
            arg=told[2, 0, 0],
        )
        np.testing.assert_allclose(pixels.evaluate(NUMBERS), told[2], rtol=1e-6)


@pytest.mark.thorough
def test_steps_are_shown_one_by_one(dashboard: Opener, gallery: Server) -> None:
    """The map has a line for each depth of a recurrent layer, the chosen one all of its steps."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=chosen("steps")) as page:
        data = np.linspace(0, 1, 64).tolist()
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": data}]
        put_row(page, "steps", "made", inputs)
        told = gates(gallery, "steps", inputs)
        steps = [
            np.stack([told[f"layer00.depth{d}.time{t}.transform_gate"][0] for t in range(8)]) for d in (0, 1)
        ]
        means = chart(page, "T of this row: 2 layers by 6 units").evaluate(NUMBERS)
        np.testing.assert_allclose(means, [one.mean(0) for one in steps], rtol=1e-5)
        page.get_by_role("radio", name="show layer 0.1", exact=True).check()
        shown = chart(page, "T of layer 0.1: 8 places by 6 units").evaluate(NUMBERS)
        np.testing.assert_allclose(shown, steps[1], rtol=1e-6)
        expect(page.get_by_text("set together with layer 0")).to_be_visible()


def test_the_route_is_told_and_drawn(dashboard: Opener, served: Server) -> None:
    """The share that each layer carries, what comes past all of them, and how much each changes the row."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        inputs = put(page, served, "digits-10", 5)
        answer = served.post("/v2/models/digits-10/gates", {"inputs": inputs}).json()
        drawn = chart(page, "Share that each of 10 layers carries over").evaluate("(plot) => plot.data[0].y")
        np.testing.assert_allclose(drawn, [gate["carried"] for gate in answer["gates"]], rtol=1e-6)
        row = page.locator("#row")
        expect(row.get_by_text(f"{answer['route']['effective_depth'][0]:.3g} of 10 layers")).to_be_visible()
        expect(
            row.get_by_text("of the input of the first layer leaves the last one unchanged")
        ).to_be_visible()
        told = gates(served, "digits-10", inputs)
        y = [told[f"layer{n:02}.output"] for n in range(10)]
        expected = [np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in pairwise(y)]
        changes = chart(page, "Distance of the output of each").evaluate("(plot) => plot.data[0].y")
        assert changes[0] is None
        np.testing.assert_allclose(changes[1:], expected, rtol=1e-5)
        outputs = chart(page, "Outputs of 10 layers").evaluate(NUMBERS)
        np.testing.assert_allclose(outputs, np.concatenate(y), rtol=1e-6, atol=1e-7)


def test_two_rows_are_compared(dashboard: Opener, served: Server) -> None:
    """A row that is kept stands beside the next: their maps on one scale, their difference and figures."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        one = put(page, served, "digits-10", 1)
        row = page.locator("#row")
        page.get_by_role("button", name="Keep as A").click()
        expect(row.get_by_text("Now choose or draw another row")).to_be_visible()
        two = put(page, served, "digits-10", 8)
        stacked = [
            np.concatenate([told[f"layer{n:02}.transform_gate"] for n in range(10)])
            for told in (gates(served, "digits-10", inputs) for inputs in (one, two))
        ]
        a, b = chart(page, "T of A: sample 1"), chart(page, "T of B: sample 8")
        np.testing.assert_allclose(a.evaluate(NUMBERS), stacked[0], rtol=1e-6)
        np.testing.assert_allclose(b.evaluate(NUMBERS), stacked[1], rtol=1e-6)
        for plot in (a, b):
            assert plot.evaluate("(plot) => [plot.data[0].zmin, plot.data[0].zmax]") == [0, 1]
        apart = chart(page, "T of B minus T of A").evaluate(NUMBERS)
        np.testing.assert_allclose(apart, stacked[1] - stacked[0], atol=1e-6)
        expect(row.get_by_role("row", name=re.compile("^prediction 1 .* 8 "))).to_be_visible()
        page.get_by_role("button", name="Discard A").click()
        expect(row.get_by_role("heading", name="Comparison of A and B")).to_be_hidden()


@pytest.mark.thorough
def test_what_is_not_there_is_said(dashboard: Opener, gallery: Server) -> None:
    """No row yet, no gates at all, gates that were too many, and a row that was refused."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=chosen("bare")) as page:
        row = page.locator("#row")
        expect(row.get_by_text("No gates are known for bare.")).to_be_visible()
        assert row.locator(".plot").count() == 0
    with dashboard(gallery.url, path=chosen("own"), wanted="400") as page:
        row = page.locator("#row")
        expect(row.get_by_text("Draw or choose a row under")).to_be_visible()
        put_row(page, "own", "made", [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1] * 6}])
        chart(page, "Outputs of 3 layers")
        page.evaluate("""async () => {
          const { current, publish } = await import("/dashboard/state/store.js");
          publish("reading", { ...current("reading"), tensors: new Map(), missing: "Too <b>many</b>." });
        }""")
        expect(row.get_by_text("Too <b>many</b>.").first).to_be_visible()
        # the figures of the summary are known all the same
        expect(page.get_by_role("img", name="Share that each of 3 layers carries over.")).to_be_visible()
        bad = [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1e39, *[1] * 5]}]
        page.evaluate(
            "async (inputs) => (await import('/dashboard/state/store.js'))"
            ".publish('row', { title: '', inputs })",
            bad,
        )
        expect(row.get_by_text("The gates of this row could not be loaded: ")).to_be_visible()


def test_names_of_strangers_stay_text(dashboard: Opener, gallery: Server) -> None:
    """Markup in labels and titles is shown as it stands, in words, tables and charts alike."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path=chosen(MARKUP)) as page:
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [0.5] * 6}]
        metadata = gallery.get(f"/v2/models/{quote(MARKUP, safe='')}").json()
        inputs[0] |= {"name": metadata["inputs"][0]["name"]}
        shape = [1 if length < 0 else length for length in metadata["inputs"][0]["shape"]]
        inputs[0] |= {"shape": shape, "data": [0.5] * int(np.prod(shape))}
        put_row(page, MARKUP, "<i>mine</i>", inputs)
        expect(page.locator("#row .of-row")).to_contain_text("<i>mine</i>")
        page.evaluate(
            """async ([names]) => {
              const { drawHeatmap } = await import("/dashboard/charts/drawHeatmap.js");
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
def test_a_chart_follows_theme_and_room(dashboard: Opener, served: Server) -> None:
    """Colours turn with the theme, the width with the figure's, and one that is taken away leaves nothing."""
    with dashboard(served.url) as page:
        put(page, served, "digits-10")
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


def test_without_its_library_a_chart_says_so(dashboard: Opener, served: Server) -> None:
    """The figures of a chart can be read Data table all the same, and the next drawing tries again."""
    from playwright.sync_api import expect

    with dashboard(served.url, wanted="plotly|ERR_FAILED") as page:
        page.route("**/plotly.js*", lambda route: route.abort())
        # another part of the page may have drawn a chart by now
        page.reload()
        put(page, served, "digits-10", 2)
        row = page.locator("#row")
        expect(row.get_by_text("The chart could not be drawn: the chart library").first).to_be_visible()
        row.get_by_text("Data table").first.click()
        expect(row.locator("table").first.get_by_role("row")).to_have_count(11)
        page.unroute("**/plotly.js*")
        put(page, served, "digits-10", 3)
        chart(page, "T of this row")


@pytest.mark.thorough
def test_it_fits_every_window_and_axe_finds_nothing(dashboard: Opener, served: Server) -> None:
    """With all of its charts the part is as wide as a phone at most, and anybody can read it."""
    for width, dark in ((360, True), (1280, False)):
        with dashboard(served.url, width=width, dark=dark) as page:
            put(page, served, "digits-10", 1)
            page.get_by_role("button", name="Keep as A").click()
            put(page, served, "digits-10", 2)
            lever(page, 4, "closed").check()
            chart(page, "T of B minus T of A")
            settled(page)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width
            assert serious(page) == []


def test_tensors_are_read_in_the_order_in_which_they_stand(dashboard: Opener, served: Server) -> None:
    """Bytes of outputs, lesioned outputs and tensors follow each other; halves and whole numbers too."""
    with dashboard(served.url) as page:
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


def test_values_are_laid_out_by_unit_place_and_picture(dashboard: Opener, served: Server) -> None:
    """Units may lie along any axis, with steps before them and pixels after them."""
    with dashboard(served.url) as page:
        array = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
        units, places, one, mean = page.evaluate(
            """async (data) => {
              const { unitsByPlace, meansByUnit, gateLayout, unitPicture } = await import("/dashboard/row/gate_values.js");
              const found = gateLayout({ shape: [2, 3, 2, 2], data }, -3);
              const lists = (all) => all.map((list) => Array.from(list));
              const pictures = [unitPicture(found, 1), unitPicture(found, null)].map(lists);
              return [[...meansByUnit(found)], lists(unitsByPlace(found)), ...pictures];
            }""",
            array.ravel().tolist(),
        )
        assert units == array.mean((0, 2, 3)).tolist()
        assert places == np.moveaxis(array, 1, -1).reshape(-1, 3).tolist()
        assert one == array[:, 1].mean(0).tolist()
        assert mean == array.mean((0, 1)).tolist()


def test_an_answer_is_the_class_that_gets_most(dashboard: Opener, served: Server) -> None:
    """Logits become probabilities without overflow; a model that tells no classes has no such answer."""
    with dashboard(served.url) as page:
        said = page.evaluate("""async () => {
          const { predictedClassText } = await import("/dashboard/row/predicted_class.js");
          const output = (...data) => [{ shape: [1, data.length], data: Float32Array.from(data) }];
          return [
            predictedClassText({ distribution: "logits", labels: ["a", "b"] }, output(1000, 1000 + Math.log(3))),
            predictedClassText({ distribution: "probabilities", labels: [] }, output(0.125, 0.25, 0.625)),
            predictedClassText({ distribution: "logits", labels: ["a", "b"] }, output(8, 0)),
            predictedClassText({ distribution: null, labels: ["a", "b"] }, output(1, 2)),
          ];
        }""")
        assert said == ["b (75.0 %)", "class 2 (62.5 %)", "a (> 99.9 %)", None]
