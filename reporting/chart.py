"""Charts as plain data: lines, marks, bars, areas and axes, which `svg` draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from turnpike.reporting import number_format as fmt

Numbers = Sequence[float | None]
# a number of the style's series ("1" to "4"), the color of alarms or of text, or one for what matters less
Color = Literal["1", "2", "3", "4", "alarm", "text", "quiet", "faint"]
Dash = Literal["solid", "dashed", "dotted"]
Shape = Literal["circle", "square", "diamond", "triangle", "cross", "hollow diamond", "dot", "point", "ring"]

# intervals between the ticks of a linear axis, and powers of ten between those of a logarithmic one
TICK_INTERVALS, MAX_POWERS = 5, 6
# room beyond the ends of a logarithmic axis, in powers of ten
LOG_MARGIN = 0.08
# names longer than this are upright below an axis, and there is room for this many level and upright ones
MAX_LEVEL_LETTERS, MAX_LEVEL_NAMES, MAX_UPRIGHT_NAMES = 4, 8, 25


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
    """Separate points. Each has a shape and a color of its own, and maybe a name, which its tooltip has."""

    name: str
    x: Numbers
    y: Numbers
    styles: Sequence[tuple[Shape, Color]]
    places: Sequence[str] = ()
    in_legend: bool = True


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of equal width, stacked upon those before them."""

    name: str
    color: Color
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Area:
    """The area between `low` and `y`, with an outline unless it is a band around a line."""

    name: str
    color: Color
    x: Sequence[float]
    low: Sequence[float]
    y: Sequence[float]
    is_band: bool = False


Content = Line | Marks | Bars | Area


@dataclass(frozen=True, slots=True)
class Level:
    """A dashed line across the chart with its label, such as the limit of an SLO."""

    at: float
    label: str
    is_vertical: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from `low` to `high`, with the places and the texts of its ticks.

    A logarithmic axis has no place for values of zero or less: a line has a gap there, and all else is drawn
    at the lower end. Its own ends must be above zero.
    """

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False
    is_upright: bool = False

    def __post_init__(self) -> None:
        if self.is_log and self.low <= 0:
            raise ValueError(f"expected ends of a logarithmic axis above 0, got {self.low:g}")

    def share(self, value: float) -> float:
        """The position of a value between the ends: 0 to 1."""
        if not self.is_log:
            return (value - self.low) / (self.high - self.low)
        if value <= 0:
            return 0.0
        low, high = math.log10(self.low), math.log10(self.high)
        return (math.log10(value) - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the page.

    Args:
        name: Part of the id of its element in the page; empty if it needs none.
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
    content: Sequence[Content]
    x: Axis
    y: Axis
    levels: Sequence[Level] = ()
    shades: Sequence[tuple[float, float]] = ()
    places: Sequence[str] = ()


def linear_axis(
    title: str, values: Iterable[float | None], low: float | None = 0.0, high: float | None = None
) -> Axis:
    """An axis between round numbers around the values.

    Args:
        title: Name of the axis.
        values: What it shows.
        low, high: Ends that do not follow the values.
    """
    known = [value for value in values if value is not None]
    begin = min(known, default=0.0) if low is None else low
    end = max(known, default=0.0) if high is None else high
    if end - begin <= 1e-9 * max(1.0, abs(end)):
        room = abs(end) or 1.0
        begin, end = begin - (room / 2 if low is None else 0), begin + (room / 2 if low is None else room)
    size = 10.0 ** math.floor(math.log10((end - begin) / TICK_INTERVALS))
    step = next(
        size * by for by in (1, 2, 5, 10, 20) if size * by * TICK_INTERVALS >= (end - begin) * (1 - 1e-9)
    )
    first, last = math.floor(begin / step + 1e-9), math.ceil(end / step - 1e-9)
    ticks = [(step * n, f"{step * n:,.10g}") for n in range(first, last + 1)]
    return Axis(title, step * first, step * last, ticks)


def log_axis(title: str, values: Iterable[float | None], leads: Sequence[int] | None = None) -> Axis:
    """A logarithmic axis around the values that are larger than zero.

    Args:
        title: Name of the axis.
        values: What it shows.
        leads: First digits of the ticks. By default as many as fit.
    """
    known = [value for value in values if value is not None and value > 0]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    floor, ceiling = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if leads is None:
        leads = (1, 2, 5) if ceiling - floor <= 3 else (1,)
    low, high = low / 10**LOG_MARGIN, high * 10**LOG_MARGIN
    powers = range(floor - 1, ceiling + 1, math.ceil((ceiling - floor + 1) / MAX_POWERS))
    ticks = [(lead * 10.0**power, _log_tick(lead, power)) for power in powers for lead in leads]
    return Axis(title, low, high, [tick for tick in ticks if low <= tick[0] <= high], is_log=True)


def position_axis(title: str, names: Sequence[str]) -> Axis:
    """A horizontal axis of names, at 0, 1, 2 ... Long names are upright, and many names are thinned out."""
    is_upright = max(map(len, names), default=0) > MAX_LEVEL_LETTERS
    every = math.ceil(len(names) / (MAX_UPRIGHT_NAMES if is_upright else MAX_LEVEL_NAMES)) or 1
    ticks = list(enumerate(names))[::every]
    return Axis(title, -0.5, max(1, len(names)) - 0.5, ticks, is_upright=is_upright)


def all_y(content: Iterable[Content], levels: Iterable[Level] = ()) -> list[float | None]:
    """All values that a vertical axis must reach."""
    values = [value for part in content for value in part.y]
    values += [value for part in content if isinstance(part, Area) for value in part.low]
    return [*values, *(level.at for level in levels if not level.is_vertical)]


def _log_tick(lead: int, power: int) -> str:
    if -5 < power < 6:
        return f"{lead * 10.0**power:,.10g}"
    return fmt.power_of_ten(power) if lead == 1 else f"{lead}·{fmt.power_of_ten(power)}"
