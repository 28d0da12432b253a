"""What the dashboard says of an answer: classes and how sure it is, as it is and with layers closed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.browser import Opener, settled
from tests.support.dashboard_repository import LABELS
from tests.support.dashboard_try import WISH, took
from tests.support.live_server import Server

pytestmark = [pytest.mark.browser, pytest.mark.thorough]

# one output in the place of those of the reading
FAKE = """async ([data, shape]) => {
  const { current, publish } = await import("/dashboard/state/store.js");
  const outputs = [{ name: "map", datatype: "FP32", shape, data: Float32Array.from(data) }];
  publish("reading", { ...current("reading"), outputs });
}"""
# word of the row, as comes with each question
AGAIN = """async () => {
  const { current, publish } = await import("/dashboard/state/store.js");
  publish("request", { ...current("request"), busy: true });
  publish("request", { ...current("request"), busy: false });
}"""


def test_probabilities_are_those_of_the_service(dashboard: Opener, served: Server) -> None:
    """The page's bars say what `:predict` says."""
    sample = served.get("/v2/models/digits-10/samples").json()["samples"][4]
    body = {"instances": [sample["inputs"][0]["data"]]}
    told = served.post("/v1/models/digits-10:predict", body).json()["predictions"][0]["probabilities"]
    with dashboard(served.url) as page:
        page.get_by_role("button", name="sample: 4").click()
        took(page, "sample: 4")
        shares = page.evaluate(
            """async () => {
              const { current } = await import("/dashboard/state/store.js");
              const { classProbabilities } = await import("/dashboard/try/probabilities.js");
              return classProbabilities(current("model").certificate, current("reading").outputs);
            }"""
        )
        assert [one["label"] for one in shares] == list(told)
        assert [one["share"] for one in shares] == pytest.approx(list(told.values()), rel=1e-9)


def test_labels_of_strangers_are_text(dashboard: Opener, gallery: Server) -> None:
    """Markup in a label is shown as it is written, and does nothing."""
    with dashboard(gallery.url, path="/#model=pictures/1") as page:
        settled(page)
        shown = page.locator("#try .classes tbody th").all_inner_texts()
        assert shown == list(LABELS)
        assert page.title() != "owned"
        assert page.locator("main script, main img").count() == 0


def test_a_label_has_the_room_of_its_words(dashboard: Opener, served: Server) -> None:
    """One of a usual length stands in one line beside its bar, and one without end is broken."""
    with dashboard(served.url) as page:
        settled(page)
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


def test_no_class_is_told_of_what_is_none(dashboard: Opener, served: Server) -> None:
    """NaN says nothing of classes; of very many classes one is told as of few."""
    with dashboard(served.url) as page:
        outcomes = page.evaluate(
            """async () => {
              const { predictedClass } = await import("/dashboard/row/predicted_class.js");
              const { classProbabilities } = await import("/dashboard/try/probabilities.js");
              const certificate = { distribution: "logits", labels: [] };
              const output = (data) => [{ name: "y", shape: [1, data.length], data }];
              const many = new Float32Array(300_000);
              many[123_456] = 100;
              return [
                predictedClass(certificate, output([NaN, 1])),
                predictedClass(certificate, output([Infinity, 1])),
                predictedClass(certificate, output([-Infinity, 1])),
                predictedClass(certificate, output(many)).label,
                classProbabilities(certificate, output(many))[123_456].share,
              ];
            }"""
        )
        assert outcomes == [None, None, {"label": "class 1", "share": 1}, "class 123456", pytest.approx(1)]


def test_a_lesion_stands_beside_the_prediction(dashboard: Opener, served: Server) -> None:
    """As it is and as changed, in figures, in bars and in words that are read out."""
    from playwright.sync_api import expect

    sample = served.get("/v2/models/digits-10/samples").json()["samples"][5]
    body = {"inputs": sample["inputs"], "close": [0, 1]}
    after = served.post("/v2/models/digits-10/lesion", body).json()["lesioned"]["outputs"][0]["data"]
    shares = np.exp(np.array(after) - max(after))
    share = 100 * (shares / shares.sum())[np.argmax(after)]
    plain = {"instances": [sample["inputs"][0]["data"]]}
    before = served.post("/v1/models/digits-10:predict", plain).json()["predictions"][0]["label"]
    with dashboard(served.url) as page:
        page.get_by_role("button", name="sample: 5").click()
        took(page, "sample: 5")
        heads = page.locator("#try .headline .label")
        expect(heads).to_have_text([before])
        page.evaluate(WISH, [0, "closed"])
        page.evaluate(WISH, [1, "closed"])
        expect(page.locator("#try .note")).to_contain_text("With layers 0, 1 closed, the prediction is")
        expect(heads).to_have_text([before, str(np.argmax(after))])
        text = page.locator("#try .headline .share").nth(1).inner_text()
        assert float(text.strip("<> %")) == pytest.approx(share, abs=0.11)
        expect(page.locator("#try .prediction > [role=status]")).to_contain_text("With layers 0, 1 closed")
        assert page.locator("#try .share-bar.after").count() == 10
        # what was asked of another row says nothing of this one
        page.evaluate(
            """async () => {
              const { current, publish } = await import("/dashboard/state/store.js");
              const { lesioned, reading } = { lesioned: current("lesioned"), reading: current("reading") };
              publish("lesioned", { ...lesioned, reading: { ...reading } });
            }"""
        )
        expect(heads).to_have_text([before])


def test_outputs_without_classes_are_numbers(dashboard: Opener, served: Server) -> None:
    """A list is a table, rows and columns are a map, which stays until there is another."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        took(page, "sample: 0")
        page.evaluate(FAKE, [[0.5, -2, 7], [1, 3, 1]])
        output = page.get_by_role("region", name="Output map")
        expect(output.get_by_role("cell")).to_have_text(["0.5", "\N{MINUS SIGN}2", "7"])
        figures = []
        for least in (-1, 0):
            page.evaluate(FAKE, [[least, *range(1, 12)], [1, 3, 4]])
            drawn = page.get_by_role("img", name="map, as is: 3 rows of 4 values")
            drawn.locator(".main-svg").first.wait_for()
            expect(drawn).to_have_count(1)
            figures.append(output.locator("figure").element_handle())
        numbers = drawn.evaluate("(plot) => plot.data[0].z.map((row) => Array.from(row))")
        assert numbers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        page.evaluate(AGAIN)
        # the one that is gone was taken out of the charts that are kept
        assert [figure.evaluate("figure => figure.isConnected") for figure in figures] == [False, True]
        assert [figure.evaluate("figure => figure.childElementCount > 0") for figure in figures] == [
            False,
            True,
        ]


def test_all_classes_are_shown_on_demand(dashboard: Opener, served: Server) -> None:
    """The ten likeliest first, and the button keeps the focus."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        took(page, "sample: 0")
        page.evaluate(FAKE, [list(range(12)), [1, 12]])
        names = page.locator("#try .classes tbody th")
        expect(names).to_have_text([f"class {place}" for place in range(11, 1, -1)])
        page.get_by_role("button", name="All 12 classes").press("Enter")
        expect(names).to_have_count(12)
        expect(page.get_by_role("button", name="The top 10")).to_be_focused()
        page.evaluate(AGAIN)
        expect(page.get_by_role("button", name="The top 10")).to_be_focused()
