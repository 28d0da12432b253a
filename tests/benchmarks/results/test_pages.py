"""Figures are written into a page, and nothing else of it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.results.pages import replace_block


def test_only_the_named_block_is_replaced(tmp_path: Path) -> None:
    """Backslashes in the new text have no special meaning."""
    page = tmp_path / "d.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- end of one -->\nb\n<!-- two -->\n<!-- end of two -->\n")
    replace_block(page, "one", r"new \1")
    replace_block(page, "one", r"new \1 again")
    assert page.read_text() == (
        "a\n<!-- one -->\n\nnew \\1 again\n\n<!-- end of one -->\nb\n<!-- two -->\n<!-- end of two -->\n"
    )


@pytest.mark.parametrize("text", ["", "<!-- one -->", "<!-- end of one --><!-- one -->"])
def test_a_document_without_the_block_is_refused(tmp_path: Path, text: str) -> None:
    page = tmp_path / "d.md"
    page.write_text(text)
    with pytest.raises(
        BenchmarkError, match=r"expected one line <!-- one --> and after it one <!-- end of one"
    ):
        replace_block(page, "one", "new")
