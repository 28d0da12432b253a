"""Charts as SVG: every value has its place, gaps stay gaps, and names are text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from turnpike.loadtest.report.chart_parts import Axis, Bars, Chart, Level, Line, Marks, linear_axis, log_axis
from turnpike.loadtest.report.svg import MAX_PLACES, TOP, draw

X = Axis("seconds", 0, 4, [(0, "0"), (4, "4")])
CHART = Chart("c", "title", "words", [], X, linear_axis("ms", [100]))


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", path)]


def curve(chart: Chart) -> str:
    match = re.search(r'<path d="([^"]*)" class="curve series-1', draw(chart))
    assert match is not None
    return match[1]


def test_larger_values_are_higher_and_later_ones_further_right() -> None:
    dots = points(curve(replace(CHART, content=[Line("a", "1", [0, 1, 2], [0, 50, 100])])))
    (x0, y0), (x1, y1), (x2, y2) = dots
    assert x0 < x1 < x2
    assert y2 == TOP
    assert y0 - y1 == pytest.approx(y1 - y2)


def test_powers_of_ten_are_evenly_spaced_on_a_logarithmic_axis() -> None:
    chart = replace(CHART, y=log_axis("ms", [1, 100]), content=[Line("a", "1", [0, 1, 2], [1, 10, 100])])
    heights = [y for _, y in points(curve(chart))]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert heights[0] > heights[1]


def test_a_gap_stays_a_gap() -> None:
    """Also a zero on a logarithmic axis; a single point between gaps can be seen."""
    path = curve(replace(CHART, content=[Line("a", "1", [0, 1, 2, 3, 4], [1, None, 2, None, 3])]))
    assert path.count("M") == path.count("h0") == 3
    assert "L" not in path
    log = replace(CHART, y=log_axis("ms", [1, 9]), content=[Line("a", "1", [0, 1, 2], [1, 0, 9])])
    assert curve(log).count("M") == 2


def test_bars_stand_on_those_before_them() -> None:
    chart = replace(CHART, content=[Bars("a", "1", [1, 2], [40, 0]), Bars("b", "2", [1, 2], [60, 20])])
    first, second = re.findall(r'<path d="(M[^"]*)" class="dot series-[12]"></path>', draw(chart))[:2]
    # nothing is drawn for a count of zero
    assert (first.count("M"), second.count("M")) == (1, 2)
    bottom, top = points(first)[0][1], float(re.findall(r"V([\d.]+)", first)[0])
    assert top < bottom
    assert points(second)[0][1] == top
    assert float(re.findall(r"V([\d.]+)", second)[0]) == TOP
    assert points(second)[1][1] == bottom


def test_a_tooltip_has_the_values_of_all_lines() -> None:
    lines = [Line("a", "1", [0, 1], [10, None]), Line("b", "2", [0, 1], [30, 40])]
    text = draw(replace(CHART, content=lines, places=["0 seconds", "1 second"]))
    assert "<title>0 seconds\na: 10\nb: 30</title>" in text
    assert "<title>1 second\nb: 40</title>" in text
    many = [n / 1000 for n in range(1000)]
    text = draw(replace(CHART, content=[Line("a", "1", many, many)], places=[str(n) for n in many]))
    assert 0 < text.count("<title>") <= MAX_PLACES


def test_levels_have_labels() -> None:
    text = draw(replace(CHART, levels=[Level(50, "p99<50ms"), Level(3, "capacity", is_vertical=True)]))
    assert text.count('class="level"') == 2
    assert "p99&lt;50ms</text>" in text
    assert "capacity</text>" in text


def test_names_are_text_and_keep_their_direction() -> None:
    evil = "<img src=x>\u202e"
    marks = Marks(evil, [1], [1], [("circle", "1")])
    chart = replace(CHART, title=evil, content=[marks, Line(evil, "1", [0], [1])], places=[evil])
    text = draw(replace(chart, levels=[Level(1, evil)]))
    assert "<img" not in text
    assert "\u202e" not in text
    assert "&lt;img src=x&gt;\\u202e" in text


def test_axes_without_values() -> None:
    assert linear_axis("ms", [None]).high == 1
    assert linear_axis("ms", [0]).high == 1
    assert log_axis("ms", [None, 0]).low < log_axis("ms", []).high
    assert [tick for tick, _ in linear_axis("ms", [7]).ticks] == [0, 2, 4, 6, 8]
