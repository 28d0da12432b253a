"""The part of the dashboard where a row is made, in a real browser: samples, files, numbers, texts."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.support.browser import Opener, serious, settled
from tests.support.dashboard_try import READING, ROW, WISH, took, upload
from tests.support.live_server import Server

pytestmark = pytest.mark.browser


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def seven(size: int, *, ink: str, paper: str, kind: str = "PNG") -> bytes:
    """A seven in the upper left of a larger picture."""
    picture = Image.new("RGB", (size, size), paper)
    corners = [(0.1 * size, 0.1 * size), (0.55 * size, 0.1 * size), (0.3 * size, 0.8 * size)]
    ImageDraw.Draw(picture).line(corners, ink, width=size // 12, joint="curve")
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def test_samples_are_asked_about_as_they_are(dashboard: Opener, served: Server) -> None:
    """The first by itself, each by a click, value for value as the route has them."""
    from playwright.sync_api import expect

    samples = served.get("/v2/models/digits-10/samples").json()["samples"]
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        group = page.get_by_role("group", name="Samples")
        assert [one.get_attribute("aria-label") for one in group.get_by_role("button").all()] == [
            f"sample: {one['label']}" for one in samples
        ]
        group.get_by_role("button", name="sample: 8").click()
        took(page, "sample: 8")
        expect(page.locator("#try .headline .label")).to_have_text("8")
        (row,) = page.evaluate(ROW)
        assert row["data"] == samples[8]["inputs"][0]["data"]
        assert page.evaluate(READING)["missing"] is None
        # the preview has the very pixels
        preview = page.get_by_role("img", name="Picture as the network receives it").evaluate(
            "(canvas) => Array.from(canvas.getContext('2d').getImageData(0, 0, 8, 8).data)"
        )
        np.testing.assert_allclose(np.array(preview[::4]) * 16 / 255, row["data"], atol=0.04)


@pytest.mark.parametrize(
    "colours", [("black", "white", True), ("white", "black", False), ("#ff0", "#006", False)]
)
def test_a_picture_out_of_a_file_is_made_to_fit(
    dashboard: Opener, served: Server, colours: tuple[str, str, bool]
) -> None:
    """Dark ink on light paper is turned, the ink is cut out and scaled: a seven is a seven."""
    from playwright.sync_api import expect

    ink, paper, turned = colours
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        upload(page, "seven.png", seven(200, ink=ink, paper=paper))
        took(page, "seven.png")
        expect(page.locator("#try .headline .label")).to_have_text("7")
        swap = page.get_by_label("Swap light and dark")
        assert swap.is_checked() is turned
        before = page.evaluate(ROW)
        swap.set_checked(not turned)
        assert page.evaluate(ROW) != before
        swap.set_checked(turned)
        assert page.evaluate(ROW) == before


def test_a_file_may_be_dropped(dashboard: Opener, served: Server) -> None:
    """On the board as by the button."""
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        page.evaluate(
            """(bytes) => {
              const data = new DataTransfer();
              data.items.add(new File([new Uint8Array(bytes)], "seven.webp", { type: "image/webp" }));
              const board = document.querySelector("#try .board");
              const options = { dataTransfer: data, bubbles: true, cancelable: true };
              for (const kind of ["dragover", "drop"]) board.dispatchEvent(new DragEvent(kind, options));
            }""",
            list(seven(64, ink="white", paper="black", kind="WEBP")),
        )
        took(page, "seven.webp")


def test_rows_out_of_npy_files_are_asked_about_as_they_are(dashboard: Opener, served: Server) -> None:
    """Of many rows one is chosen; what does not fit, or is no such file, is said."""
    from playwright.sync_api import expect

    rows = np.random.default_rng(0).uniform(0, 16, (3, 1, 8, 8)).astype(np.float32)
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        upload(page, "rows.npy", npy(rows))
        took(page, "rows.npy, row 1")
        chooser = page.locator("#try .chooser input")
        chooser.fill("3")
        chooser.blur()
        took(page, "rows.npy, row 3")
        assert page.evaluate(ROW)[0]["data"] == rows[2].ravel().tolist()
        wrong = page.locator("#try").get_by_role("alert")
        upload(page, "small.npy", npy(rows[:, :, :4]))
        expect(wrong).to_have_text(
            "small.npy: expected a row of shape [1, 8, 8] or several along a first axis, got shape [3, 1, 4, 8]"
        )
        upload(page, "nan.npy", npy(np.full((8, 8), np.nan)))
        expect(wrong).to_have_text("nan.npy: x: value 1: expected a number, got NaN")
        upload(page, "notes.txt", b"no picture")
        expect(wrong).to_contain_text("notes.txt: expected an image that the browser can read, or .npy, got")
        # and the row from before stands
        took(page, "rows.npy, row 3")


LATE_PICTURES = """() => {
  const plain = window.createImageBitmap;
  window.late = [];
  window.createImageBitmap = (file) =>
    new Promise((resolve) => window.late.push(() => resolve(plain(file))));
}"""


@pytest.mark.thorough
def test_a_file_that_opens_late_changes_nothing(dashboard: Opener, gallery: Server) -> None:
    """Neither a sample that was chosen meanwhile, nor the row of another model."""
    picture = seven(64, ink="white", paper="black")
    with dashboard(gallery.url, path="/#model=digits-10/1") as page:
        took(page, "sample: 0")
        page.evaluate(LATE_PICTURES)
        upload(page, "late.png", picture)
        page.get_by_role("button", name="sample: 3").click()
        took(page, "sample: 3")
        page.evaluate("window.late.shift()()")
        page.wait_for_timeout(800)
        took(page, "sample: 3")
        upload(page, "late.png", picture)
        page.evaluate("location.hash = '#model=letters/1'")
        page.get_by_role("textbox", name="Text").fill("abc")
        took(page, "text")
        page.evaluate("window.late.shift()()")
        page.wait_for_timeout(800)
        took(page, "text")


def test_ink_may_be_dark_on_light(dashboard: Opener, served: Server) -> None:
    """Where samples are, the board and what is drawn are so as well."""
    told = served.get("/v2/models/digits-10/samples").json()
    for sample in told["samples"]:
        sample["inputs"][0]["data"] = [16 - value for value in sample["inputs"][0]["data"]]
    with dashboard(served.url, path="/docs") as page:
        page.route("**/samples", lambda route: route.fulfill(json=told))
        page.goto(served.url)
        took(page, "sample: 0")
        board = page.get_by_role("application", name="Drawing board")
        board.scroll_into_view_if_needed()
        board.click()
        took(page, "drawn")
        assert (
            board.evaluate("(one) => [...one.getContext('2d').getImageData(2, 2, 1, 1).data]")[:3]
            == [255] * 3
        )
        picture = np.reshape(page.evaluate(ROW)[0]["data"], (8, 8))
        assert picture[0, 0] == 16
        assert picture[3:5, 3:5].max() < 8


def test_an_input_that_json_cannot_say_is_told(dashboard: Opener, served: Server) -> None:
    """Half precision has no form in JSON, so there is nothing to try it with."""
    from playwright.sync_api import expect

    with dashboard(served.url) as page:
        took(page, "sample: 0")
        page.evaluate(
            """async () => {
              const { current, publish } = await import("/dashboard/state/store.js");
              const model = current("model");
              const inputs = [{ ...model.inputs[0], datatype: "FP16" }];
              publish("model", { ...model, version: "2", path: `${model.path}2`, inputs });
            }"""
        )
        expect(page.locator("#try .empty")).to_contain_text(
            "The input x is FP16, which JSON requests cannot carry"
        )


def test_a_form_is_made_from_the_metadata(dashboard: Opener, gallery: Server) -> None:
    """A field for each input; what does not fit is told beneath it and nothing is sent, what fits is."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=bare/1") as page:
        a, b = page.get_by_label("Values of a"), page.get_by_label("Values of b")
        settled(page)
        a.fill("0.5, 1")
        b.fill("1 2 3")
        asked = len([one for one in page.record.requests if one.endswith("/infer")])  # type: ignore[attr-defined]
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#try fieldset [role=alert]").nth(1)).to_have_text(
            "b: expected 4 values for shape [4], got 3"
        )
        expect(b).to_be_focused()
        assert b.get_attribute("aria-invalid") == "true"
        page.wait_for_timeout(300)
        assert len([one for one in page.record.requests if one.endswith("/infer")]) == asked  # type: ignore[attr-defined]
        b.fill("[1, 2, 3, -9007199254740991]")
        b.press("Control+Enter")
        took(page, "typed row")
        assert b.get_attribute("aria-invalid") == "false"
        first, second = page.evaluate(ROW)
        assert (first["shape"], first["data"]) == ([1, 2], [0.5, 1])
        assert second["data"] == [1, 2, 3, -9007199254740991]
        twice = page.get_by_role("region", name="Output twice")
        expect(twice.get_by_role("cell").nth(1)).to_have_text("4")
        page.get_by_role("button", name="Random row").click()
        took(page, "random row")
        assert all(value in (0, 1) for value in page.evaluate(ROW)[1]["data"])
        # one more file for the second input
        upload(page, "four.npy", npy(np.array([5, 6, 7, 8])), "Open .npy…")
        expect(page.locator("#try fieldset [role=alert]").nth(0)).to_contain_text(
            "four.npy: expected a row of shape [2]"
        )


def test_a_row_is_carried_from_the_picture_to_the_numbers(dashboard: Opener, served: Server) -> None:
    """What was drawn or chosen stands in the form, may be changed there, and goes back as a picture."""
    with dashboard(served.url) as page:
        took(page, "sample: 0")
        (before,) = page.evaluate(ROW)
        page.get_by_role("button", name="Numbers").click()
        field = page.get_by_label("Values of x")
        page.wait_for_timeout(300)
        assert np.fromstring(re.sub(r"[\[\],]", " ", field.input_value()), sep=" ").tolist() == before["data"]
        field.fill(" ".join(["3"] * 64))
        page.get_by_role("button", name="Predict").click()
        took(page, "typed row")
        page.get_by_role("button", name="Picture").click()
        page.wait_for_timeout(300)
        assert page.evaluate(ROW)[0]["data"] == [3] * 64


def test_texts_are_asked_about_while_one_writes(dashboard: Opener, gallery: Server) -> None:
    """Letters of the alphabet, or a sentence that says which is not."""
    from playwright.sync_api import expect

    with dashboard(gallery.url, path="/#model=letters/1") as page:
        field = page.get_by_role("textbox", name="Text")
        field.fill("abc jj")
        took(page, "text")
        (row,) = page.evaluate(ROW)
        assert row["shape"] == [1, 2, 5]
        assert row["data"] == [1, 2, 3, 0, 0, 10, 10, 0, 0, 0]
        field.fill("abc x")
        said = page.locator("#text-error")
        expect(said).to_have_text(
            'text: expected characters of the network\'s alphabet, got "x" at position 5'
        )
        expect(page.locator("#try .headline")).to_have_count(0)
        page.get_by_role("button", name="Random text").click()
        took(page, "random text")


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
@pytest.mark.parametrize("model", ["digits-10", "bare", "letters"])
def test_axe_finds_nothing_serious(
    dashboard: Opener, gallery: Server, model: str, width: int, dark: bool, tmp_path: Path
) -> None:
    """With a prediction, a refusal and a lesion on the page."""
    with dashboard(gallery.url, path=f"/#model={model}/1", width=width, dark=dark) as page:
        settled(page)
        for button in ("Random row", "Random text"):
            if page.get_by_role("button", name=button).is_visible():
                page.get_by_role("button", name=button).click()
        if model == "digits-10":
            page.evaluate(WISH, [3, "closed"])
            upload(page, "wrong.npy", b"no numbers")
        settled(page)
        assert [one for one in serious(page) if "try" in one or "sample" in one] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
