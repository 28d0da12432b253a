"""What tests of the dashboard's part "Try it" do and look at, as a person does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# the row in hand: shape, datatype and data of each input
ROW = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const listed = ({ shape, datatype, data }) => ({ shape, datatype, data: Array.from(data) });
  return current("row")?.inputs.map(listed) ?? null;
}"""
# the answer to it
READING = """async () => {
  const { current } = await import("/dashboard/state/store.js");
  const reading = current("reading");
  if (!reading) return null;
  const { row, missing, tensors, gates } = reading;
  return { title: row.title, missing, tensors: [...tensors.keys()], gates: gates.length };
}"""
# a layer "closed", "open" or "as is"
WISH = """async ([layer, what]) => (await import("/dashboard/row/lesion.js")).setLayerState(layer, what)"""


def took(page: Page, title: str) -> None:
    """Wait for the prediction of a row."""
    from playwright.sync_api import expect

    expect(page.locator("#try .request-time")).to_have_text(
        re.compile(rf"^{re.escape(title)} · [\d.]+ (ms|µs|s)$")
    )


def upload(page: Page, name: str, content: bytes, button: str = "Open a file…") -> None:
    with page.expect_file_chooser() as chooser:
        page.locator("#try").get_by_role("button", name=button).first.click()
    chooser.value.set_files({"name": name, "mimeType": "", "buffer": content})
