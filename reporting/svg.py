"""Draws charts as SVG, so that a page opens offline without a chart library.

Colors are classes of the page's style. The values at a point or a place are a tooltip (SVG's `title`), which
needs no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from turnpike.reporting import number_format as fmt
from turnpike.reporting.chart import Area, Axis, Bars, Chart, Color, Level, Line, Marks, Shape
from turnpike.reporting.markup import Markup, join, tag

# size of a chart and its margins, in SVG units; the left one grows with the labels of the axis
WIDTH, HEIGHT = 440.0, 250.0
MIN_LEFT, RIGHT, BOTTOM = 34.0, 12.0, 40.0
# upper margin of a chart without words there, and with a line for the axis title or for labels of levels
TOP, TITLE_TOP = 10.0, 18.0
# width of a letter of a label, and height of its line
LETTER_WIDTH, LINE_HEIGHT = 6.4, 22.0
# longer upright names are cut
MAX_UPRIGHT_LETTERS = 24
# more places with a tooltip than this would make the file large
MAX_PLACES = 150
# share of the room of a bar that is left free
BAR_GAP = 0.1
# digits of the values in tooltips
DIGITS = 4

# radii of round marks, and outlines of others around 0, about 10 units wide
RADII: dict[Shape, float] = {"circle": 4.5, "dot": 3.2, "point": 1.8, "ring": 7}
OUTLINES: dict[Shape, str] = {
    "square": "M-4,-4H4V4H-4Z",
    "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "triangle": "M0,-5L5,4H-5Z",
    "cross": "M-4,-4L4,4M-4,4L4,-4",
    "hollow diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
}
HOLLOW: set[Shape] = {"cross", "hollow diamond", "ring"}
# outlines in a legend, where they are 22 units wide around 0
LINE_SWATCH, BOX_SWATCH, SWATCH_RADIUS = "M-11,0H11", "M-11,-5H11V5H-11Z", 4.0


def draw(chart: Chart) -> Markup:
    """The chart as an `svg` element, and its legend."""
    return _Drawing(chart).markup()


def legend(entries: Iterable[tuple[str, Markup]]) -> Markup | None:
    """Names with small pictures around 0, each name once; None if there are no names."""
    spans = [
        tag("span", tag("svg", picture, viewBox="-11 -5 22 10", aria_hidden="true"), name)
        for name, picture in dict.fromkeys(entries)
    ]
    return tag("div", *spans, class_="legend") if spans else None


def swatch(kind: str, outline: str = BOX_SWATCH) -> Markup:
    """A picture for a legend; `kind` are the classes of what it stands for."""
    return tag("path", d=outline, class_=kind)


class _Drawing:
    """The positions of a chart's values, and its elements."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        names = [len(name) for _, name in chart.y.ticks]
        self.left = max(MIN_LEFT, 12 + LETTER_WIDTH * max(names, default=0))
        has_words = chart.y.title or any(level.is_vertical for level in chart.levels)
        self.top = TITLE_TOP if has_words else TOP
        # an axis of names needs a line for each
        self.bottom = max(HEIGHT, TITLE_TOP + BOTTOM + LINE_HEIGHT * len(names)) - BOTTOM
        self.height = self.bottom + BOTTOM
        if chart.x.is_upright:
            self.height += LETTER_WIDTH * max(len(_cut(name)) for _, name in chart.x.ticks) - 8

    def x(self, value: float) -> float:
        return self.left + self.chart.x.share(value) * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        return self.top + (1 - self.chart.y.share(value)) * (self.bottom - self.top)

    def markup(self) -> Markup:
        chart = self.chart
        label = f"{chart.title}. {chart.description}" if chart.description else chart.title
        elements = [*self._axes(), *self._shades(), self._content(), *self._levels(), *self._places()]
        view = f"0 0 {WIDTH:g} {self.height:g}"
        return join((tag("svg", *elements, viewBox=view, role="img", aria_label=label), self._legend()))

    def _axes(self) -> Iterator[Markup]:
        chart = self.chart
        for value, name in chart.y.ticks:
            at = self.y(value)
            yield _line(self.left, at, WIDTH - RIGHT, at, "rule")
            yield _text(self.left - 6, at + 4, name, "end")
        for value, name in chart.x.ticks:
            if chart.x.is_upright:
                yield self._upright(self.x(value), name)
            else:
                yield _text(self.x(value), self.bottom + 16, name, "middle")
        yield _text((self.left + WIDTH - RIGHT) / 2, self.height - 6, chart.x.title, "middle")
        if chart.y.title:
            yield _text(0, 9, chart.y.title, "start")

    def _upright(self, x: float, name: str) -> Markup:
        at = f"translate({x + 4:.1f},{self.bottom + 8:.1f}) rotate(-90)"
        whole = tag("title", name)
        return tag("text", whole, _cut(name), transform=at, text_anchor="end", class_="upright-name")

    def _shades(self) -> Iterator[Markup]:
        for begin, end in self.chart.shades:
            yield self._column(self.x(begin), self.x(end), "shade")

    def _content(self) -> Markup:
        """Lines, marks, bars and areas, cut off at the axes."""
        elements: list[Markup] = []
        bases: dict[float, float] = {}
        for part in self.chart.content:
            if isinstance(part, Line):
                elements.append(self._curve(part))
            elif isinstance(part, Marks):
                elements += self._points(part)
            elif isinstance(part, Bars):
                elements.append(self._bars(part, bases))
            else:
                elements.append(self._area(part))
        # an svg in another shows nothing outside of its box, which has room for half a mark
        room = 8
        x, width = f"{self.left:.1f}", f"{WIDTH - self.left - RIGHT + room:.1f}"
        y, height = f"{self.top - room:g}", f"{self.bottom - self.top + 2 * room:.1f}"
        box = f"{x} {y} {width} {height}"
        return tag("svg", *elements, x=x, y=y, width=width, height=height, viewBox=box)

    def _curve(self, line: Line) -> Markup:
        """A path with a new beginning after each gap."""
        path, is_open = "", False
        for x, y in zip(line.x, line.y, strict=True):
            if y is None or (y <= 0 and self.chart.y.is_log):
                # a point between two gaps is a line of no length, of which the round ends are seen
                path, is_open = f"{path}h0" if is_open else path, False
                continue
            path += f"{'L' if is_open else 'M'}{self.x(x):.1f},{self.y(y):.1f}"
            is_open = True
        return tag("path", d=f"{path}h0" if is_open else path, class_=_class(line))

    def _points(self, marks: Marks) -> Iterator[Markup]:
        points = zip(marks.x, marks.y, marks.styles, strict=True)
        for number, (x, y, (shape, color)) in enumerate(points):
            if x is None or y is None:
                continue
            if marks.places:
                text = f"{marks.places[number]}, {marks.name}: {fmt.number(y, DIGITS)}"
            else:
                text = f"{marks.name}: {_value(self.chart.x, x)}, {_value(self.chart.y, y)}"
            yield _mark(shape, color, self.x(x), self.y(y), tag("title", text))

    def _bars(self, bars: Bars, bases: dict[float, float]) -> Markup:
        """All bars of one color as one path, upon the `bases`, which grow."""
        width = self._step() * (1 - BAR_GAP)
        path = ""
        for x, y in zip(bars.x, bars.y, strict=True):
            base = bases.get(x, 0.0)
            bases[x] = base + y
            if y:
                low, high = self.y(base), self.y(base + y)
                path += f"M{self.x(x) - width / 2:.1f},{low:.1f}V{high:.1f}h{width:.1f}V{low:.1f}Z"
        return tag("path", d=path, class_=_class(bars))

    def _area(self, area: Area) -> Markup:
        edge = [*zip(area.x, area.y, strict=True), *reversed(list(zip(area.x, area.low, strict=True)))]
        path = "L".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in edge)
        return tag("path", d=f"M{path}Z", class_=_class(area))

    def _levels(self) -> Iterator[Markup]:
        for level in self.chart.levels:
            yield from self._vertical(level) if level.is_vertical else self._horizontal(level)

    def _horizontal(self, level: Level) -> Iterator[Markup]:
        at = self.y(level.at)
        yield _line(self.left, at, WIDTH - RIGHT, at, "level")
        yield _text(self.left + 4, at - 4, level.label, "start", "mark")

    def _vertical(self, level: Level) -> Iterator[Markup]:
        at = self.x(level.at)
        yield _line(at, self.top - 8, at, self.bottom, "level")
        # the label is on the side with more room
        has_room_left = self.chart.x.share(level.at) > 0.5
        side = (-4, "end") if has_room_left else (4, "start")
        yield _text(at + side[0], self.top - 1, level.label, side[1], "mark")

    def _places(self) -> Iterator[Markup]:
        """Transparent columns whose tooltips have the values of all lines there."""
        chart = self.chart
        parts = [part for part in chart.content if isinstance(part, Line | Bars)]
        if not chart.places or not parts:
            return
        values = [dict(zip(part.x, part.y, strict=True)) for part in parts]
        every = -(-len(chart.places) // MAX_PLACES)
        places = list(zip(parts[0].x, chart.places, strict=True))[::every]
        # a column reaches half the way to its neighbors
        at = [self.x(x) for x, _ in places]
        middles = [(left + right) / 2 for left, right in pairwise(at)]
        ends = zip([self.left, *middles], [*middles, WIDTH - RIGHT], strict=True)
        for (x, place), (begin, end) in zip(places, ends, strict=True):
            known = [
                (part.name, column[x]) for part, column in zip(parts, values, strict=True) if x in column
            ]
            lines = [f"{name}: {fmt.number(value)}" for name, value in known if value is not None]
            yield self._column(begin, end, "hover", "\n".join([place, *lines]))

    def _column(self, begin: float, end: float, kind: str, tooltip: str | None = None) -> Markup:
        begin, end = (min(max(side, self.left), WIDTH - RIGHT) for side in (begin, end))
        return tag(
            "rect",
            None if tooltip is None else tag("title", tooltip),
            x=f"{begin:.1f}",
            y=f"{self.top:g}",
            width=f"{end - begin:.1f}",
            height=f"{self.bottom - self.top:.1f}",
            class_=kind,
        )

    def _step(self) -> float:
        """The distance between two bars."""
        at = [self.x(x) for part in self.chart.content if isinstance(part, Bars) for x in part.x]
        return min((right - left for left, right in pairwise(sorted(set(at)))), default=30.0)

    def _legend(self) -> Markup | None:
        entries = []
        for part in self.chart.content:
            if isinstance(part, Marks):
                if part.in_legend and len(set(part.styles)) == 1:
                    shape, color = part.styles[0]
                    entries.append((part.name, _mark(shape, color, 0, 0, radius=SWATCH_RADIUS)))
            elif not isinstance(part, Line):
                entries.append((part.name, swatch(_class(part))))
            elif part.in_legend:
                entries.append((part.name, swatch(_class(part), LINE_SWATCH)))
        return legend(entries)


def _class(part: Line | Bars | Area) -> str:
    if isinstance(part, Line):
        return f"curve series-{part.color}{'' if part.dash == 'solid' else f' {part.dash}'}"
    kind = "bar" if isinstance(part, Bars) else "band" if part.is_band else "area"
    return f"{kind} series-{part.color}"


def _mark(
    shape: Shape, color: Color, x: float, y: float, *parts: Markup, radius: float | None = None
) -> Markup:
    kind = f"{'hollow' if shape in HOLLOW else 'dot'} series-{color}"
    if shape in RADII:
        return tag(
            "circle",
            *parts,
            cx=f"{x:.1f}",
            cy=f"{y:.1f}",
            r=RADII[shape] if radius is None else radius,
            class_=kind,
        )
    return tag("path", *parts, d=OUTLINES[shape], transform=f"translate({x:.1f},{y:.1f})", class_=kind)


def _value(axis: Axis, value: float) -> str:
    """A value with the words of its axis, or the name of the tick that it is."""
    if not axis.title:
        return next((name for at, name in axis.ticks if at == value), fmt.number(value))
    return f"{fmt.number(value)} {axis.title}"


def _cut(name: str) -> str:
    return name if len(name) <= MAX_UPRIGHT_LETTERS else f"{name[: MAX_UPRIGHT_LETTERS - 1]}…"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _text(x: float, y: float, text: str, anchor: str, kind: str | None = None) -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind)
