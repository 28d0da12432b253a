"""The prediction: classes and probabilities, with and without closed layers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.browser import OpenDashboard, wait_until_idle
from tests.support.dashboard_repository import LABELS
from tests.support.dashboard_try import OPENING_SAMPLE, SET_LAYER_STATE, wait_for_prediction
from tests.support.live_server import Server

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

# publishes a reading with another output
REPLACE_OUTPUT = """async ([data, shape]) => {
  const { current, publish } = await import("/dashboard/state/store.js");
  const outputs = [{ name: "map", datatype: "FP32", shape, data: Float32Array.from(data) }];
  publish("reading", { ...current("reading"), outputs });
}"""
# publishes the request state as a new request does
REPEAT_REQUEST_STATE = """async () => {
  const { current, publish } = await import("/dashboard/state/store.js");
  publish("request", { ...current("request"), busy: true });
  publish("request", { ...current("request"), busy: false });
}"""


def test_probabilities_are_those_of_the_service(dashboard: OpenDashboard, bundled_server: Server) -> None:
    sample = bundled_server.get("/v2/models/digits-10/samples").json()["samples"][4]
    body = {"instances": [sample["inputs"][0]["data"]]}
    probabilities = bundled_server.post("/v1/models/digits-10:predict", body).json()["predictions"][0][
        "probabilities"
    ]
    with dashboard(bundled_server.url) as page:
        page.get_by_role("button", name="sample: 4").click()
        wait_for_prediction(page, "sample: 4")
        shares = page.evaluate(
            """async () => {
              const { current } = await import("/dashboard/state/store.js");
              const { classProbabilities } = await import("/dashboard/row/predicted_class.js");
              return classProbabilities(current("model").certificate, current("reading").outputs);
            }"""
        )
        assert [row["label"] for row in shares] == list(probabilities)
        assert [row["share"] for row in shares] == pytest.approx(list(probabilities.values()), rel=1e-9)


def test_labels_are_shown_as_text(dashboard: OpenDashboard, all_models_server: Server) -> None:
    with dashboard(all_models_server.url, path="/#model=pictures/1") as page:
        wait_until_idle(page)
        shown = page.locator("#try .classes tbody th").all_inner_texts()
        assert shown == list(LABELS)
        assert page.title() != "owned"
        assert page.locator("main script, main img").count() == 0


def test_long_labels_are_broken(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A label of usual length fits in one line beside its bar, and a very long one is broken."""
    with dashboard(bundled_server.url) as page:
        wait_until_idle(page)
        page.evaluate(
            """async (labels) => {
              const { current, publish } = await import("/dashboard/state/store.js");
              current("model").certificate.labels.splice(1, 2, ...labels);
              publish("reading", { ...current("reading") });
            }""",
            ["automobile", "x" * 400],
        )
        names = page.locator("#try .classes tbody th")
        short, usual, endless = [names.nth(place).bounding_box() for place in range(3)]
        assert short is not None
        assert usual is not None
        assert endless is not None
        assert usual["height"] == short["height"]
        assert endless["width"] == usual["width"] < 200
        assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_a_lesion_is_shown_beside_the_prediction(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """In figures, bars and the text for screen readers."""
    from playwright.sync_api import expect

    sample = bundled_server.get("/v2/models/digits-10/samples").json()["samples"][5]
    body = {"inputs": sample["inputs"], "close": [0, 1]}
    after = bundled_server.post("/v2/models/digits-10/lesion", body).json()["lesioned"]["outputs"][0]["data"]
    shares = np.exp(np.array(after) - max(after))
    share = 100 * (shares / shares.sum())[np.argmax(after)]
    plain = {"instances": [sample["inputs"][0]["data"]]}
    before = bundled_server.post("/v1/models/digits-10:predict", plain).json()["predictions"][0]["label"]
    with dashboard(bundled_server.url) as page:
        page.get_by_role("button", name="sample: 5").click()
        wait_for_prediction(page, "sample: 5")
        heads = page.locator("#try .headline .label")
        expect(heads).to_have_text([before])
        page.evaluate(SET_LAYER_STATE, [0, "closed"])
        page.evaluate(SET_LAYER_STATE, [1, "closed"])
        expect(page.locator("#try .note")).to_contain_text("With layers 0, 1 closed, the prediction is")
        expect(heads).to_have_text([before, str(np.argmax(after))])
        text = page.locator("#try .headline .share").nth(1).inner_text()
        assert float(text.strip("<> %")) == pytest.approx(share, abs=0.11)
        expect(page.locator("#try .prediction > [role=status]")).to_contain_text("With layers 0, 1 closed")
        assert page.locator("#try .share-bar.after").count() == 10
        # a lesion of another reading is not shown
        page.evaluate(
            """async () => {
              const { current, publish } = await import("/dashboard/state/store.js");
              const { lesioned, reading } = { lesioned: current("lesioned"), reading: current("reading") };
              publish("lesioned", { ...lesioned, reading: { ...reading } });
            }"""
        )
        expect(heads).to_have_text([before])


def test_outputs_without_classes_are_numbers(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A list is a table, and two-dimensional values are a heat map that stays until it is replaced."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.evaluate(REPLACE_OUTPUT, [[0.5, -2, 7], [1, 3, 1]])
        output = page.get_by_role("region", name="Output map")
        expect(output.get_by_role("cell")).to_have_text(["0.5", "\N{MINUS SIGN}2", "7"])
        figures = []
        for least in (-1, 0):
            page.evaluate(REPLACE_OUTPUT, [[least, *range(1, 12)], [1, 3, 4]])
            drawn = page.get_by_role("img", name="map, as trained: 3 rows of 4 values")
            drawn.locator(".main-svg").first.wait_for()
            expect(drawn).to_have_count(1)
            figures.append(output.locator("figure").element_handle())
        numbers = drawn.evaluate("(plot) => plot.data[0].z.map((row) => Array.from(row))")
        assert numbers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        page.evaluate(REPEAT_REQUEST_STATE)
        # the removed figure was also removed from the list of charts
        assert [figure.evaluate("figure => figure.isConnected") for figure in figures] == [False, True]
        assert [figure.evaluate("figure => figure.childElementCount > 0") for figure in figures] == [
            False,
            True,
        ]


def test_all_classes_are_shown_on_demand(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The button keeps the focus."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.evaluate(REPLACE_OUTPUT, [list(range(12)), [1, 12]])
        names = page.locator("#try .classes tbody th")
        expect(names).to_have_text([f"class {place}" for place in range(11, 1, -1)])
        page.get_by_role("button", name="All 12 classes").press("Enter")
        expect(names).to_have_count(12)
        expect(page.get_by_role("button", name="The top 10")).to_be_focused()
        page.evaluate(REPEAT_REQUEST_STATE)
        expect(page.get_by_role("button", name="The top 10")).to_be_focused()
