"""Rows that the page makes of drawings and image files: its own code, in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.live_server import serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

HIGHEST_VALUE = 16  # of a pixel in the model's data

# (drawings, fitted to the frame or as drawn, pixels from 0 to 1)
DRAWN_ROWS = """async ([drawings]) => {
  const { fitStrokes, strokesAsDrawn } = await import("/dashboard/pictures/fit_to_frame.js");
  const { frameFor } = await import("/dashboard/pictures/training_frame.js");
  const frame = frameFor(8, 8, []);
  const medium = frame.pen / frame.height;
  return drawings.map(({ strokes, pen }) => {
    const drawn = strokes.map((points) => ({ points, width: pen * medium }));
    return [fitStrokes(drawn, frame, medium), strokesAsDrawn(drawn, 8, 8)].map(({ data }) => [...data]);
  });
}"""


@contextmanager
def open_page() -> Iterator[Page]:
    """Open the page of a service with the bundled model."""
    from playwright.sync_api import sync_playwright

    with serving("--no-access-log") as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(server.url)
        yield page
        browser.close()


def as_rows(page: Page, script: str, arguments: list[Any]) -> np.ndarray[Any, Any]:
    return np.array(page.evaluate(script, arguments), np.float32)
