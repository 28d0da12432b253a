"""Links that open the same row, levers and comparison, and the picture of the road."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, axe_violations, model_path, wait_until
from tests.support.dashboard_row import chart, layer_switch
from tests.support.dashboard_try import CURRENT_ROW, OPENING_SAMPLE, wait_for_prediction
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

MINUS = "\N{MINUS SIGN}"
LEVERS = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  return Object.fromEntries(current("levers").levers);
}"""
OUTPUTS = """async (topic) => {
  const { current } = await import("/dashboard/state/store.js");
  const reading = current(topic);
  return reading && Array.from(reading.outputs[0].data);
}"""
# the values of a row after it was written into an address and read from it
ROUND_TRIP = """async ([inputs, title]) => {
  const { parseView, viewToText } = await import("/dashboard/share/view_address.js");
  const { toTypedArray } = await import("/dashboard/state/tensors.js");
  const typed = inputs.map((input) => ({ ...input, data: toTypedArray(input.datatype, input.data) }));
  const model = { inputs: inputs.map(({ shape, ...rest }) => ({ ...rest, shape: [-1, ...shape.slice(1)] })) };
  const shown = { row: { title, inputs: typed }, levers: new Map([[3, "closed"], [5, -2.5]]) };
  const text = viewToText({ shown, kept: null });
  const view = parseView(`#model=m/1${text}`, model);
  const equal = (a, b) => a.length === b.length && a.every((value, at) => Object.is(value, b[at]));
  const same = view.shown.row.inputs.every(({ data }, n) => equal(data, typed[n].data));
  return [text, view.shown.row.title, same && view.kept === null, Object.fromEntries(view.shown.levers)];
}"""


def lesion(server: Server, inputs: list[Any], **levers: Any) -> list[float]:
    answer = server.post("/v2/models/digits-10/lesion", {"inputs": inputs, **levers}).json()
    return answer["lesioned"]["outputs"][0]["data"]


def inputs_of(page: Page) -> list[Any]:
    return [{"name": "x", **tensor} for tensor in page.evaluate(CURRENT_ROW)]


def test_a_link_opens_the_same_view(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Row, levers and the kept row, in another window; and a reload loses nothing."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        # nothing to share yet
        assert page.evaluate("location.hash") == ""
        page.get_by_role("button", name="sample: 3").click()
        wait_for_prediction(page, "sample: 3")
        layer_switch(page, 1, "closed").check()
        # what is kept is what is shown
        wait_until(page, lambda: page.evaluate(OUTPUTS, "lesioned"))
        page.get_by_role("button", name="Keep as A").click()
        kept = inputs_of(page)
        page.get_by_role("button", name="sample: 8").click()
        wait_for_prediction(page, "sample: 8")
        shown = inputs_of(page)
        layer_switch(page, 1, "open").check()
        page.get_by_role("button", name="Close layer 7").click()
        page.locator(".lever input").fill("-0.25")
        expect(page.locator(".lever output")).to_have_text(f"moved by {MINUS}2.5")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy link").click()
        link = page.evaluate("navigator.clipboard.readText()")
        assert page.url == link
        assert len(link) < 700
    with dashboard(bundled_server.url, path=link.removeprefix(bundled_server.url)) as page:
        for _ in range(2):
            wait_for_prediction(page, "sample: 8")
            assert inputs_of(page) == shown
            assert page.evaluate(LEVERS) == {"1": "open", "7": -2.5}
            expect(page.locator(".kept-road")).to_contain_text("A: sample: 3, with layer 1 closed → 3")
            expect(page.locator(".kept-road p").last).to_contain_text("B: sample: 8, with layer")
            wait_until(page, lambda: page.evaluate(OUTPUTS, "lesioned"))
            moved = lesion(bundled_server, shown, open=[1], shift={"7": -2.5})
            np.testing.assert_allclose(page.evaluate(OUTPUTS, "shown reading"), moved, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(
                page.evaluate(OUTPUTS, "kept reading"),
                lesion(bundled_server, kept, close=[1]),
                rtol=1e-5,
                atol=1e-6,
            )
            assert page.url == link
            page.reload()


def test_a_link_is_followed_in_an_open_window(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.evaluate("location.hash = '#model=digits-10/1&row=1x8x8:7*64&title=sevens&levers=2:closed'")
        wait_for_prediction(page, "sevens")
        assert page.evaluate(CURRENT_ROW)[0]["data"] == [7] * 64
        assert page.evaluate(LEVERS) == {"2": "closed"}
        # the slider is that of the layer that the link moves
        expect(page.locator(".lever .lever-name")).to_have_text("Lever of layer 2: closed")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("row=1x8x8:0*63", "expected 64 values for x, got 63"),
        ("row=1x8x8:0*65", "expected 64 values for x, got more"),
        ("row=1x8x8:0*1e9", "expected numbers for x, got 0*1e9"),
        ("row=1x8x9:0*72", "expected shape 1x8x8 for x, got 1x8x9"),
        ("row=1x8x8:a*64", "expected numbers for x, got a*64"),
        ("row=1x8x8:0*64;1x8x8:0*64", "expected 1 inputs, got 2"),
        ("row=%zz", "expected an address without broken % escapes"),
        ("row=1x8x8:0*64&levers=3", "expected levers such as 3:closed, got 3"),
        ("row=1x8x8:0*64&levers=99:closed", "99"),
    ],
)
def test_a_broken_link_says_what_was_expected(
    dashboard: OpenDashboard, bundled_server: Server, view: str, message: str
) -> None:
    """The page works all the same."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, path=f"/#model=digits-10/1&{view}", allowed="400") as page:
        expect(page.locator("#try")).to_contain_text(message)
        page.get_by_role("button", name="sample: 3").click()
        wait_for_prediction(page, "sample: 3")


def test_rows_of_every_type_survive_an_address(dashboard: OpenDashboard, bundled_server: Server) -> None:
    random = np.random.default_rng(0)
    float32 = random.integers(0, 2**32, 300, dtype=np.uint32).view(np.float32)
    float32 = float32[np.isfinite(float32)]
    columns: dict[str, list[Any]] = {
        "FP32": [*float32.astype(float).tolist(), 0.0, -0.0, 1e-45, 16777217.0, 0.1],
        "FP64": [0.1, 1 / 3, 5e-324, -1e308],
        "BOOL": [1, 0, 0, 1],
        "INT64": [2**53, -3, 0, 0],
        "UINT8": [0, 255],
    }
    inputs = [
        {"name": name, "datatype": name, "shape": [1, len(data)], "data": data}
        for name, data in columns.items()
    ]
    title = "a&b=c; 100 % <é>"
    with dashboard(bundled_server.url) as page:
        text, back, same, levers = page.evaluate(ROUND_TRIP, [inputs, title])
        assert same, text
        assert (back, levers) == (title, {"3": "closed", "5": -2.5})
        scalar = [{"name": "s", "datatype": "INT32", "shape": [1], "data": [7]}]
        assert page.evaluate(ROUND_TRIP, [scalar, ""])[2]


def test_a_link_opens_the_same_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """Whatever characters it has; a text for a model that takes none is an error."""
    text = 'a&b=c; 100 % "é" #j\n\U0001f600'
    with dashboard(all_models_server.url, path=model_path("letters")) as page:
        page.get_by_role("textbox", name="Text").fill(text)
        wait_for_prediction(page, "text")
        page.get_by_role("button", name="Copy link").click()
        wait_until(page, lambda: "&row=" in page.evaluate("location.hash"))
        link = page.evaluate("location.href").removeprefix(all_models_server.url)
    with dashboard(all_models_server.url, path=link) as page:
        wait_for_prediction(page, "text")
        assert page.get_by_role("textbox", name="Text").input_value() == text
        assert page.evaluate(CURRENT_ROW)[0]["data"] == [text]
    with dashboard(all_models_server.url, path=link.replace("letters", "pictures")) as page:
        problem = page.get_by_text("The row of this address cannot be shown")
        problem.wait_for()
        assert "expected numbers, since the model takes no text" in problem.inner_text()


def test_a_row_too_large_for_a_link_is_named(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path=model_path("letters")) as page:
        page.get_by_role("textbox", name="Text").fill("ab cd " * 1200)
        wait_for_prediction(page, "text")
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_text("This row is too large for a link")).to_be_visible()
        assert page.evaluate("location.hash") == "#model=letters/1"


@pytest.mark.thorough
def test_the_lever_moves_a_layer_bit_by_bit(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The middle is as trained, the ends are closed and open; arrow keys work, and hold nothing back."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        inputs = inputs_of(page)
        lever, text = page.get_by_role("slider", name="Lever of layer 2"), page.locator(".lever output")
        expect(text).to_have_text("as trained")
        lever.press("End")
        expect(layer_switch(page, 2, "open")).to_be_checked()
        lever.press("Home")
        expect(layer_switch(page, 2, "closed")).to_be_checked()
        page.get_by_role("button", name="Close layer 4").click()
        lever = page.get_by_role("slider", name="Lever of layer 4")
        expect(text).to_have_text("closed")
        expect(lever).to_have_value("-1")
        requests = len(page.log.requests)  # type: ignore[attr-defined]
        for _ in range(60):
            lever.press("ArrowRight")
        expect(text).to_have_text(f"moved by {MINUS}4")
        assert len(page.log.requests) > requests + 1  # type: ignore[attr-defined]
        moved = lesion(bundled_server, inputs, close=[2], shift={"4": -4})
        wait_until(page, lambda: np.allclose(page.evaluate(OUTPUTS, "shown reading"), moved, atol=1e-5))
        page.get_by_role("button", name="Reset layers").first.click()
        # the page points at the layer that flips this row again
        expect(page.get_by_role("slider", name="Lever of layer 2")).to_have_value("0")
        assert page.evaluate(LEVERS) == {}
        assert axe_violations(page) == []


def test_the_layer_under_the_pointer_is_marked_everywhere(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, height=2600) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        button = page.get_by_role("button", name="Close layer 6")
        line = page.locator("#row .list .line").nth(6)
        button.hover()
        expect(line).to_have_class("line hovered")
        framed = "(plot) => (plot.layout.shapes ?? []).map(({ y0 }) => y0)"
        gate_map, outputs = chart(page, "T of this row"), chart(page, "Outputs of 10 layers")
        wait_until(page, lambda: gate_map.evaluate(framed) == outputs.evaluate(framed) == [5.5, 5.5])
        gate_map.hover(position={"x": 120, "y": 60})
        wait_until(page, lambda: page.locator(".layer-button.hovered").count() == 1)
        page.mouse.move(0, 0)
        expect(page.locator(".layer-button.hovered, .line.hovered")).to_have_count(0)
        wait_until(page, lambda: outputs.evaluate(framed) == [])


def test_the_road_is_saved_as_a_picture(
    dashboard: OpenDashboard, bundled_server: Server, tmp_path: Path
) -> None:
    """With the colors of its lanes; named after the model."""
    with dashboard(bundled_server.url, accept_downloads=True) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.get_by_role("button", name="Close layer 4").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save PNG").click()
        assert download.value.suggested_filename == "digits-10-1-road.png"
        download.value.save_as(tmp_path / "road.png")
        picture = list((tmp_path / "road.png").read_bytes())
        shares = page.evaluate(
            """async (bytes) => {
          const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
          const canvas = new OffscreenCanvas(image.width, image.height);
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          const { data } = context.getImageData(0, 0, image.width, image.height);
          const count = new Map();
          for (let at = 0; at < data.length; at += 4) {
            const color = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
            count.set(color, (count.get(color) ?? 0) + 1);
          }
          const share = (kind) => {
            const { fill } = getComputedStyle(document.querySelector(`.road-track .${kind}`));
            return (count.get(fill) ?? 0) / (image.width * image.height);
          };
          return Object.fromEntries(["carried", "transformed", "stripe"].map((kind) => [kind, share(kind)]));
        }""",
            picture,
        )
        assert shares["carried"] > 0.1
        assert shares["transformed"] > 0.01
        assert shares["stripe"] > 0.0001
