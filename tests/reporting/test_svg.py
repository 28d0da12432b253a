"""Charts as SVG: every value has its place, and gaps stay gaps."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from turnpike.reporting.chart import (
    Area,
    Axis,
    Bars,
    Chart,
    Level,
    Line,
    Marks,
    linear_axis,
    log_axis,
    position_axis,
)
from turnpike.reporting.svg import MAX_PLACES, TITLE_TOP, draw

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
    assert y2 == TITLE_TOP
    assert y0 - y1 == pytest.approx(y1 - y2)


def test_powers_of_ten_are_evenly_spaced_on_a_logarithmic_axis() -> None:
    chart = replace(CHART, y=log_axis("ms", [1, 100]), content=[Line("a", "1", [0, 1, 2], [1, 10, 100])])
    heights = [y for _, y in points(curve(chart))]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert heights[0] > heights[1]


@pytest.mark.parametrize("value", [0.0, -5.0])
def test_a_logarithmic_axis_has_values_of_zero_or_less_at_its_lower_end(value: float) -> None:
    axis = log_axis("ms", [1, value, None, 100])
    assert axis == log_axis("ms", [1, 100])
    assert axis.share(value) == 0 < axis.share(1)
    assert log_axis("ms", [value]) == log_axis("ms", [])


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_the_ends_of_a_logarithmic_axis_are_above_zero(low: float) -> None:
    with pytest.raises(ValueError, match="expected ends of a logarithmic axis above 0, got"):
        Axis("ms", low, 10, [], is_log=True)


def test_a_gap_stays_a_gap() -> None:
    """Also a zero on a logarithmic axis; a single point between gaps can be seen."""
    path = curve(replace(CHART, content=[Line("a", "1", [0, 1, 2, 3, 4], [1, None, 2, None, 3])]))
    assert path.count("M") == path.count("h0") == 3
    assert "L" not in path
    log = replace(CHART, y=log_axis("ms", [1, 9]), content=[Line("a", "1", [0, 1, 2], [1, 0, 9])])
    assert curve(log).count("M") == 2


def test_bars_stand_on_those_before_them() -> None:
    chart = replace(CHART, content=[Bars("a", "1", [1, 2], [40, 0]), Bars("b", "2", [1, 2], [60, 20])])
    first, second = re.findall(r'<path d="(M[^"]*)" class="bar series-[12]"></path>', draw(chart))[:2]
    # nothing is drawn for a count of zero
    assert (first.count("M"), second.count("M")) == (1, 2)
    bottom, top = points(first)[0][1], float(re.findall(r"V([\d.]+)", first)[0])
    assert top < bottom
    assert points(second)[0][1] == top
    assert float(re.findall(r"V([\d.]+)", second)[0]) == TITLE_TOP
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


def test_a_mark_has_its_name_and_its_value() -> None:
    """Zero is at the lower end of a logarithmic axis, and None is not drawn."""
    marks = Marks(
        "a", [1, 2, 3], [1e-8, 0, None], [("dot", "1")] * 3, ["the first", "the second", "the third"]
    )
    text = draw(replace(CHART, y=log_axis("", [1e-8, 1e-6]), content=[marks]))
    assert "<title>the first, a: 1e-08</title>" in text
    assert "the third" not in text
    heights = [float(y) for y in re.findall(r'cy="([\d.]+)" r="3.2"', text)]
    assert len(heights) == 2
    assert heights[1] > heights[0]


def test_an_area_is_between_its_ends() -> None:
    band = Area("a", "1", [0, 4], [0, 0], [100, 50], is_band=True)
    match = re.search(r'd="M([^"]*)Z" class="band series-1', draw(replace(CHART, content=[band])))
    assert match is not None
    corners = [tuple(map(float, corner.split(","))) for corner in match[1].split("L")]
    (left, high), (right, middle), (_, low), (last, bottom) = corners
    assert (last, bottom) == (left, low)
    assert left < right
    assert middle - high == pytest.approx(low - middle)


def test_long_names_are_upright() -> None:
    """Each has the whole name as a tooltip. Short names are level, and of many names some are left out."""
    names = [f"layer{n:02}.transform_gate.of_a_long_name" for n in range(20)]
    text = draw(replace(CHART, x=position_axis("tensor", names)))
    assert text.count("rotate(-90)") == 20
    for name in names:
        assert f"<title>{name}</title>{name[:23]}…</text>" in text
    assert "rotate" not in draw(replace(CHART, x=position_axis("layer", ["0", "1"])))
    assert [tick for tick, _ in position_axis("layer", list(map(str, range(20)))).ticks] == [*range(0, 20, 3)]
    assert len(position_axis("tensor", names * 10).ticks) <= 25


def test_a_legend_has_each_name_once() -> None:
    rings = [Marks("here", [n], [n], [("ring", "text")]) for n in (1, 2)]
    hidden = Line("hidden", "2", [0], [1], in_legend=False)
    text = draw(replace(CHART, content=[Line("a", "1", [0], [1]), hidden, *rings]))
    assert re.findall(r"</svg>([^<]*)</span>", text) == ["a", "here"]
    assert "legend" not in draw(replace(CHART, content=[hidden]))


def test_an_axis_may_follow_the_values() -> None:
    """Or have given ends; equal values have room on both sides."""
    assert [tick for tick, _ in linear_axis("", [50, 95], low=None).ticks] == [50, 60, 70, 80, 90, 100]
    assert [name for _, name in linear_axis("", [0.4], low=0, high=1).ticks][-1] == "1"
    flat = linear_axis("", [0.5, 0.5], low=None)
    assert flat.low < 0.5 < flat.high
    assert (linear_axis("", [-2], low=None).low, linear_axis("", [-2], low=None).high) == (-3, -1)


def test_ticks_of_a_logarithmic_axis_are_powers_if_they_are_long() -> None:
    assert [name for _, name in log_axis("", [3e-8, 4e-6]).ticks][:3] == ["5·10⁻⁸", "10⁻⁷", "2·10⁻⁷"]
    assert [name for _, name in log_axis("", [1, 10]).ticks] == ["1", "2", "5", "10"]
    assert len(log_axis("", [1e-12, 1e6]).ticks) <= 6


def test_axes_without_values() -> None:
    assert linear_axis("ms", [None]).high == 1
    assert linear_axis("ms", [0]).high == 1
    assert log_axis("ms", [None, 0]).low < log_axis("ms", []).high
    assert [tick for tick, _ in linear_axis("ms", [7]).ticks] == [0, 2, 4, 6, 8]
