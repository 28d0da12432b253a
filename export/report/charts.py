"""Line charts of the report: figures by layer, by tensor, or by the share of the units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnpike.reporting.chart import (
    Area,
    Axis,
    Chart,
    Color,
    Content,
    Line,
    Marks,
    Shape,
    all_y,
    linear_axis,
    log_axis,
)
from turnpike.reporting.markup import Markup
from turnpike.reporting.page import chart_figure

# with more points than this a line is drawn without dots, and separate dots are smaller
MAX_DOTS = 60


@dataclass(frozen=True)
class Series:
    """The values of a curve by position; those that are None are left out."""

    name: str
    values: Sequence[float | None]
    color: Color


def line_chart(
    title: str,
    series: Sequence[Series],
    x: Axis,
    places: Sequence[str],
    *,
    at: Sequence[float] = (),
    others: Sequence[Content] = (),
    low: float | None = None,
    high: float | None = None,
    is_log: bool = False,
    joined: bool = True,
) -> Markup:
    """A chart of curves whose points have their name and value as a tooltip.

    Args:
        title: Caption.
        series: The curves.
        x: The horizontal axis.
        places: Names of the positions, such as layers, for tooltips.
        at: Where the positions are on the axis. Default: 0, 1, 2 ...
        others: What is drawn beside the curves; areas are behind them.
        low, high: Ends of the vertical axis, unless they follow the values.
        is_log: Whether the vertical axis is logarithmic.
        joined: Whether points are joined by a line.
    """
    has_room = len(places) <= MAX_DOTS
    shape: Shape = "dot" if has_room else "point"
    curves: list[Content] = []
    for curve in series:
        points = zip(at or range(len(places)), curve.values, places, strict=True)
        known = [(position, value, place) for position, value, place in points if value is not None]
        across, values = [position for position, _, _ in known], [value for _, value, _ in known]
        if joined:
            curves.append(Line(curve.name, curve.color, across, values))
        if has_room or not joined:
            styles = [(shape, curve.color)] * len(known)
            names = [place for _, _, place in known]
            curves.append(Marks(curve.name, across, values, styles, names, in_legend=not joined))
    content = sorted([*curves, *others], key=lambda part: not isinstance(part, Area))
    y = log_axis("", all_y(content)) if is_log else linear_axis("", all_y(content), low, high)
    hover = () if has_room or not joined else places
    return chart_figure(Chart("", title, "", content, x, y, places=hover))


def level(name: str, value: float, x: Axis) -> Line:
    """A dashed line to compare with, over the whole axis."""
    return Line(name, "text", [x.low, x.high], [value, value], "dashed")
