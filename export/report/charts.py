"""Charts of the report as plain SVG, so that the page opens offline without a chart library.

The name and value of a point are its tooltip.

Colors come from the page's style, light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnpike.export.report.html import Markup, tag

# size of a chart and its margins, in SVG units
WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 10.0, 40.0
# with more points than this a line is drawn without dots, and separate dots are smaller
MAX_DOTS = 60
# radius of a ring around a point, in SVG units
RING = 7.0
# labels of an x axis that are longer than this are upright; those longer than the second number are cut
MAX_LEVEL_LETTERS, MAX_UPRIGHT_LETTERS = 4, 24
# width of a letter, and distance of upright labels, in SVG units
LETTER_WIDTH, UPRIGHT_STEP = 6.2, 15.0


@dataclass(frozen=True)
class Series:
    """Values by position, of which those that are None are left out.

    Attributes:
        name: Its name in the legend.
        values: The value at each position.
        color: A class of the page's style.
        rings: Whether to draw a ring around each point, and no line. Series of one name share a legend entry.
    """

    name: str
    values: Sequence[float | None]
    color: str
    rings: bool = False


def chart(
    title: str,
    series: Sequence[Series],
    *,
    below: str,
    places: Sequence[str] = (),
    at: Sequence[float] = (),
    log: bool = False,
    bounds: tuple[float | None, float | None] | None = None,
    level: tuple[str, Sequence[float | None]] | None = None,
    band: tuple[Sequence[float], Sequence[float], str] | None = None,
    joined: bool = True,
) -> Markup:
    """A line chart.

    Args:
        title: Caption.
        series: The curves.
        below: Name of the x axis.
        places: Names of the positions, such as layers, which label the x axis. Default: 0, 1, 2 ...
        at: Ascending numbers for an x axis on which positions are as far apart as these. The axis is then
            labeled with round numbers, and `places` are in tooltips only. Default: an even distance.
        log: Whether the y axis is logarithmic.
        bounds: Ends of the y axis; None for an end that follows the values.
        level: Name of a dashed line to compare with, and its value at each position.
        band: Lower values, upper values and name of a band behind the curves.
        joined: Whether points are joined by a line.
    """
    values = [value for curve in series for value in curve.values if value is not None]
    values += [value for value in level[1] if value is not None] if level else []
    values += [*band[0], *band[1]] if band else []
    scale = _LogScale(values) if log else _LinearScale(values, bounds)
    count = max(len(curve.values) for curve in series)
    places = places or [str(n) for n in range(count)]
    across = _Numbers(at) if at else _Positions(places)
    x = across.x

    def y(value: float) -> float:
        return TOP + (1 - scale.share(value)) * (HEIGHT - TOP - BOTTOM)

    elements = _frame(scale, y)
    if band:
        edge = [(x(n), y(v)) for n, v in enumerate(band[1])]
        edge += [(x(n), y(v)) for n, v in reversed(list(enumerate(band[0])))]
        elements.append(tag("polygon", points=_points(edge), class_="band"))
    if level:
        # the line is level over the width of a position, and ends where there is no value
        steps = [
            f"M{_coordinate(across.start(n))},{_coordinate(y(v))}H{_coordinate(across.start(n + 1))}"
            for n, v in enumerate(level[1])
            if v is not None
        ]
        elements.append(tag("path", d="".join(steps), class_="level"))
    for curve in series:
        dots = [(x(n), y(v)) for n, v in enumerate(curve.values) if v is not None]
        if joined and len(dots) > 1 and not curve.rings:
            elements.append(tag("polyline", points=_points(dots), class_=f"curve {curve.color}"))
        if not joined or count <= MAX_DOTS:
            size = RING if curve.rings else 3.2 if count <= MAX_DOTS else 1.8
            elements += [
                tag(
                    "circle",
                    tag("title", f"{places[n]}, {curve.name}: {v:.4g}"),
                    cx=_coordinate(x(n)),
                    cy=_coordinate(y(v)),
                    r=size,
                    class_=f"{'hollow' if curve.rings else 'dot'} {curve.color}",
                )
                for n, v in enumerate(curve.values)
                if v is not None
            ]
    labels, height = across.labels(below)
    kind = "curve" if joined else "dot"
    legend = [(curve.name, f"{kind} {curve.color}") for curve in series if not curve.rings]
    legend += dict.fromkeys((curve.name, f"hollow {curve.color}") for curve in series if curve.rings)
    legend += [(band[2], "band")] if band else []
    legend += [(level[0], "level")] if level else []
    return _figure(title, [*elements, *labels], legend, height)


def histogram(
    title: str,
    counts: Sequence[tuple[str, Sequence[int], str]],
    *,
    below: str,
    ends: tuple[float, float],
) -> Markup:
    """Histograms as overlaid outlines: shares in equal bins between powers of ten.

    Args:
        title: Caption.
        counts: Name, counts by bin, and color of each histogram.
        below: Name of the x axis.
        ends: The first and last power of ten.
    """
    shares = [(name, [n / max(1, sum(row)) for n in row], color) for name, row, color in counts]
    scale = _LinearScale([share for _, row, _ in shares for share in row], (0.0, None))
    width = WIDTH - LEFT - RIGHT

    def y(value: float) -> float:
        return TOP + (1 - scale.share(value)) * (HEIGHT - TOP - BOTTOM)

    elements = _frame(scale, y)
    for _, row, color in shares:
        step = width / len(row)
        edge = [(LEFT, y(0))]
        for place, share in enumerate(row):
            edge += [(LEFT + place * step, y(share)), (LEFT + (place + 1) * step, y(share))]
        edge.append((WIDTH - RIGHT, y(0)))
        elements.append(tag("polygon", points=_points(edge), class_=f"area {color}"))
    low, high = (round(end) for end in ends)
    for power in range(low, high + 1, 2):
        position = LEFT + width * (power - low) / (high - low)
        elements.append(_text(position, HEIGHT - BOTTOM + 16, _power(power), "middle"))
    elements.append(_axis_name(below, HEIGHT))
    return _figure(title, elements, [(name, f"area {color}") for name, _, color in counts], HEIGHT)


def bars(
    title: str,
    parts: Sequence[tuple[int, int]],
    *,
    below: str,
    places: Sequence[str],
    names: tuple[str, str],
) -> Markup:
    """A bar for each position, of which a part is filled.

    Args:
        title: Caption.
        parts: The size of the part and of the whole at each position.
        below: Name of the x axis.
        places: Names of the positions, which label the x axis.
        names: Names of the part and of the rest, for the legend.
    """
    scale = _LinearScale([whole for _, whole in parts], (0.0, None))
    across = _Positions(places)

    def y(value: float) -> float:
        return TOP + (1 - scale.share(value)) * (HEIGHT - TOP - BOTTOM)

    elements = _frame(scale, y)
    for n, (part, whole) in enumerate(parts):
        start, end = across.start(n), across.start(n + 1)
        # a tenth of the width is left free on each side
        left, width = start + 0.1 * (end - start), 0.8 * (end - start)
        pieces = ((whole, part, "shade"), (part, 0, "bar series-4"))
        rectangles = [
            tag(
                "rect",
                x=_coordinate(left),
                y=_coordinate(y(top)),
                width=_coordinate(width),
                height=_coordinate(y(bottom) - y(top)),
                class_=kind,
            )
            for top, bottom, kind in pieces
            if top > bottom
        ]
        elements.append(tag("g", tag("title", f"{below} {places[n]}: {part:,} of {whole:,}"), *rectangles))
    labels, height = across.labels(below)
    legend = [(names[0], "bar series-4"), (names[1], "shade")]
    return _figure(title, [*elements, *labels], legend, height)


class _LinearScale:
    """A linear axis whose ends are round numbers around the values."""

    def __init__(self, values: Sequence[float], bounds: tuple[float | None, float | None] | None) -> None:
        low, high = (min(values, default=0.0), max(values, default=1.0))
        if bounds is not None:
            low = low if bounds[0] is None else bounds[0]
            high = high if bounds[1] is None else bounds[1]
        if high - low <= 1e-9 * max(1.0, abs(high)):
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        size = 10 ** math.floor(math.log10((high - low) / 4))
        step = next(size * by for by in (1, 2, 5, 10) if size * by * 5 >= high - low)
        self.low, self.high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
        count = round((self.high - self.low) / step)
        self.ticks = [(self.low + n * step, f"{self.low + n * step:.6g}") for n in range(count + 1)]

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


class _LogScale:
    """A logarithmic axis between powers of ten; zero is at its lower end."""

    def __init__(self, values: Sequence[float]) -> None:
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        self.low, self.high = math.floor(min(logs)), math.ceil(max(logs))
        self.high += self.high == self.low
        step = max(1, math.ceil((self.high - self.low) / 5))
        self.ticks = [(10.0**power, _power(power)) for power in range(self.low, self.high + 1, step)]

    def share(self, value: float) -> float:
        return (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0


class _Positions:
    """An x axis of positions at an even distance, each with a name."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places, self._step = places, (WIDTH - LEFT - RIGHT) / max(1, len(places))

    def x(self, place: float) -> float:
        return LEFT + (place + 0.5) * self._step

    def start(self, place: int) -> float:
        """Where the part of the axis begins that belongs to a position."""
        return self.x(place - 0.5)

    def labels(self, below: str) -> tuple[list[Markup], float]:
        """The labels and the name of the axis, and the height of the chart with them."""
        places = self._places
        if max(map(len, places)) <= MAX_LEVEL_LETTERS:
            every, height = math.ceil(len(places) / 8), HEIGHT
            labels = [
                _text(self.x(n), HEIGHT - BOTTOM + 16, name, "middle")
                for n, name in enumerate(places)
                if n % every == 0
            ]
        else:
            every = math.ceil(len(places) * UPRIGHT_STEP / (WIDTH - LEFT - RIGHT))
            shown = [
                name if len(name) <= MAX_UPRIGHT_LETTERS else f"{name[: MAX_UPRIGHT_LETTERS - 1]}…"
                for name in places
            ]
            height = HEIGHT + LETTER_WIDTH * max(map(len, shown)) - 8
            top = _coordinate(HEIGHT - BOTTOM + 8)
            labels = [
                tag(
                    "text",
                    tag("title", places[n]),
                    name,
                    transform=f"translate({_coordinate(self.x(n) + 4)},{top}) rotate(-90)",
                    text_anchor="end",
                    class_="upright-name",
                )
                for n, name in enumerate(shown)
                if n % every == 0
            ]
        return [*labels, _axis_name(below, height)], height


class _Numbers:
    """An x axis on which each position is at its number."""

    def __init__(self, at: Sequence[float]) -> None:
        self._at, self._scale = at, _LinearScale(at, None)

    def x(self, place: int) -> float:
        return self._x(self._at[place])

    def start(self, place: int) -> float:
        if place in (0, len(self._at)):
            return LEFT if place == 0 else WIDTH - RIGHT
        return self._x((self._at[place - 1] + self._at[place]) / 2)

    def labels(self, below: str) -> tuple[list[Markup], float]:
        ticks = [
            _text(self._x(number), HEIGHT - BOTTOM + 16, name, "middle") for number, name in self._scale.ticks
        ]
        return [*ticks, _axis_name(below, HEIGHT)], HEIGHT

    def _x(self, number: float) -> float:
        return LEFT + self._scale.share(number) * (WIDTH - LEFT - RIGHT)


def _frame(scale: _LinearScale | _LogScale, y: Callable[[float], float]) -> list[Markup]:
    elements = []
    for value, name in scale.ticks:
        elements.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), "rule"))
        elements.append(_text(LEFT - 6, y(value) + 4, name, "end"))
    return elements


def _axis_name(name: str, height: float) -> Markup:
    return _text((LEFT + WIDTH - RIGHT) / 2, height - 6, name, "middle")


def _figure(
    title: str, elements: Sequence[Markup], legend: Sequence[tuple[str, str]], height: float
) -> Markup:
    svg = tag("svg", *elements, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=title)
    return tag("figure", tag("figcaption", tag("b", title)), svg, legend_of(legend))


def legend_of(entries: Sequence[tuple[str, str]]) -> Markup:
    """A legend of names, each with a picture of its kind, such as `curve series-4`."""
    return tag("div", *(tag("span", _swatch(kind), name) for name, kind in entries), class_="legend")


def _swatch(kind: str) -> Markup:
    """A small picture of a line, a dot or an area for the legend."""
    circle = "M7,5a4,4 0 1 0 8,0a4,4 0 1 0 -8,0Z"
    shapes = {"curve": "M0,5H22", "level": "M0,5H22", "dot": circle, "hollow": circle}
    d = shapes.get(kind.split(maxsplit=1)[0], "M0,0H22V10H0Z")
    return tag("svg", tag("path", d=d, class_=kind), viewBox="0 0 22 10", aria_hidden="true")


def _power(power: int) -> str:
    digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag(
        "line", x1=_coordinate(x1), y1=_coordinate(y1), x2=_coordinate(x2), y2=_coordinate(y2), class_=kind
    )


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return tag("text", text, x=_coordinate(x), y=_coordinate(y), text_anchor=anchor)


def _points(dots: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_coordinate(a)},{_coordinate(b)}" for a, b in dots)


def _coordinate(number: float) -> str:
    return f"{number:.1f}"
