"""Pages and their components: self-contained, with names shown as text, and tables that can be read aloud."""

from __future__ import annotations

import re

import pytest

from tests.support.page_reader import PageReader, assert_self_contained
from tests.support.source_files import PACKAGES, ROOT, files
from turnpike.reporting.chart import Chart, Level, Line, Marks, linear_axis, position_axis
from turnpike.reporting.page import (
    badge,
    build_page,
    chart_figure,
    figure,
    folded,
    notes,
    section,
    side_by_side,
    summary,
    table,
    tile,
    tiles,
    verdict,
)

EVIL = "</td></style></script><script>alert(1)</script>\"' onerror=x &amp; \u202e"


def chart(name: str = "", words: str = "") -> Chart:
    line, marks = Line(EVIL, "1", [0, 1], [1, 2]), Marks(EVIL, [1], [1], [("dot", "1")], [EVIL])
    x, y = position_axis(EVIL, [EVIL, EVIL]), linear_axis(EVIL, [0, 2])
    return Chart(name, EVIL, words, [line, marks], x, y, [Level(1, EVIL)], places=[EVIL, EVIL])


def evil_page() -> str:
    """A page in which every text is markup."""
    return build_page(
        EVIL,
        summary(EVIL, [badge(EVIL, "ok")], notes([EVIL], "alarm"), tiles(tile(EVIL, EVIL, EVIL))),
        None,
        section(EVIL, EVIL, table([EVIL, EVIL], [[EVIL, EVIL]], (0,), caption=EVIL)),
        section(EVIL, None, folded(EVIL, figure(EVIL, EVIL, description=EVIL, name=EVIL))),
        side_by_side(chart_figure(chart(EVIL, EVIL))),
    )


def test_names_are_shown_as_text() -> None:
    html = evil_page()
    page = PageReader(html)
    assert "<script" not in html
    assert "\u202e" not in html
    assert page.text.count("<script>alert(1)</script>") > 15
    assert page.text.count("\\u202e") > 15
    assert all("onerror" not in attributes for _, attributes in page.elements)


def test_only_this_package_says_what_is_markup() -> None:
    """Reports pass texts, which are escaped. tests/dashboard/test_hostile_names.py has whole pages."""
    callers = [path for package in PACKAGES for path in files(package) if "Markup(" in path.read_text()]
    assert {path.parent for path in callers} == {ROOT / "reporting"}


@pytest.mark.parametrize(("has_images", "images"), [(False, ""), (True, "; img-src data:")])
def test_a_page_is_self_contained(has_images: bool, images: str) -> None:
    """It loads nothing, which its policy forbids too, and has both color schemes and a width for phones."""
    html = build_page("t", section("s", None), has_images=has_images)
    assert_self_contained(PageReader(html), images=images)
    assert "url(" not in html
    assert "http" not in html.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in html
    assert "width=device-width" in html
    assert '<html lang="en">' in html


def test_a_table_names_its_columns_and_rows() -> None:
    """A screen reader says both for each cell; a column of names has no name itself."""
    html = table(["", "n"], [["a", 1], ["b", 2]], (0,), bold=1, caption="c")
    assert "<caption>c</caption>" in html
    assert '<td class="word"></td><th class="number" scope="col">n</th>' in html
    assert '<tr><th class="word" scope="row">a</th><td class="number">1</td></tr>' in html
    assert '<tr class="total"><th class="word" scope="row">b</th>' in html
    assert 'class="scroll table" tabindex="0"' in html


def test_a_chart_has_a_description() -> None:
    html = chart_figure(chart("c", "words"))
    assert '<figure id="chart-c">' in html
    assert re.search(r'role="img" aria-label="[^"]*\. words"', html)
    assert "id=" not in chart_figure(chart())


def test_a_tile_has_a_figure_a_name_and_maybe_a_note() -> None:
    assert PageReader(tile(1234, "rows")).text == "1,234 rows"
    assert PageReader(tile("2x", "faster", "at 1 row")).text == "2x faster at 1 row"
    assert verdict(kept=True) == '<span class="sign ok">kept</span>'
    assert notes([], "watch") is None
