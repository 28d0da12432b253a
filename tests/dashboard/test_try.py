"""Section "Try it": rows from samples, files, numbers and text."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.support.browser import OpenDashboard, axe_violations, wait_until_idle
from tests.support.dashboard_try import (
    CURRENT_READING,
    CURRENT_ROW,
    OPENING_SAMPLE,
    SET_LAYER_STATE,
    draw,
    upload,
    wait_for_prediction,
)
from tests.support.digit_strokes import Drawing
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.browser


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def seven(size: int, *, ink: str, paper: str, kind: str = "PNG") -> bytes:
    """An image of a seven in its upper left."""
    picture = Image.new("RGB", (size, size), paper)
    corners = [(0.1 * size, 0.1 * size), (0.55 * size, 0.1 * size), (0.3 * size, 0.8 * size)]
    ImageDraw.Draw(picture).line(corners, ink, width=size // 12, joint="curve")
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def answer_json(document: Any, route: Route) -> None:
    route.fulfill(json=document)


def test_samples_are_sent_unchanged(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The first sample is sent by itself, the others on a click."""
    from playwright.sync_api import expect

    samples = bundled_server.get("/v2/models/digits-10/samples").json()["samples"]
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        group = page.get_by_role("group", name="Samples")
        assert [button.get_attribute("aria-label") for button in group.get_by_role("button").all()] == [
            f"sample: {sample['label']}" for sample in samples
        ]
        group.get_by_role("button", name="sample: 8").click()
        wait_for_prediction(page, "sample: 8")
        expect(page.locator("#try .headline .label")).to_have_text("8")
        (row,) = page.evaluate(CURRENT_ROW)
        assert row["data"] == samples[8]["inputs"][0]["data"]
        assert page.evaluate(CURRENT_READING)["missing"] is None
        # the board shows the pixels themselves
        expect(page.get_by_text("as the network receives them")).to_be_hidden()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "colours", [("black", "white", True), ("white", "black", False), ("#ff0", "#006", False)]
)
def test_an_image_file_can_be_fitted_to_the_frame(
    dashboard: OpenDashboard, bundled_server: Server, colours: tuple[str, str, bool]
) -> None:
    """Dark ink on light paper is inverted, and the ink is cropped and scaled."""
    from playwright.sync_api import expect

    ink, paper, turned = colours
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        upload(page, "seven.png", seven(200, ink=ink, paper=paper))
        wait_for_prediction(page, "seven.png")
        page.get_by_label("Fit to the frame").check()
        expect(page.locator("#try .headline .label")).to_have_text("7")
        swap = page.get_by_label("Swap light and dark")
        assert swap.is_checked() is turned
        before = page.evaluate(CURRENT_ROW)
        swap.set_checked(not turned)
        assert page.evaluate(CURRENT_ROW) != before
        swap.set_checked(turned)
        assert page.evaluate(CURRENT_ROW) == before


@pytest.mark.thorough
def test_files_are_not_fitted_to_the_frame_and_drawings_are(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    """An enlarged sample arrives as the sample itself; the box is checked again for the next drawing."""
    from playwright.sync_api import expect

    sample = bundled_server.get("/v2/models/digits-10/samples").json()["samples"][3]
    pixels = np.reshape(sample["inputs"][0]["data"], (8, 8))
    file = io.BytesIO()
    Image.fromarray(np.kron(pixels * 255 / 16, np.ones((8, 8))).round().astype(np.uint8)).save(file, "PNG")
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        fit = page.get_by_label("Fit to the frame")
        expect(fit).to_be_checked()
        upload(page, "three.png", file.getvalue())
        wait_for_prediction(page, "three.png")
        expect(fit).not_to_be_checked()
        (row,) = page.evaluate(CURRENT_ROW)
        np.testing.assert_allclose(np.reshape(row["data"], (8, 8)), pixels, atol=0.05)
        expect(page.locator("#try .headline .label")).to_have_text("3")
        draw(page, Drawing("", 0, [[(0.5, 0.1), (0.5, 0.3)]]))
        expect(page.locator("#try .request-time")).to_contain_text("drawn")
        expect(fit).to_be_checked()


def test_an_image_file_may_be_dropped(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
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
        wait_for_prediction(page, "seven.webp")


def test_rows_of_npy_files_are_sent_unchanged(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    rows = np.random.default_rng(0).uniform(0, 16, (3, 1, 8, 8)).astype(np.float32)
    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        upload(page, "rows.npy", npy(rows))
        wait_for_prediction(page, "rows.npy, row 1")
        chooser = page.locator("#try .chooser input")
        chooser.fill("3")
        chooser.blur()
        wait_for_prediction(page, "rows.npy, row 3")
        assert page.evaluate(CURRENT_ROW)[0]["data"] == rows[2].ravel().tolist()
        wrong = page.locator("#try").get_by_role("alert")
        upload(page, "small.npy", npy(rows[:, :, :4]))
        expect(wrong).to_have_text(
            "small.npy: expected a row of shape [1, 8, 8] or several along a first axis, "
            "got shape [3, 1, 4, 8]"
        )
        upload(page, "nan.npy", npy(np.full((8, 8), np.nan)))
        expect(wrong).to_have_text("nan.npy: x: value 1: expected a number, got NaN")
        upload(page, "notes.txt", b"no picture")
        expect(wrong).to_contain_text("notes.txt: expected an image that the browser can read, or .npy, got")
        # the previous row is still shown
        wait_for_prediction(page, "rows.npy, row 3")


LATE_PICTURES = """() => {
  const plain = window.createImageBitmap;
  window.late = [];
  window.createImageBitmap = (file) =>
    new Promise((resolve) => window.late.push(() => resolve(plain(file))));
}"""


@pytest.mark.thorough
def test_a_late_file_does_not_replace_a_newer_row(
    dashboard: OpenDashboard, all_models_server: Server
) -> None:
    """It replaces neither a sample chosen meanwhile nor the row of another model."""
    picture = seven(64, ink="white", paper="black")
    with dashboard(all_models_server.url, path="/#model=digits-10/1") as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        page.evaluate(LATE_PICTURES)
        upload(page, "late.png", picture)
        page.get_by_role("button", name="sample: 3").click()
        wait_for_prediction(page, "sample: 3")
        page.evaluate("window.late.shift()()")
        page.wait_for_timeout(800)
        wait_for_prediction(page, "sample: 3")
        upload(page, "late.png", picture)
        page.evaluate("location.hash = '#model=letters/1'")
        page.get_by_role("textbox", name="Text").fill("abc")
        wait_for_prediction(page, "text")
        page.evaluate("window.late.shift()()")
        page.wait_for_timeout(800)
        wait_for_prediction(page, "text")


@pytest.mark.thorough
def test_the_board_follows_samples_with_dark_ink(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """If samples have dark ink, so do the board and drawings."""
    from playwright.sync_api import expect

    response = bundled_server.get("/v2/models/digits-10/samples").json()
    for sample in response["samples"]:
        sample["inputs"][0]["data"] = [16 - value for value in sample["inputs"][0]["data"]]
    with dashboard(bundled_server.url, path="/docs") as page:
        page.route("**/samples", lambda route: route.fulfill(json=response))
        page.goto(bundled_server.url)
        # which of them comes first depends on the CPU, since their answers are uncertain
        expect(page.locator("#try .request-time")).to_contain_text("sample: ")
        board = page.get_by_role("application", name="Drawing board")
        board.scroll_into_view_if_needed()
        board.click()
        wait_for_prediction(page, "drawn")
        assert (
            board.evaluate("(canvas) => [...canvas.getContext('2d').getImageData(2, 2, 1, 1).data]")[:3]
            == [255] * 3
        )
        picture = np.reshape(page.evaluate(CURRENT_ROW)[0]["data"], (8, 8))
        assert picture[0, 0] == 16
        assert picture[3:5, 3:5].max() < 8


def test_the_values_of_pixels_are_those_of_the_file(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """If it says them, an image has them, and there is nothing to choose; if not, one may choose."""
    from playwright.sync_api import expect

    image = np.zeros((8, 8), np.uint8)
    image[1:6, 3] = 255
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    certificate = bundled_server.get("/v2/models/digits-10/certificate").json()
    for known in (True, False):
        shown = {**certificate, "ranges": {}, "picture": certificate["picture"] if known else None}
        with dashboard(bundled_server.url, path="/docs") as page:
            page.route("**/certificate", partial(answer_json, shown))
            page.goto(bundled_server.url)
            wait_for_prediction(page, OPENING_SAMPLE)
            upload(page, "one.png", file.getvalue())
            wait_for_prediction(page, "one.png")
            choice = page.get_by_label("Black to white (not in the file)")
            expect(choice).to_have_count(0 if known else 1)
            if not known:
                assert max(page.evaluate(CURRENT_ROW)[0]["data"]) == 1
                choice.select_option("0 to 16")
                wait_until_idle(page)
            expected = (image / 255 * 16).ravel().tolist()
            assert page.evaluate(CURRENT_ROW)[0]["data"] == expected
            assert axe_violations(page) == []


def test_fp16_inputs_show_a_message(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
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


def test_a_form_is_made_from_the_metadata(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """Values that do not fit show an error below the field, and nothing is sent."""
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path="/#model=bare/1") as page:
        a, b = page.get_by_label("Values of a"), page.get_by_label("Values of b")
        wait_until_idle(page)
        a.fill("0.5, 1")
        b.fill("1 2 3")
        before = len([url for url in page.log.requests if url.endswith("/infer")])  # type: ignore[attr-defined]
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#try fieldset [role=alert]").nth(1)).to_have_text(
            "b: expected 4 values for shape [4], got 3"
        )
        expect(b).to_be_focused()
        assert b.get_attribute("aria-invalid") == "true"
        page.wait_for_timeout(300)
        assert len([url for url in page.log.requests if url.endswith("/infer")]) == before  # type: ignore[attr-defined]
        b.fill("[1, 2, 3, -9007199254740991]")
        b.press("Control+Enter")
        wait_for_prediction(page, "typed row")
        assert b.get_attribute("aria-invalid") == "false"
        first, second = page.evaluate(CURRENT_ROW)
        assert (first["shape"], first["data"]) == ([1, 2], [0.5, 1])
        assert second["data"] == [1, 2, 3, -9007199254740991]
        twice = page.get_by_role("region", name="Output twice")
        expect(twice.get_by_role("cell").nth(1)).to_have_text("4")
        page.get_by_role("button", name="Random row").click()
        wait_for_prediction(page, "random row")
        assert all(value in (0, 1) for value in page.evaluate(CURRENT_ROW)[1]["data"])
        # a file that does not fit the first input
        upload(page, "four.npy", npy(np.array([5, 6, 7, 8])), "Open .npy…")
        expect(page.locator("#try fieldset [role=alert]").nth(0)).to_contain_text(
            "four.npy: expected a row of shape [2]"
        )


def test_a_row_moves_between_picture_and_numbers(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_prediction(page, OPENING_SAMPLE)
        (before,) = page.evaluate(CURRENT_ROW)
        page.get_by_role("button", name="Numbers").click()
        field = page.get_by_label("Values of x")
        expect(field).not_to_have_value("")
        assert np.fromstring(re.sub(r"[\[\],]", " ", field.input_value()), sep=" ").tolist() == before["data"]
        field.fill(" ".join(["3"] * 64))
        page.get_by_role("button", name="Predict").click()
        wait_for_prediction(page, "typed row")
        page.get_by_role("button", name="Picture").click()
        page.wait_for_timeout(300)
        assert page.evaluate(CURRENT_ROW)[0]["data"] == [3] * 64


def test_text_is_sent_while_typing(dashboard: OpenDashboard, all_models_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(all_models_server.url, path="/#model=letters/1") as page:
        field = page.get_by_role("textbox", name="Text")
        field.fill("abc jj")
        wait_for_prediction(page, "text")
        (row,) = page.evaluate(CURRENT_ROW)
        assert row == {"shape": [1], "datatype": "BYTES", "data": ["abc jj"]}
        ids = [[[1, 2, 3, 0, 0], [10, 10, 0, 0, 0], [0, 0, 0, 0, 0]]]
        expected = all_models_server.post("/v1/models/letters:predict", {"instances": ids}).json()
        (prediction,) = expected["predictions"]
        expect(page.locator("#try .headline .label")).to_have_text(prediction["label"])
        assert page.evaluate(CURRENT_READING)["gates"] == 2
        notes = page.locator("#text-notes")
        expect(notes).to_have_text("")
        field.fill("ABC x a b")
        expect(notes).to_have_text("Left out: x. Only the first 3 words are read.")
        wait_for_prediction(page, "text")
        assert page.evaluate(CURRENT_ROW)[0]["data"] == ["abc x a b"]
        field.fill(" ")
        expect(page.locator("#try .headline")).to_have_count(0)
        page.get_by_role("button", name="Random text").click()
        wait_for_prediction(page, "random text")
        code = page.locator("#try .snippets code").first
        expect(code).to_contain_text(f'"instances": ["{field.input_value()}"]')


def test_samples_are_shown_as_texts(dashboard: OpenDashboard, all_models_server: Server) -> None:
    """They are sent as texts too. Ids in place of a text are sent as they are."""
    from playwright.sync_api import expect

    ids = {"name": "ids", "datatype": "INT64", "shape": [1, 1, 5], "data": [1, 2, 0, 0, 0]}
    samples = [{"label": "a", "text": "ab jj", "inputs": [ids]}, {"label": "", "text": "", "inputs": [ids]}]
    certificate = all_models_server.get("/v2/models/letters/certificate").json()
    with dashboard(all_models_server.url, path="/docs") as page:
        page.route(
            "**/letters/**/certificate", lambda route: route.fulfill(json=certificate | {"samples": 2})
        )
        page.route("**/letters/**/samples", lambda route: route.fulfill(json={"samples": samples}))
        page.goto(f"{all_models_server.url}/#model=letters/1")
        wait_for_prediction(page, "sample: a")
        field = page.get_by_role("textbox", name="Text")
        expect(field).to_have_value("ab jj")
        expect(page.get_by_role("button", name="sample: a")).to_have_text("ab jj")
        assert page.evaluate(CURRENT_ROW)[0]["data"] == ["ab jj"]
        page.get_by_role("button", name="sample 2").click()
        wait_for_prediction(page, "sample 2")
        expect(field).to_have_value("")
        assert page.evaluate(CURRENT_ROW)[0]["data"] == ids["data"]
        # the numbers of a text are not known here, and the row stays
        page.get_by_role("button", name="sample: a").click()
        wait_for_prediction(page, "sample: a")
        page.get_by_role("button", name="Numbers").click()
        expect(page.get_by_label("Values of ids")).to_have_value("")
        wait_for_prediction(page, "sample: a")


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
@pytest.mark.parametrize("model", ["digits-10", "bare", "letters"])
def test_axe_finds_nothing(
    dashboard: OpenDashboard, all_models_server: Server, model: str, width: int, dark: bool, tmp_path: Path
) -> None:
    """The page has a prediction, an error and a lesion."""
    with dashboard(all_models_server.url, path=f"/#model={model}/1", width=width, dark=dark) as page:
        wait_until_idle(page)
        for button in ("Random row", "Random text"):
            if page.get_by_role("button", name=button).is_visible():
                page.get_by_role("button", name=button).click()
        if model == "digits-10":
            page.evaluate(SET_LAYER_STATE, [3, "closed"])
            upload(page, "wrong.npy", b"no numbers")
        wait_until_idle(page)
        assert axe_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
