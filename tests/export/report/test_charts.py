"""Charts of the report: every number has its position and its color."""

from __future__ import annotations

import re

import pytest

from turnpike.export.report.charts import Series, bars, chart


def test_points_of_curves_follow_their_values() -> None:
    """Larger values are higher, powers of ten evenly spaced, and None is not drawn."""
    log = chart("t", [Series("a", [1e-8, 1e-6, None, 1e-4], "series-4")], below="x", log=True)
    dots = [float(y) for y in re.findall(r'cy="([\d.]+)"', log)]
    assert len(dots) == 3
    assert dots[0] - dots[1] == pytest.approx(dots[1] - dots[2], abs=0.2)
    assert dots[0] > dots[2]
    flat = chart("t", [Series("a", [0.5, 0.5], "series-4")], below="x")
    assert "nan" not in flat
    zero = chart("t", [Series("a", [0.0, 0.0], "series-4")], below="x", log=True)
    assert "nan" not in zero


def test_an_axis_of_numbers_has_points_where_they_are() -> None:
    """Round numbers are on the axis, and names in tooltips alone."""
    places = ["a tenth", "a half", "all"]
    drawn = chart("t", [Series("a", [1, 2, 3], "series-4")], below="x", places=places, at=[10, 50, 100])
    dots = [float(x) for x in re.findall(r'cx="([\d.]+)"', drawn)]
    assert (dots[1] - dots[0]) / (dots[2] - dots[1]) == pytest.approx(40 / 50, abs=0.01)
    assert "rotate(-90)" not in drawn
    assert "<title>a half, a: 2</title>" in drawn
    assert re.search(r'text-anchor="middle">100</text>', drawn)


def test_rings_mark_points_without_a_line() -> None:
    rings = [Series("here", [None, 2.0], "", rings=True), Series("here", [None, 1.0], "", rings=True)]
    drawn = chart("t", [Series("a", [1.0, 2.0], "series-4"), *rings], below="x")
    assert drawn.count("<polyline") == 1
    assert len(re.findall(r'<circle [^>]*class="hollow', drawn)) == 2
    assert drawn.count("</svg>here</span>") == 1


def test_bars_are_filled_by_their_part() -> None:
    drawn = bars("t", [(3, 4), (0, 4), (4, 4)], below="layer", places=["a", "b", "c"], names=("kept", "gone"))
    filled = [float(height) for height in re.findall(r'height="([\d.]+)" class="bar', drawn)]
    rest = [float(height) for height in re.findall(r'height="([\d.]+)" class="shade', drawn)]
    assert filled == pytest.approx([0.75 * filled[1], filled[1]], abs=0.2)
    assert rest == pytest.approx([0.25 * filled[1], filled[1]], abs=0.2)
    assert "<title>layer a: 3 of 4</title>" in drawn


def test_long_names_are_on_the_axis() -> None:
    """Each tensor has its name, upright; its point and its label have the whole name as a tooltip."""
    names = [f"layer{n:02}.transform_gate.of_a_long_name" for n in range(20)]
    drawn = chart("t", [Series("a", [1.0] * 20, "series-4")], below="tensor", places=names, joined=False)
    assert drawn.count("rotate(-90)") == 20
    for name in names:
        assert f"<title>{name}</title>{name[:23]}…</text>" in drawn
        assert f"<title>{name}, a: 1</title>" in drawn


def test_a_pass_line_has_a_level_for_each_position() -> None:
    drawn = chart(
        "t", [Series("a", [1.0, 1.0, 1.0], "series-4")], below="x", level=("passes below", [3.0, None, 2.0])
    )
    match = re.search(r'd="(M[^"]*)" class="level"', drawn)
    assert match is not None
    heights = [float(y) for y in re.findall(r"M[\d.]+,([\d.]+)H", match[1])]
    assert len(heights) == 2
    assert heights[0] < heights[1]
    assert "passes below" in drawn
