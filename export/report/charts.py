"""Line pictures of a report, as SVG that takes its colours from the page's style, light or dark."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from PIL import Image

from export.report.html import Markup, tag

WIDTH, HEIGHT = 440.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 10.0, 40.0
MAX_DOTS = 60


@dataclass(frozen=True)
class Series:
    """Numbers by place; `colour` is a class of the style. Points that are None are left out."""

    name: str
    values: Sequence[float | None]
    colour: str


def chart(
    title: str,
    series: Sequence[Series],
    *,
    below: str,
    places: Sequence[str] = (),
    log: bool = False,
    bounds: tuple[float | None, float | None] | None = None,
    level: tuple[str, float] | None = None,
    band: tuple[Sequence[float], Sequence[float], str] | None = None,
    joined: bool = True,
) -> Markup:
    """Curves over places (layers, say), with a `level` to compare with and a `band` behind them."""
    known = [value for one in series for value in one.values if value is not None]
    known += [level[1]] if level else []
    known += [*band[0], *band[1]] if band else []
    scale = _LogScale(known) if log else _LinearScale(known, bounds)
    count = max(len(one.values) for one in series)
    step = (WIDTH - LEFT - RIGHT) / max(1, count)

    def x(place: float) -> float:
        return LEFT + (place + 0.5) * step

    def y(value: float) -> float:
        return TOP + (1 - scale.share(value)) * (HEIGHT - TOP - BOTTOM)

    drawn = _frame(scale, y)
    if band:
        edge = [(x(n), y(v)) for n, v in enumerate(band[1])]
        edge += [(x(n), y(v)) for n, v in reversed(list(enumerate(band[0])))]
        drawn.append(tag("polygon", points=_points(edge), class_="band"))
    if level:
        drawn.append(_line(LEFT, y(level[1]), WIDTH - RIGHT, y(level[1]), "level"))
    for one in series:
        dots = [(x(n), y(v)) for n, v in enumerate(one.values) if v is not None]
        if joined and len(dots) > 1:
            drawn.append(tag("polyline", points=_points(dots), class_=f"curve {one.colour}"))
        if not joined or count <= MAX_DOTS:
            size = 3.2 if count <= MAX_DOTS else 1.8
            drawn += [
                tag("circle", cx=_coordinate(a), cy=_coordinate(b), r=size, class_=f"dot {one.colour}")
                for a, b in dots
            ]
    drawn += _x_axis(below, places or [str(n) for n in range(count)], x)
    keys = [(one.name, one.colour) for one in series]
    keys += [(band[2], "band")] if band else []
    keys += [(level[0], "level")] if level else []
    return _figure(title, drawn, keys)


def histogram(
    title: str,
    counts: Sequence[tuple[str, Sequence[int], str]],
    *,
    below: str,
    ends: tuple[float, float],
) -> Markup:
    """Shares in equal bins between powers of ten, one outline over the other."""
    shares = [(name, [n / max(1, sum(row)) for n in row], colour) for name, row, colour in counts]
    scale = _LinearScale([share for _, row, _ in shares for share in row], (0.0, None))
    wide = WIDTH - LEFT - RIGHT

    def y(value: float) -> float:
        return TOP + (1 - scale.share(value)) * (HEIGHT - TOP - BOTTOM)

    drawn = _frame(scale, y)
    for _, row, colour in shares:
        step = wide / len(row)
        edge = [(LEFT, y(0))]
        for place, share in enumerate(row):
            edge += [(LEFT + place * step, y(share)), (LEFT + (place + 1) * step, y(share))]
        edge.append((WIDTH - RIGHT, y(0)))
        drawn.append(tag("polygon", points=_points(edge), class_=f"area {colour}"))
    low, high = (round(end) for end in ends)
    for power in range(low, high + 1, 2):
        at = LEFT + wide * (power - low) / (high - low)
        drawn.append(_text(at, HEIGHT - BOTTOM + 16, _power(power), "middle"))
    drawn.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, below, "middle"))
    return _figure(title, drawn, [(name, colour) for name, _, colour in counts])


class _LinearScale:
    """A scale whose ends are round numbers around what is shown."""

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
    """A scale of powers of ten; zero stands at its foot."""

    def __init__(self, values: Sequence[float]) -> None:
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        self.low, self.high = math.floor(min(logs)), math.ceil(max(logs))
        self.high += self.high == self.low
        step = max(1, math.ceil((self.high - self.low) / 5))
        self.ticks = [(10.0**power, _power(power)) for power in range(self.low, self.high + 1, step)]

    def share(self, value: float) -> float:
        return (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0


def _frame(scale: _LinearScale | _LogScale, y: Callable[[float], float]) -> list[Markup]:
    drawn = []
    for value, name in scale.ticks:
        drawn.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), "rule"))
        drawn.append(_text(LEFT - 6, y(value) + 4, name, "end"))
    return drawn


def _x_axis(below: str, places: Sequence[str], x: Callable[[float], float]) -> list[Markup]:
    shown = math.ceil(len(places) / 8) if max(map(len, places)) <= 4 else max(1, len(places) - 1)
    drawn = [
        _text(x(n), HEIGHT - BOTTOM + 16, name, "middle") for n, name in enumerate(places) if n % shown == 0
    ]
    return [*drawn, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, below, "middle")]


def _figure(title: str, drawn: Sequence[Markup], keys: Sequence[tuple[str, str]]) -> Markup:
    svg = tag("svg", *drawn, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", aria_label=title)
    key = [tag("span", tag("i", class_=colour), name) for name, colour in keys]
    return tag("figure", tag("figcaption", title), svg, tag("div", *key, class_="legend"))


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


Array = np.ndarray[Any, np.dtype[Any]]

# of a scale's ends: a few numbers far out would leave no colours for the rest
OUTLIER_PERCENT = 0.5
TRANSPARENT = 255
# letters of names that fit below a map; of more there are only the first and the last
MAX_LABEL_LETTERS = 46


def share_map(title: str, grid: Array, rows: Sequence[str], columns: Sequence[str] = ()) -> Markup:
    """Numbers from 0 to 1, from dark to bright."""
    return _map(title, grid, rows, columns, (0.0, 1.0), "viridis")


def signed_map(
    title: str, grid: Array, rows: Sequence[str], columns: Sequence[str] = (), middle: float = 0.0
) -> Markup:
    """Numbers on both sides of a middle, blue below and red above."""
    apart = np.abs(grid[np.isfinite(grid)] - middle)
    bound = float(np.percentile(apart, 100 - OUTLIER_PERCENT)) if apart.size else 0.0
    bound = bound or float(apart.max(initial=0.0)) or 1.0
    return _map(title, grid, rows, columns, (middle - bound, middle + bound), "RdBu_r")


def _map(
    title: str,
    grid: Array,
    rows: Sequence[str],
    columns: Sequence[str],
    ends: tuple[float, float],
    colours: str,
) -> Markup:
    low, high = ends
    shown = (grid - low) / (high - low)
    if np.isfinite(shown).any():
        finite = grid[np.isfinite(grid)]
        says = f"{len(rows)} layers, {finite.min():.3g} to {finite.max():.3g}"
    else:
        return tag(
            "figure", tag("figcaption", title), tag("p", "Not known for these layers.", class_="quiet")
        )
    height = min(30.0, max(7.0, 0.9 * len(rows)))
    picture = tag(
        "img",
        src=_png(shown, colours),
        alt=f"{title}: {says}",
        style=f"height:{height}rem",
        class_="map",
    )
    upright = tag(
        "div", tag("span", rows[0]), tag("span", rows[-1] if len(rows) > 1 else ""), class_="upright"
    )
    units = _column_labels(grid.shape[1], columns)
    bar = tag(
        "div",
        tag("span", f"{low:.2g}"),
        tag("img", src=_png(np.linspace(0, 1, 128)[None], colours), alt="", class_="bar"),
        tag("span", f"{high:.2g}"),
        class_="key",
    )
    return tag("figure", tag("figcaption", title), tag("div", upright, picture, units, class_="framed"), bar)


def _column_labels(count: int, columns: Sequence[str]) -> Markup:
    """What stands below a map."""
    if columns and sum(map(len, columns)) + len(columns) <= MAX_LABEL_LETTERS:
        return tag("div", *(tag("span", name) for name in columns), class_="across names")
    ends = [columns[0], columns[-1]] if columns else ["unit 0", str(count - 1) if count > 1 else ""]
    return tag("div", *(tag("span", end) for end in ends), class_="across")


def _png(shares: Array, colours: str) -> str:
    """Numbers from 0 to 1 as a picture; what is no number is left transparent."""
    # a byte for each pixel: its place in a palette whose last colour is none
    palette = colormaps[colours](np.linspace(0, 1, TRANSPARENT), bytes=True)[:, :3]
    places = np.where(
        np.isfinite(shares), np.rint(np.clip(np.nan_to_num(shares), 0, 1) * (TRANSPARENT - 1)), TRANSPARENT
    )
    picture = Image.fromarray(places.astype(np.uint8), "L")
    picture.putpalette([*palette.reshape(-1).tolist(), 0, 0, 0])
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True, transparency=TRANSPARENT)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
