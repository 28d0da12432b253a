"""Building blocks of charts: lines, marks, bars and axes as plain data, which `svg` draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

ReportDocument = Mapping[str, Any]
Numbers = Sequence[float | None]
# a number of the style's series ("1" to "4"), the color of alarms, or a color for what matters least
Color = Literal["1", "2", "3", "4", "alarm", "quiet"]
Dash = Literal["solid", "dashed", "dotted"]
Shape = Literal["circle", "square", "diamond", "triangle", "cross", "hollow diamond"]

MS = 1e3
# measures of an SLO that are times
TIME_MEASURES = ("p50", "p90", "p95", "p99", "p99.9", "max", "mean")
# up to this many seconds, a time axis is divided by the second number and named by the third
TIME_UNITS = ((600, 1, "seconds"), (36_000, 60, "minutes"), (math.inf, 3600, "hours"))
# intervals between the ticks of an axis, and room beyond the ends of a logarithmic one, in powers of ten
TICK_INTERVALS, LOG_MARGIN = 5, 0.08


@dataclass(frozen=True, slots=True)
class Line:
    """A line with gaps where there are no values."""

    name: str
    color: Color
    x: Sequence[float]
    y: Numbers
    dash: Dash = "solid"
    in_legend: bool = True


@dataclass(frozen=True, slots=True)
class Marks:
    """Separate points. Each has a shape and a color of its own."""

    name: str
    x: Numbers
    y: Numbers
    styles: Sequence[tuple[Shape, Color]]


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of equal width, stacked upon those before them."""

    name: str
    color: Color
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Level:
    """A dashed line across the chart with its label, such as the limit of an SLO."""

    at: float
    label: str
    is_vertical: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`, with the places and the texts of its ticks."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """The position of a value between the ends: 0 to 1."""
        if self.is_log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(value) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the page.

    Args:
        name: Part of the id of its element in the page.
        title, description: Words above it; the description says in a sentence what it shows.
        content: What it draws.
        x, y: The axes.
        levels: Lines across the chart.
        shades: Beginnings and ends of gray areas on the x axis.
        places: Words for each x of the first line, shown with the values of all lines at this place.
    """

    name: str
    title: str
    description: str
    content: Sequence[Line | Marks | Bars]
    x: Axis
    y: Axis
    levels: Sequence[Level] = ()
    shades: Sequence[tuple[float, float]] = ()
    places: Sequence[str] = ()


def to_ms(values: Iterable[float | None]) -> list[float | None]:
    """Convert seconds to milliseconds."""
    return [None if value is None else value * MS for value in values]


def time_values(report: ReportDocument) -> list[float]:
    """The positions of the time series on the time axis."""
    _, divisor, _ = _time_unit(report)
    return [at / divisor for at in report["series"]["at"]]


def time_axis(report: ReportDocument) -> Axis:
    """The axis of a chart over the whole test."""
    last, divisor, name = _time_unit(report)
    end = last / divisor
    ticks = [tick for tick in linear_axis("", [0, end]).ticks if tick[0] <= end]
    return Axis(f"{name} since the start", 0, end, ticks)


def time_places(report: ReportDocument) -> list[str]:
    """The positions of the time series in words."""
    _, _, name = _time_unit(report)
    return [f"{at:.6g} {name}" for at in time_values(report)]


def uncounted_times(report: ReportDocument) -> list[tuple[float, float]]:
    """The parts of the time axis that the figures leave out."""
    last, divisor, _ = _time_unit(report)
    begin = report["counted"]["from"]
    uncounted = [(0.0, begin), (begin + report["counted"]["seconds"], last)]
    return [(left / divisor, right / divisor) for left, right in uncounted if right - left > 1]


def limit_levels(report: ReportDocument, measures: Sequence[str] = TIME_MEASURES) -> list[Level]:
    """A horizontal line for each limit of the SLO on one of these times."""
    return [
        Level(limit["bound"] * MS, limit["words"])
        for limit in report["verdict"]["limits"]
        if limit["measure"] in measures
    ]


def linear_axis(title: str, values: Iterable[float | None]) -> Axis:
    """An axis from zero to a round number above the values."""
    high = max((value for value in values if value is not None), default=0.0) or 1.0
    size = 10.0 ** math.floor(math.log10(high / TICK_INTERVALS))
    step = next(size * by for by in (1, 2, 5, 10, 20) if size * by * TICK_INTERVALS >= high * (1 - 1e-9))
    count = math.ceil(high / step - 1e-9)
    return Axis(title, 0, step * count, [(step * n, f"{step * n:,.10g}") for n in range(count + 1)])


def log_axis(title: str, values: Iterable[float | None], leads: Sequence[int] | None = None) -> Axis:
    """A logarithmic axis around the values that are larger than zero.

    Args:
        title: Name of the axis.
        values: What it shows.
        leads: First digits of the ticks. By default as many as fit.
    """
    known = [value for value in values if value]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    floor, ceiling = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if leads is None:
        leads = (1, 2, 5) if ceiling - floor <= 3 else (1,)
    low, high = low / 10**LOG_MARGIN, high * 10**LOG_MARGIN
    ticks = [lead * 10.0**power for power in range(floor - 1, ceiling + 1) for lead in leads]
    return Axis(
        title, low, high, [(tick, f"{tick:,g}") for tick in ticks if low <= tick <= high], is_log=True
    )


def all_y(content: Iterable[Line | Marks | Bars], levels: Iterable[Level] = ()) -> list[float | None]:
    """All values that a vertical axis must reach."""
    values = [value for part in content for value in part.y]
    return [*values, *(level.at for level in levels if not level.is_vertical)]


def _time_unit(report: ReportDocument) -> tuple[float, int, str]:
    """The end of the test in seconds, and divisor and name of the unit that suits it."""
    starts = report["series"]["at"]
    last = starts[-1] + report["series"]["interval"] if starts else report["seconds"]
    divisor, name = next((divisor, name) for longest, divisor, name in TIME_UNITS if last <= longest)
    return last, divisor, name
