"""The section on a model's gates: what the export found out about them, and the row that is asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.browser import Opener, settled
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

FIGURE_2 = ("Gate biases", "Mean T", "T of this row", "Outputs of this row")
CHARTS = (
    "How open the layers are",
    "Saturation",
    "Class contrast",
    "Lesion curve: answers",
    "Lesion curve: accuracy",
    "Lesion curve: loss",
)
# the row of zeros, asked about as the page asks, and told to all of it
ASK = """async () => {
  const { postTensors } = await import("/dashboard/state/api.js");
  const { current, publish } = await import("/dashboard/state/store.js");
  const { path, inputs } = current("model");
  const shape = [1, ...inputs[0].shape.slice(1)];
  const data = new Float32Array(shape.reduce((product, dim) => product * dim));
  const asked = [{ name: inputs[0].name, datatype: "FP32", shape, data }];
  const answer = await postTensors(`${path}/gates?detail=rows&blocks=true`, asked);
  const tensors = new Map(answer.tensors.map((tensor) => [tensor.name, tensor]));
  const row = { title: "a row of zeros", inputs: asked };
  publish("reading", { row, outputs: answer.outputs, gates: answer.gates, route: answer.route, tensors,
    missing: null, milliseconds: 1 });
  return answer.tensors.map(({ name, shape, data }) => [name, shape, [...data]]);
}"""
DRAWN = """(figure) => figure.querySelector(".plot").data?.map((trace) =>
  Object.fromEntries(["z", "x", "y", "customdata", "name"].filter((key) => trace[key] !== undefined)
    .map((key) => [key, Array.from(trace[key], (one) => (one?.length === undefined || typeof one === "string"
      ? one : Array.from(one)))])))"""


def test_figure_2_is_that_of_the_file(dashboard: Opener, served: Server) -> None:
    """Biases and means are the file's own numbers; gates and outputs those of the row asked about."""
    told = served.get("/v2/models/digits-10/gates/profile").json()
    with dashboard(served.url) as page:
        looking_at_gates(page)
        biases, means = (drawn(page, title)[0] for title in FIGURE_2[:2])
        assert biases["customdata"][3][0] == "3"
        np.testing.assert_allclose(biases["z"], [told["biases"][gate["name"]] for gate in told["gates"]])
        np.testing.assert_allclose(means["z"], [layer["units"] for layer in told["profile"]["layers"]])
        tensors = {name: np.reshape(data, shape) for name, shape, data in page.evaluate(ASK)}
        text(page, "T of this row", "a row of zeros")
        gates, outputs = (drawn(page, title)[0] for title in FIGURE_2[2:])
        np.testing.assert_allclose(gates["z"], [tensors[gate["name"]][0] for gate in told["gates"]])
        np.testing.assert_allclose(outputs["z"], [tensors[gate["output"]][0] for gate in told["gates"]])


def test_charts_are_those_of_the_profile(dashboard: Opener, served: Server) -> None:
    """Quantiles, shares, contrast and lesions stand in the charts as the profile has them."""
    told = served.get("/v2/models/digits-10/gates/profile").json()
    layers, lesion = told["profile"]["layers"], told["lesion"]
    with dashboard(served.url) as page:
        looking_at_gates(page)
        for title in CHARTS:
            assert drawn(page, title)
        low, high, mean, median = (trace["y"] for trace in drawn(page, CHARTS[0]))
        np.testing.assert_allclose(mean, [layer["mean"] for layer in layers])
        np.testing.assert_allclose(
            np.transpose([low, median, high]), [np.array(layer["quantiles"])[[1, 3, -2]] for layer in layers]
        )
        closed, between, open_ = (trace["y"] for trace in drawn(page, CHARTS[1]))
        np.testing.assert_allclose(closed, [layer["closed"] for layer in layers])
        np.testing.assert_allclose(open_, [layer["open"] for layer in layers])
        np.testing.assert_allclose(np.sum([closed, between, open_], axis=0), 1)
        np.testing.assert_allclose(drawn(page, CHARTS[2])[0]["z"], told["profile"]["contrast"])
        for title, key in zip(CHARTS[3:], ("flipped", "accuracy", "loss"), strict=True):
            np.testing.assert_allclose(drawn(page, title)[0]["y"], [one[key] for one in lesion["layers"]])
        text(page, CHARTS[4], "unchanged")


def test_words_say_what_stands_out(dashboard: Opener, served: Server) -> None:
    """The most and the least open layer and the classes that a layer tells apart are named."""
    profile = served.get("/v2/models/digits-10/gates/profile").json()["profile"]
    means = [layer["mean"] for layer in profile["layers"]]
    contrast = np.array(profile["contrast"])
    layer = int(np.ptp(contrast, axis=1).argmax())
    with dashboard(served.url) as page:
        looking_at_gates(page)
        words = page.locator("#gates .body").inner_text()
        assert f"{len(means)} gated layers" in words
        assert f"lowest in layer {np.argmin(means)} (" in words
        assert f"highest in layer {np.argmax(means)} (" in words
        assert f"Layer {layer} distinguishes classes most" in words
        assert f" for {contrast[layer].argmax()}, " in words
        assert f" for {contrast[layer].argmin()}." in words


@pytest.mark.thorough
def test_steps_of_a_layer_stand_together(dashboard: Opener, gallery: Server) -> None:
    """Gates of a recurrent layer are one line for each depth, with the mean of their steps."""
    told = gallery.get("/v2/models/steps/gates/profile").json()
    depths = sorted({(gate["layer"], gate["depth"]) for gate in told["gates"]})
    assert len(told["gates"]) > len(depths) > 1
    units = {layer["gate"]: layer["units"] for layer in told["profile"]["layers"]}
    with dashboard(gallery.url, path="/#model=steps/1") as page:
        looking_at_gates(page)
        text(page, None, f"{len(depths)} gated layers, at {len(told['gates'])} steps")
        means = drawn(page, "Mean T")[0]
        assert [names[0] for names in means["customdata"]] == [f"{layer}.{depth}" for layer, depth in depths]
        of_depth = [units[gate["name"]] for gate in told["gates"] if gate["depth"] == depths[1][1]]
        np.testing.assert_allclose(means["z"][1], np.mean(of_depth, axis=0), rtol=1e-6)


def test_what_moves_a_gate_need_not_be_its_bias(dashboard: Opener, gallery: Server) -> None:
    """Where the bias of each unit is not told, the mean of the layer stands for it and the page says so."""
    told = gallery.get("/v2/models/pictures/gates/profile").json()
    with dashboard(gallery.url, path="/#model=pictures/1") as page:
        looking_at_gates(page)
        biases = drawn(page, "Gate biases")[0]["z"]
        expected = [[gate["bias"]["mean"]] * gate["units"] for gate in told["gates"]]
        np.testing.assert_allclose(biases, expected, rtol=1e-4)
        text(page, "Gate biases", "only the mean is known")


def test_labels_of_strangers_are_labels(dashboard: Opener, gallery: Server) -> None:
    """Classes called like markup are shown by those names, in words, in the chart and in its table."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=pictures/1") as page:
        looking_at_gates(page)
        contrast = part(page, "Class contrast")
        assert drawn(page, "Class contrast")
        ticks = contrast.locator(".xtick text").all_text_contents()
        assert ticks[1] == LABELS[1]
        assert ticks[0] == LABELS[0][:23] + "…"
        contrast.get_by_text("Data table").click()
        expect(contrast.get_by_role("columnheader")).to_have_text(["layer", *LABELS])
        assert any(label in contrast.locator(".caption").inner_text() for label in LABELS)
        assert page.title() != "owned"


def test_without_a_profile_it_says_what_gives_one(dashboard: Opener, gallery: Server) -> None:
    """Biases are known without rows, and the present row's gates; the rest wants an export with rows."""
    with dashboard(gallery.url, path=f"/#model={quote(MARKUP, safe='')}/1") as page:
        looking_at_gates(page)
        text(page, None, "turnpike export with rows")
        assert drawn(page, "Gate biases")
        assert not part(page, "Mean T").locator(".plot").count()
        assert not page.locator("#gates .charts .titled").count()
        page.evaluate(ASK)
        assert drawn(page, "T of this row")


def test_without_gates_it_says_so(dashboard: Opener, gallery: Server) -> None:
    """A model without gates has a sentence, and no empty charts."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=bare/1") as page:
        text(page, None, "no transform gates")
        expect(page.locator("#gates figure").first).to_be_hidden()


@pytest.mark.thorough
def test_another_model_lets_go_of_the_row(dashboard: Opener, gallery: Server) -> None:
    """What was asked of one model is not shown as another's."""
    with dashboard(gallery.url, path="/#model=digits-10/1") as page:
        looking_at_gates(page)
        page.evaluate(ASK)
        text(page, "T of this row", "a row of zeros")
        page.evaluate("(hash) => { location.hash = hash; }", f"#model={quote(MARKUP, safe='')}/1")
        text(page, None, "turnpike export with rows")
        text(page, "T of this row", "Choose or draw a row")
        assert not part(page, "T of this row").locator(".plot").count()


@pytest.mark.thorough
def test_the_maps_let_go_of_a_row_by_themselves(dashboard: Opener, served: Server) -> None:
    """Maps that are given another model have no row until one is asked about."""
    with dashboard(served.url) as page:
        looking_at_gates(page)
        page.evaluate(ASK)
        captions = page.evaluate("""async () => {
          const { startLayerUnitMaps } = await import("/dashboard/gates/layer_unit_maps.js");
          const { current } = await import("/dashboard/state/store.js");
          const body = document.createElement("div");
          document.querySelector("#gates .body").append(body);
          const maps = startLayerUnitMaps(body);
          maps.showModel(current("model"));
          maps.showReading(current("reading"));
          const before = body.innerText;
          maps.showModel(current("model"));
          return [before, body.innerText];
        }""")
        assert ["a row of zeros" in caption for caption in captions] == [True, False]


@pytest.mark.thorough
def test_rows_are_drawn_where_somebody_looks(dashboard: Opener, served: Server) -> None:
    """While the section is out of sight its maps of the row wait, and then show the last of them."""
    with dashboard(served.url, height=400) as page:
        settled(page)
        page.evaluate(ASK)
        page.wait_for_timeout(300)
        assert page.locator("#gates .panel .plot").count() == 2
        looking_at_gates(page)
        assert drawn(page, "T of this row")


def part(page: Page, title: str) -> Any:
    """The chart of this title, brought into the window."""
    from playwright.sync_api import expect

    found = page.locator("#gates .titled").filter(has=page.get_by_role("heading", name=title, exact=True))
    expect(found).to_have_count(1)
    found.scroll_into_view_if_needed()
    return found


def drawn(page: Page, title: str) -> list[dict[str, Any]]:
    """What a chart shows, once it has been drawn."""
    figure = part(page, title).locator("figure")
    figure.locator(".main-svg").first.wait_for()
    traces = figure.evaluate(DRAWN)
    assert isinstance(traces, list)
    return traces


def text(page: Page, title: str | None, words: str) -> None:
    """Expect these words in a part of the section, or anywhere in it."""
    from playwright.sync_api import expect

    where = page.locator("#gates .body") if title is None else part(page, title)
    expect(where).to_contain_text(words, ignore_case=True)


def looking_at_gates(page: Page) -> None:
    """Wait until the page is there, and bring the section into the window."""
    settled(page)
    page.locator("#gates .panel").scroll_into_view_if_needed()
