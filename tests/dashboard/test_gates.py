"""Section "Gates of the model": what the export measured, and the values of the current row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, open_tab, wait_until_idle
from tests.support.dashboard_repository import LABELS, MARKUP
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

THOROUGH = pytest.mark.thorough
MAPS = ("Gate biases", "Mean T", "T of this row", "Outputs of this row")
CHARTS = (
    "How open the layers are",
    "Saturation",
    "Class contrast",
    "Lesion curve: answers",
    "Lesion curve: accuracy",
    "Lesion curve: loss",
)
# sends a row of zeros, publishes the reading and returns its tensors
SEND_ZEROS = """async () => {
  const { postTensors } = await import("/dashboard/state/api.js");
  const { current, publish } = await import("/dashboard/state/store.js");
  const { path, inputs } = current("model");
  const shape = [1, ...inputs[0].shape.slice(1)];
  const data = new Float32Array(shape.reduce((product, dim) => product * dim));
  const tensorsIn = [{ name: inputs[0].name, datatype: "FP32", shape, data }];
  const answer = await postTensors(`${path}/gates?detail=rows&blocks=true`, tensorsIn);
  const tensors = new Map(answer.tensors.map((tensor) => [tensor.name, tensor]));
  const row = { title: "a row of zeros", inputs: tensorsIn };
  publish("reading", { row, outputs: answer.outputs, gates: answer.gates, route: answer.route, tensors,
    missing: null, milliseconds: 1 });
  return answer.tensors.map(({ name, shape, data }) => [name, shape, [...data]]);
}"""
# charts, and texts in them, that leave their place by more than a pixel, and charts that overlap
CUT_CHARTS = """async () => {
  for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);
  const boxOf = (node) => node.getBoundingClientRect();
  const inside = (part, box) => part.left > box.left - 1 && part.right < box.right + 1 &&
    part.top > box.top - 1 && part.bottom < box.bottom + 1;
  const apart = (one, other) => one.right <= other.left || other.right <= one.left ||
    one.bottom <= other.top || other.bottom <= one.top;
  const plots = [...document.querySelectorAll("#gates .plot")];
  const title = (plot) => plot.closest(".titled").querySelector("h3").textContent;
  const cut = plots.filter((plot) => [...plot.querySelectorAll(".main-svg, text")]
    .some((part) => boxOf(part).width && !inside(boxOf(part), boxOf(plot))));
  const charts = plots.map((plot) => plot.closest(".titled"));
  const overlapping = plots.filter((plot, n) =>
    charts.some((other) => other !== charts[n] && !apart(boxOf(charts[n]), boxOf(other))));
  const wide = plots.filter((plot) => boxOf(plot).right > document.documentElement.clientWidth);
  return [...cut, ...overlapping, ...wide].map(title);
}"""
# charts that are smaller than their place after they were narrow for a moment
SHRUNK_CHARTS = """async () => {
  const charts = document.querySelector("#gates .charts");
  const frames = async () => { for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame); };
  charts.style.setProperty("width", "60px");
  await frames();
  charts.style.removeProperty("width");
  await frames();
  return [...charts.querySelectorAll(".plot")].filter((plot) => plot.clientWidth >
    plot.querySelector(".main-svg").getBoundingClientRect().width + 1).map((plot) => plot.ariaLabel);
}"""
TRACES = """(figure) => figure.querySelector(".plot").data?.map((trace) =>
  Object.fromEntries(["z", "x", "y", "customdata", "name"].filter((key) => trace[key] !== undefined)
    .map((key) => [key, Array.from(trace[key], (one) => (one?.length === undefined || typeof one === "string"
      ? one : Array.from(one)))])))"""


def test_maps_show_the_values_of_the_file(dashboard: OpenDashboard, bundled_server: Server) -> None:
    profile = bundled_server.get("/v2/models/digits-10/gates/profile").json()
    with dashboard(bundled_server.url, tab="gates") as page:
        open_gates(page)
        biases, means = (traces_of(page, title)[0] for title in MAPS[:2])
        assert biases["customdata"][3][0] == "3"
        np.testing.assert_allclose(
            biases["z"], [profile["biases"][gate["name"]] for gate in profile["gates"]]
        )
        np.testing.assert_allclose(means["z"], [layer["units"] for layer in profile["profile"]["layers"]])
        tensors = {name: np.reshape(data, shape) for name, shape, data in page.evaluate(SEND_ZEROS)}
        expect_text(page, "T of this row", "a row of zeros")
        gates, outputs = (traces_of(page, title)[0] for title in MAPS[2:])
        np.testing.assert_allclose(gates["z"], [tensors[gate["name"]][0] for gate in profile["gates"]])
        np.testing.assert_allclose(outputs["z"], [tensors[gate["output"]][0] for gate in profile["gates"]])


@pytest.mark.parametrize(
    ("model", "words"),
    [("digits-10", ("carried", "transformed")), pytest.param("own", ("closed", "open"), marks=THOROUGH)],
)
def test_the_ends_of_a_gate_scale_have_words(
    dashboard: OpenDashboard, all_models_server: Server, model: str, words: tuple[str, str]
) -> None:
    """On a phone, too. With independent carry gates, a closed gate does not mean that a value is carried."""
    with dashboard(all_models_server.url, tab="gates", width=390, path=f"/#model={model}/1") as page:
        open_gates(page)
        page.evaluate(SEND_ZEROS)
        assert traces_of(page, "T of this row")
        texts = chart_titled(page, "T of this row").locator(".colorbar text").all_text_contents()
        assert [text for text in texts if text] == [f"0 {words[0]}", "0.5", f"1 {words[1]}"]
        carry_words = page.evaluate("""async () => {
          const { gateEnds } = await import("/dashboard/gates/gate_ends.js");
          const { groupGates } = await import("/dashboard/gates/gate_groups.js");
          const { current } = await import("/dashboard/state/store.js");
          return gateEnds(groupGates(current("model").gates), "C");
        }""")
        assert carry_words == (["closed", "open"] if model == "own" else ["transformed", "carried"])


@pytest.mark.thorough
@pytest.mark.timeout(180)
def test_charts_are_whole_in_every_window(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """At once after the window becomes narrower, and when all charts are drawn again."""
    with dashboard(bundled_server.url, tab="gates", width=1550) as page:
        open_gates(page)
        for title in CHARTS:
            assert traces_of(page, title)
        for width in range(1500, 850, -50):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(CUT_CHARTS) == [], width
            wait_until_idle(page)
            assert page.evaluate(CUT_CHARTS) == [], width
        # a width of one frame leaves no trace
        assert page.evaluate(SHRUNK_CHARTS) == []


def test_charts_show_the_values_of_the_profile(dashboard: OpenDashboard, bundled_server: Server) -> None:
    profile = bundled_server.get("/v2/models/digits-10/gates/profile").json()
    layers, lesion = profile["profile"]["layers"], profile["lesion"]
    with dashboard(bundled_server.url, tab="gates") as page:
        open_gates(page)
        for title in CHARTS:
            assert traces_of(page, title)
        low, high, mean, median = (trace["y"] for trace in traces_of(page, CHARTS[0]))
        np.testing.assert_allclose(mean, [layer["mean"] for layer in layers])
        np.testing.assert_allclose(
            np.transpose([low, median, high]), [np.array(layer["quantiles"])[[1, 3, -2]] for layer in layers]
        )
        closed, between, open_ = (trace["y"] for trace in traces_of(page, CHARTS[1]))
        np.testing.assert_allclose(closed, [layer["closed"] for layer in layers])
        np.testing.assert_allclose(open_, [layer["open"] for layer in layers])
        np.testing.assert_allclose(np.sum([closed, between, open_], axis=0), 1)
        np.testing.assert_allclose(traces_of(page, CHARTS[2])[0]["z"], profile["profile"]["contrast"])
        for title, key in zip(CHARTS[3:], ("flipped", "accuracy", "loss"), strict=True):
            np.testing.assert_allclose(
                traces_of(page, title)[0]["y"], [layer[key] for layer in lesion["layers"]]
            )
        expect_text(page, CHARTS[4], "as trained")


def test_captions_name_extreme_layers_and_classes(dashboard: OpenDashboard, bundled_server: Server) -> None:
    profile = bundled_server.get("/v2/models/digits-10/gates/profile").json()["profile"]
    means = [layer["mean"] for layer in profile["layers"]]
    contrast = np.array(profile["contrast"])
    layer = int(np.ptp(contrast, axis=1).argmax())
    with dashboard(bundled_server.url, tab="gates") as page:
        open_gates(page)
        words = page.locator("#gates .body").inner_text()
        assert f"{len(means)} gated layers" in words
        assert f"lowest in layer {np.argmin(means)} (" in words
        assert f"highest in layer {np.argmax(means)} (" in words
        assert f"Layer {layer} distinguishes classes most" in words
        assert f" for {contrast[layer].argmax()}, " in words
        assert f" for {contrast[layer].argmin()}." in words


@pytest.mark.thorough
def test_steps_of_a_layer_are_averaged(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """A recurrent layer has one row per depth, with the mean over its steps."""
    profile = all_models_server.get("/v2/models/steps/gates/profile").json()
    depths = sorted({(gate["layer"], gate["depth"]) for gate in profile["gates"]})
    assert len(profile["gates"]) > len(depths) > 1
    units = {layer["gate"]: layer["units"] for layer in profile["profile"]["layers"]}
    with dashboard(all_models_server.url, tab="gates", path="/#model=steps/1") as page:
        open_gates(page)
        expect_text(page, None, f"{len(depths)} gated layers, at {len(profile['gates'])} steps")
        means = traces_of(page, "Mean T")[0]
        assert [names[0] for names in means["customdata"]] == [f"{layer}.{depth}" for layer, depth in depths]
        of_depth = [units[gate["name"]] for gate in profile["gates"] if gate["depth"] == depths[1][1]]
        np.testing.assert_allclose(means["z"][1], np.mean(of_depth, axis=0), rtol=1e-6)


def test_the_mean_bias_replaces_unknown_unit_biases(
    dashboard: OpenDashboard, all_models_server: Server
) -> None:
    """If the biases per unit are not known, the mean of the layer is shown with a note."""
    profile = all_models_server.get("/v2/models/pictures/gates/profile").json()
    with dashboard(all_models_server.url, tab="gates", path="/#model=pictures/1") as page:
        open_gates(page)
        biases = traces_of(page, "Gate biases")[0]["z"]
        expected = [[gate["bias"]["mean"]] * gate["units"] for gate in profile["gates"]]
        np.testing.assert_allclose(biases, expected, rtol=1e-4)
        expect_text(page, "Gate biases", "only the mean is known")


def test_labels_are_shown_as_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="gates", path="/#model=pictures/1") as page:
        open_gates(page)
        contrast = chart_titled(page, "Class contrast")
        assert traces_of(page, "Class contrast")
        ticks = contrast.locator(".xtick text").all_text_contents()
        assert ticks[1] == LABELS[1]
        assert ticks[0] == LABELS[0][:23] + "…"
        contrast.get_by_text("Data table").click()
        expect(contrast.get_by_role("columnheader")).to_have_text(["layer", *LABELS])
        assert any(label in contrast.locator(".caption").inner_text() for label in LABELS)
        assert page.title() != "owned"


def test_without_a_profile_the_section_explains_how_to_get_one(
    dashboard: OpenDashboard, all_models_server: Server
) -> None:
    with dashboard(all_models_server.url, tab="gates", path=f"/#model={quote(MARKUP, safe='')}/1") as page:
        open_gates(page)
        expect_text(page, None, "turnpike export with rows")
        assert traces_of(page, "Gate biases")
        assert not chart_titled(page, "Mean T").locator(".plot").count()
        assert not page.locator("#gates .charts .titled").count()
        page.evaluate(SEND_ZEROS)
        assert traces_of(page, "T of this row")


def test_without_gates_the_section_says_so(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, tab="gates", path="/#model=bare/1") as page:
        expect_text(page, None, "no transform gates")
        expect(page.locator("#gates figure").first).to_be_hidden()


@pytest.mark.thorough
def test_another_model_clears_the_row(dashboard: OpenDashboard, all_models_server: Server) -> None:
    with dashboard(all_models_server.url, tab="gates", path="/#model=digits-10/1") as page:
        open_gates(page)
        page.evaluate(SEND_ZEROS)
        expect_text(page, "T of this row", "a row of zeros")
        page.evaluate("(hash) => { location.hash = hash; }", f"#model={quote(MARKUP, safe='')}/1&tab=gates")
        expect_text(page, None, "turnpike export with rows")
        # which has no samples, so the page begins with a row of its own
        expect_text(page, "T of this row", "random row")


@pytest.mark.thorough
def test_maps_clear_the_row_when_given_another_model(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    with dashboard(bundled_server.url, tab="gates") as page:
        open_gates(page)
        page.evaluate(SEND_ZEROS)
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
def test_rows_are_drawn_only_while_visible(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """While the section is not visible, its maps of the row are not drawn."""
    with dashboard(bundled_server.url) as page:
        wait_until_idle(page)
        page.evaluate(SEND_ZEROS)
        page.wait_for_timeout(300)
        assert page.locator("#gates .panel .plot").count() == 2
        open_tab(page, "Gates")
        open_gates(page)
        assert traces_of(page, "T of this row")


def chart_titled(page: Page, title: str) -> Any:
    """The chart with this title, scrolled into the window."""
    from playwright.sync_api import expect

    chart = page.locator("#gates .titled").filter(has=page.get_by_role("heading", name=title, exact=True))
    expect(chart).to_have_count(1)
    chart.scroll_into_view_if_needed()
    return chart


def traces_of(page: Page, title: str) -> list[dict[str, Any]]:
    """The data of a chart, once it is drawn."""
    figure = chart_titled(page, title).locator("figure")
    figure.locator(".main-svg").first.wait_for()
    traces = figure.evaluate(TRACES)
    assert isinstance(traces, list)
    return traces


def expect_text(page: Page, title: str | None, words: str) -> None:
    """Expect this text in a chart, or anywhere in the section."""
    from playwright.sync_api import expect

    where = page.locator("#gates .body") if title is None else chart_titled(page, title)
    expect(where).to_contain_text(words, ignore_case=True)


def open_gates(page: Page) -> None:
    """Wait for the page and scroll to the section."""
    wait_until_idle(page)
    page.locator("#gates .panel").scroll_into_view_if_needed()
