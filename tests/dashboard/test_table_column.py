"""Columns of tables: numbers are aligned at the decimal point, and their text stays as it is."""

from __future__ import annotations

import pytest

from tests.support.browser import OpenDashboard
from tests.support.live_server import Server

pytestmark = pytest.mark.browser

# draws a column, and returns the right edge of the digits before the point of each number, classes, and texts
DRAW = """async (texts) => {
  const { el } = await import("/dashboard/dom/element.js");
  const { tableColumn } = await import("/dashboard/dom/table_column.js");
  const { head, cells } = tableColumn("value", texts);
  const rows = cells.map((cell) => el("tr", {}, cell));
  document.querySelector("main").prepend(el("table", {}, el("tr", {}, head), rows));
  const edges = cells.map((cell) => {
    const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
    const range = document.createRange();
    range.setStart(text, 0);
    range.setEnd(text, text.data.match(/^[^\\d]*[\\d,]*/)[0].length);
    return range.getBoundingClientRect().right;
  });
  const aligned = [head, ...cells].map((cell) => cell.className);
  return { edges, aligned, texts: cells.map((cell) => cell.innerText) };
}"""


MINUS = "\N{MINUS SIGN}"
# columns, and how far their points may be apart in pixels: "e" and a minus sign are not as wide as digits
COLUMNS = (
    (["0.217", "12.5", "1,234", f"{MINUS}0.00908", "0"], 0.5),
    (["45.3 %", "9.38 %", "0 %"], 0.5),
    (["0.0341", f"6.4e{MINUS}5", "1"], 3),
)


def test_numbers_are_aligned_at_the_point(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url) as page:
        for numbers, tolerance in COLUMNS:
            drawn = page.evaluate(DRAW, numbers)
            assert max(drawn["edges"]) - min(drawn["edges"]) < tolerance
            assert drawn["aligned"] == ["number"] * (len(numbers) + 1)
            assert drawn["texts"] == numbers


def test_texts_are_not_aligned_as_numbers(dashboard: OpenDashboard, bundled_server: Server) -> None:
    with dashboard(bundled_server.url) as page:
        assert set(page.evaluate(DRAW, ["7", "a name", "0.5"])["aligned"]) == {""}
