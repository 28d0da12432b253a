"""Line charts of the report: every number has its position, its color and its tooltip."""

from __future__ import annotations

import re

import pytest

from turnpike.export.report.charts import MAX_DOTS, Series, level, line_chart
from turnpike.reporting.chart import Area, linear_axis, position_axis

NAMES = ["a", "b", "c"]
X = position_axis("layer", NAMES)


def test_points_are_where_their_numbers_are() -> None:
    """Round numbers are on the axis, and names in tooltips alone."""
    at = [10, 50, 100]
    x = linear_axis("units", at, low=None)
    drawn = line_chart("t", [Series("s", [1, 2, 3], "4")], x, ["a tenth", "a half", "all"], at=at)
    dots = [float(position) for position in re.findall(r'cx="([\d.]+)"', drawn)]
    assert (dots[1] - dots[0]) / (dots[2] - dots[1]) == pytest.approx(40 / 50, abs=0.01)
    assert "<title>a half, s: 2</title>" in drawn
    assert re.search(r'text-anchor="middle">100</text>', drawn)
    assert ">a half</text>" not in drawn


def test_a_line_passes_over_values_that_are_missing() -> None:
    drawn = line_chart("t", [Series("s", [1.0, None, 3.0], "4")], X, NAMES)
    assert drawn.count("<circle") == 2
    assert re.search(r'd="M[^M]*L[^M]*" class="curve series-4"', drawn)


def test_many_points_have_no_dots() -> None:
    """A line has the values of each place as a tooltip instead, and separate points are smaller."""
    names = [str(n) for n in range(MAX_DOTS + 1)]
    curve = Series("s", [0.5] * len(names), "4")
    joined = line_chart("t", [curve], position_axis("layer", names), names)
    assert "<circle" not in joined
    assert "<title>7\ns: 0.5</title>" in joined
    separate = line_chart("t", [curve], position_axis("layer", names), names, joined=False)
    assert separate.count('r="1.8"') == len(names)
    assert 'class="curve' not in separate


def test_what_is_beside_the_curves_is_drawn_too() -> None:
    """Areas are behind the curves; the axis reaches all of it."""
    band = Area("band", "4", [0, 1, 2], [0.0] * 3, [9.0] * 3, is_band=True)
    others = [level("limit", 8.0, X), band]
    drawn = line_chart("t", [Series("s", [1.0, 2.0, 3.0], "1")], X, NAMES, others=others, low=0)
    kinds = re.findall(r'class="((?:band|curve) [^"]*)"', drawn.partition('class="legend"')[0])
    assert kinds == ["band series-4", "curve series-1", "curve series-text dashed"]
    assert ">10</text>" in drawn
