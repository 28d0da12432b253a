"""The gates as a notebook shows them, in a real browser, on light and dark pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.browser import axe_violations
from turnpike.client.results import Gates

if TYPE_CHECKING:
    from playwright.sync_api import Browser

GATES = [
    {"name": "layer00.transform_gate", "mean": 0.25, "carried": 0.75},
    {"name": "<b>bold</b>", "mean": 1.5, "carried": -0.5},
]


@pytest.mark.browser
@pytest.mark.parametrize(("background", "text"), [("#ffffff", "#111111"), ("#111111", "#eeeeee")])
def test_gates_are_an_accessible_table(browser: Browser, background: str, text: str) -> None:
    """It has a title, its text is that of the page, and axe finds nothing."""
    shown = Gates("net", "3", {}, GATES, {}, {})._repr_html_()
    page = browser.new_page()
    try:
        page.set_content(
            f"<!doctype html><html lang=en><title>notebook</title><body style='background:{background};"
            f"color:{text}'><main><h1>Notebook</h1>{shown}</main></body></html>"
        )
        table = page.get_by_role("table", name="Gates of model 'net', version 3")
        rows = table.get_by_role("row").all_inner_texts()
        assert rows[0].split("\t") == ["gate", "mean of T", "carried"]
        assert [cell.strip() for cell in rows[1].split("\t")] == ["layer00.transform_gate", "0.25", "0.75"]
        assert [cell.strip() for cell in rows[2].split("\t")] == ["<b>bold</b>", "1.50", "-0.50"]
        widths = [bar.bounding_box()["width"] for bar in page.locator("rect").all()]  # type: ignore[index]
        assert widths == [160, 40, 160, 120, 160, 160, 160, 0]
        assert axe_violations(page) == []
    finally:
        page.close()
