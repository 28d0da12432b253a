"""Actions in the section "Try it" of the dashboard, and scripts that read the page's state."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.digit_strokes import Drawing

if TYPE_CHECKING:
    from playwright.sync_api import Page

# shape, datatype and data of each input of the current row
# what the page of the bundled model begins with: layer 2 alone flips its answer
OPENING_SAMPLE = "sample: 2"
CURRENT_ROW = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const listed = ({ shape, datatype, data }) => ({ shape, datatype, data: Array.from(data) });
  return current("row")?.inputs.map(listed) ?? null;
}"""
CURRENT_READING = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const reading = current("reading");
  if (!reading) return null;
  const { row, missing, tensors, gates } = reading;
  return { title: row.title, missing, tensors: [...tensors.keys()], gates: gates.length };
}"""
# sets a layer to "closed", "open" or "as trained"
SET_LAYER_STATE = """async ([layer, state]) =>
  (await import("/dashboard/state/lesion.js")).setLever(layer, state)"""


def wait_for_prediction(page: Page, title: str) -> None:
    """Wait for the prediction of a row."""
    from playwright.sync_api import expect

    expect(page.locator("#try .request-time")).to_have_text(
        re.compile(rf"^{re.escape(title)} · [\d.]+ (ms|µs|s)$")
    )


def upload(page: Page, name: str, content: bytes, button: str = "Open a file…") -> None:
    with page.expect_file_chooser() as chooser:
        page.locator("#try").get_by_role("button", name=button).first.click()
    chooser.value.set_files({"name": name, "mimeType": "", "buffer": content})


def draw(page: Page, drawing: Drawing) -> None:
    """Draw with the mouse."""
    board = page.get_by_role("application", name="Drawing board")
    board.scroll_into_view_if_needed()
    box = board.bounding_box()
    assert box is not None
    for stroke in drawing.strokes:
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place)
        page.mouse.up()


def run_curl(code: str, **variables: str) -> Any:
    """The answer to a copied command."""
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, check=True, timeout=60, env={**os.environ, **variables}
    )
    return orjson.loads(done.stdout)


def run_python(code: str, **variables: str) -> Any:
    """The answer that copied code prints."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
        env={**os.environ, **variables},
    )
    return ast.literal_eval(done.stdout)
