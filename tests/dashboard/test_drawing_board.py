"""The drawing board: mouse, finger and keyboard, and how drawings are fitted to the model's pictures."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.browser import OpenDashboard
from tests.support.dashboard_try import OPENING_SAMPLE, draw
from tests.support.digit_strokes import Drawing, digit_drawings
from tests.support.live_server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

FIT = """async ([drawings, height, width, samples]) => {
  const { fitStrokes } = await import("/dashboard/pictures/fit_to_frame.js");
  const { frameFor } = await import("/dashboard/pictures/training_frame.js");
  const frame = frameFor(height, width, samples.map((data) => ({ height, width, channels: 1, data })));
  return drawings.map((strokes) =>
    Array.from(fitStrokes(strokes.map((points) => ({ points, width: 0.1 })), frame, 0.1).data));
}"""
ROW = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const row = current("row");
  return row && { title: row.title, data: Array.from(row.inputs[0].data) };
}"""


def wait_for_first_prediction(page: Page) -> None:
    """Wait for the prediction of the first sample, which the page requests by itself."""
    from playwright.sync_api import expect

    expect(page.locator("#try .request-time")).to_contain_text(OPENING_SAMPLE)


def test_digits_drawn_in_many_ways_are_recognized(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """At least 98 % of them."""
    handwriting = digit_drawings(10)
    samples = bundled_server.get("/v2/models/digits-10/samples").json()["samples"]
    known = [(np.array(sample["inputs"][0]["data"]) / 16).tolist() for sample in samples]
    with dashboard(bundled_server.url) as page:
        pixels = page.evaluate(FIT, [[drawing.strokes for drawing in handwriting], 8, 8, known])
    row = {
        "name": "x",
        "datatype": "FP32",
        "shape": [len(handwriting), 1, 8, 8],
        "data": [16 * value for picture in pixels for value in picture],
    }
    logits = bundled_server.post("/v2/models/digits-10/infer", {"inputs": [row]}).json()["outputs"][0]["data"]
    read = np.reshape(logits, (-1, 10)).argmax(1)
    right = [drawing.label == str(digit) for drawing, digit in zip(handwriting, read, strict=True)]
    assert sum(right) >= 0.98 * len(handwriting)


def test_the_frame_is_learned_from_samples(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """Drawings become as high and thick as the samples: here wide, low bars."""
    height, width = 20, 30
    samples = []
    for wide in (3, 4, 5, 6, 7):
        picture = np.zeros((height, width))
        picture[6:14, 13 : 13 + wide] = 1
        samples.append(picture.ravel().tolist())
    hook = [[[0.1, 0.1], [0.5, 0.1], [0.3, 0.9]]]
    with dashboard(bundled_server.url) as page:
        results = [page.evaluate(FIT, [[hook], height, width, known]) for known in (samples, [])]
    learned, usual = [np.reshape(pixels, (height, width)) > 0.3 for (pixels,) in results]
    assert learned.any(1).sum() in (7, 8)
    assert usual.any(1).sum() in (14, 15)
    # a pen that wide covers nearly all of the box
    assert learned.sum() > 0.6 * learned.any(1).sum() * learned.any(0).sum()
    assert usual.sum() < 0.5 * usual.any(1).sum() * usual.any(0).sum()


@pytest.mark.thorough
def test_a_seven_drawn_by_mouse_is_recognized(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    sevens = [drawing for drawing in digit_drawings(1) if drawing.label == "7"]
    with dashboard(bundled_server.url) as page:
        wait_for_first_prediction(page)
        for seven in sevens:
            draw(page, seven)
            expect(page.locator("#try .request-time")).to_contain_text("drawn")
            expect(page.locator("#try .headline .label")).to_have_text("7")
            page.get_by_role("button", name="Clear").click()
            expect(page.locator("#try .prediction")).to_contain_text("No row yet")


def test_a_finger_draws_and_does_not_scroll(dashboard: OpenDashboard, bundled_server: Server) -> None:
    from playwright.sync_api import expect

    with dashboard(bundled_server.url, width=390, height=844, has_touch=True, is_mobile=True) as page:
        wait_for_first_prediction(page)
        board = page.get_by_role("application", name="Drawing board")
        board.scroll_into_view_if_needed()
        box = board.bounding_box()
        assert box is not None
        before = page.evaluate("scrollY")
        touch = page.context.new_cdp_session(page)
        corners = [(0.25, 0.1), (0.8, 0.1), (0.45, 0.9)]
        places = [
            {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
            for (x0, y0), (x1, y1) in pairwise(corners)
            for x, y in [(x0 + (x1 - x0) * i / 10, y0 + (y1 - y0) * i / 10) for i in range(11)]
        ]
        touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": places[:1]})
        for place in places[1:]:
            touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [place]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        expect(page.locator("#try .headline .label")).to_have_text("7")
        assert page.evaluate("scrollY") == before


@pytest.mark.thorough
def test_the_board_can_be_used_by_keyboard(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """The board announces whether the pen is down; Undo removes the stroke."""
    from playwright.sync_api import expect

    with dashboard(bundled_server.url) as page:
        wait_for_first_prediction(page)
        board = page.get_by_role("application", name="Drawing board")
        status = page.locator("#try .board-place [role=status]")
        board.focus()
        for _ in range(10):
            board.press("ArrowUp")
        assert page.evaluate(ROW)["title"] == OPENING_SAMPLE
        board.press(" ")
        expect(status).to_have_text("pen down")
        for _ in range(20):
            board.press("ArrowDown")
        board.press(" ")
        expect(status).to_have_text("pen lifted")
        for _ in range(5):
            board.press("ArrowLeft")
        expect(page.locator("#try .request-time")).to_contain_text("drawn")
        picture = np.reshape(page.evaluate(ROW)["data"], (8, 8))
        # a vertical bar in the middle
        assert (picture.max(1) > 8).all()
        assert set(picture.argmax(1)) <= {3, 4}
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#try .prediction")).to_contain_text("No row yet")
        assert page.evaluate(ROW) is None


@pytest.mark.thorough
def test_fitting_a_drawing_to_the_frame_can_be_disabled(
    dashboard: OpenDashboard, bundled_server: Server
) -> None:
    from playwright.sync_api import expect

    small = Drawing("", 0, [[(0.1, 0.1), (0.1, 0.3)]])
    with dashboard(bundled_server.url) as page:
        wait_for_first_prediction(page)
        page.get_by_label("Fit to the frame").uncheck()
        draw(page, small)
        expect(page.locator("#try .request-time")).to_contain_text("drawn")
        page.wait_for_timeout(1000)
        corner = np.reshape(page.evaluate(ROW)["data"], (8, 8))
        assert corner[:4, :3].sum() > 0
        assert corner[4:].sum() == corner[:, 3:].sum() == 0
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Brush").select_option("broad")
        draw(page, small)
        page.wait_for_timeout(1000)
        assert sum(page.evaluate(ROW)["data"]) > 1.3 * corner.sum()
        # turning the fit on again applies it to what is already drawn
        page.get_by_label("Fit to the frame").check()
        assert np.reshape(page.evaluate(ROW)["data"], (8, 8))[7].max() > 8


@pytest.mark.thorough
def test_a_stroke_replaces_or_extends_a_sample(dashboard: OpenDashboard, bundled_server: Server) -> None:
    """A new stroke replaces a sample, unless the user wants to draw over it."""
    from playwright.sync_api import expect

    stroke = Drawing("", 0, [[(0.05, 0.95), (0.2, 0.95)]])
    with dashboard(bundled_server.url) as page:
        wait_for_first_prediction(page)
        page.get_by_role("button", name="sample: 7").click()
        expect(page.locator("#try .request-time")).to_contain_text("sample: 7")
        sample: Any = np.reshape(page.evaluate(ROW)["data"], (8, 8))
        page.get_by_label("Draw over this picture").check()
        draw(page, stroke)
        expect(page.locator("#try .request-time")).to_contain_text("sample: 7, drawn over")
        page.wait_for_timeout(1000)
        over = np.reshape(page.evaluate(ROW)["data"], (8, 8))
        assert over[7, 0] > 8 > sample[7, 0]
        np.testing.assert_array_equal(over[:6], sample[:6])
        page.get_by_role("button", name="sample: 7").click()
        page.get_by_label("Draw over this picture").uncheck()
        draw(page, stroke)
        expect(page.locator("#try .request-time")).to_contain_text("drawn ·")
