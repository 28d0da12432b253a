"""Draws charts as SVG, so that a page opens offline without a chart library.

Colors are classes of the page's style. The values at a point or a place are a tooltip (SVG's `title`), which
needs no script.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from markupsafe import Markup, escape

from turnpike.loadtest.report import number_format as fmt
from turnpike.loadtest.report.chart_parts import Axis, Bars, Chart, Level, Line, Marks, Shape

# size of a chart and its margins, in SVG units; the left one grows with the labels of the axis
WIDTH, HEIGHT = 440.0, 250.0
MIN_LEFT, RIGHT, TOP, BOTTOM = 34.0, 12.0, 18.0, 40.0
# width of a letter of a label, and height of its line
LETTER_WIDTH, LINE_HEIGHT = 6.4, 22.0
# more places with a tooltip than this would make the file large
MAX_PLACES = 150
# share of the room of a bar that is left free
BAR_GAP = 0.05

# outlines of marks around 0, about 10 units wide
SHAPES: dict[Shape, str] = {
    "circle": "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0Z",
    "square": "M-4,-4H4V4H-4Z",
    "diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "triangle": "M0,-5L5,4H-5Z",
    "cross": "M-4,-4L4,4M-4,4L4,-4",
    "hollow diamond": "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
}
HOLLOW: set[Shape] = {"cross", "hollow diamond"}

# characters with which a name could turn the direction of the text around it, and escapes to show instead
DIRECTION_CONTROLS = {code: f"\\u{code:x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def show_controls(value: object) -> object:
    """A text with escapes for characters that change its direction; other values and markup as they are."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return str(value).translate(DIRECTION_CONTROLS) if is_text else value


def draw(chart: Chart) -> Markup:
    """The chart as an `svg` element, and its legend."""
    return _Drawing(chart).markup()


class _Drawing:
    """The positions of a chart's values, and its elements."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        names = [len(name) for _, name in chart.y.ticks]
        self.left = max(MIN_LEFT, 12 + LETTER_WIDTH * max(names, default=0))
        # an axis of names needs a line for each
        self.height = max(HEIGHT, TOP + BOTTOM + LINE_HEIGHT * len(names))

    def x(self, value: float) -> float:
        return self.left + self.chart.x.share(value) * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        return TOP + (1 - self.chart.y.share(value)) * (self.height - TOP - BOTTOM)

    def markup(self) -> Markup:
        chart = self.chart
        label = f"{chart.title}. {chart.description}"
        elements = [*self._axes(), *self._shades(), self._content(), *self._levels(), *self._places()]
        svg = _element(
            "svg", *elements, viewBox=f"0 0 {WIDTH:g} {self.height:g}", role="img", aria_label=label
        )
        return svg + self._legend()

    def _axes(self) -> Iterator[Markup]:
        bottom, chart = self.height - BOTTOM, self.chart
        for value, name in chart.y.ticks:
            at = self.y(value)
            yield _line(self.left, at, WIDTH - RIGHT, at, "rule")
            yield _text(self.left - 6, at + 4, name, "end")
        for value, name in chart.x.ticks:
            yield _text(self.x(value), bottom + 16, name, "middle")
        yield _text((self.left + WIDTH - RIGHT) / 2, self.height - 6, chart.x.title, "middle")
        yield _text(0, 9, chart.y.title, "start")

    def _shades(self) -> Iterator[Markup]:
        for begin, end in self.chart.shades:
            yield self._column(self.x(begin), self.x(end), "shade")

    def _content(self) -> Markup:
        """Lines, marks and bars, cut off at the axes."""
        elements: list[Markup] = []
        bases: dict[float, float] = {}
        for part in self.chart.content:
            if isinstance(part, Line):
                elements.append(self._curve(part))
            elif isinstance(part, Marks):
                elements += self._marks(part)
            else:
                elements.append(self._bars(part, bases))
        # an svg in another shows nothing outside of its box, which has room for half a mark
        room = 6
        x, width = f"{self.left:.1f}", f"{WIDTH - self.left - RIGHT + room:.1f}"
        y, height = f"{TOP - room:g}", f"{self.height - TOP - BOTTOM + 2 * room:.1f}"
        box = f"{x} {y} {width} {height}"
        return _element("svg", *elements, x=x, y=y, width=width, height=height, viewBox=box)

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
        return _element("path", d=f"{path}h0" if is_open else path, class_=_curve_class(line))

    def _marks(self, marks: Marks) -> Iterator[Markup]:
        for x, y, (shape, color) in zip(marks.x, marks.y, marks.styles, strict=True):
            if x is None or y is None or (self.chart.y.is_log and y <= 0):
                continue
            value = f"{_value(self.chart.x, x)}, {_value(self.chart.y, y)}"
            yield _element(
                "path",
                _element("title", f"{marks.name}: {value}"),
                d=SHAPES[shape],
                transform=f"translate({self.x(x):.1f},{self.y(y):.1f})",
                class_=f"{'hollow' if shape in HOLLOW else 'dot'} series-{color}",
            )

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
        return _element("path", d=path, class_=f"dot series-{bars.color}")

    def _levels(self) -> Iterator[Markup]:
        for level in self.chart.levels:
            yield from self._vertical(level) if level.is_vertical else self._horizontal(level)

    def _horizontal(self, level: Level) -> Iterator[Markup]:
        at = self.y(level.at)
        yield _line(self.left, at, WIDTH - RIGHT, at, "level")
        yield _text(self.left + 4, at - 4, level.label, "start", "mark")

    def _vertical(self, level: Level) -> Iterator[Markup]:
        at = self.x(level.at)
        yield _line(at, TOP - 8, at, self.height - BOTTOM, "level")
        # the label is on the side with more room
        has_room_left = self.chart.x.share(level.at) > 0.5
        side = (-4, "end") if has_room_left else (4, "start")
        yield _text(at + side[0], TOP - 1, level.label, side[1], "mark")

    def _places(self) -> Iterator[Markup]:
        """Transparent columns whose tooltips have the values of all lines there."""
        chart = self.chart
        parts = [part for part in chart.content if not isinstance(part, Marks)]
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
        return _element(
            "rect",
            *([] if tooltip is None else [_element("title", tooltip)]),
            x=f"{begin:.1f}",
            y=f"{TOP:g}",
            width=f"{end - begin:.1f}",
            height=f"{self.height - TOP - BOTTOM:.1f}",
            class_=kind,
        )

    def _step(self) -> float:
        """The distance between two bars."""
        at = [self.x(x) for part in self.chart.content if isinstance(part, Bars) for x in part.x]
        return min((right - left for left, right in pairwise(sorted(set(at)))), default=30.0)

    def _legend(self) -> Markup:
        """Names with small pictures, unless there is only one."""
        entries = []
        for part in self.chart.content:
            if isinstance(part, Line):
                if part.in_legend:
                    entries.append((part.name, "M0,5H22", _curve_class(part)))
            elif isinstance(part, Bars):
                entries.append((part.name, "M4,0H18V10H4Z", f"dot series-{part.color}"))
            elif len(set(part.styles)) == 1:
                shape, color = part.styles[0]
                entries.append((part.name, SHAPES[shape], f"dot series-{color}"))
        if len(entries) < 2 and not any(isinstance(part, Bars) for part in self.chart.content):
            return Markup()
        spans = [
            _element("span", _swatch(path, kind, is_mark=not path.startswith(("M0,5H", "M4,0H"))), name)
            for name, path, kind in entries
        ]
        return _element("div", *spans, class_="legend")


def _swatch(path: str, kind: str, is_mark: bool) -> Markup:
    transform = {"transform": "translate(11,5)"} if is_mark else {}
    return _element(
        "svg", _element("path", d=path, class_=kind, **transform), viewBox="0 0 22 10", aria_hidden="true"
    )


def _curve_class(line: Line) -> str:
    dash = "" if line.dash == "solid" else f" {line.dash}"
    return f"curve series-{line.color}{dash}"


def _value(axis: Axis, value: float) -> str:
    """A value with the words of its axis, or the name of the tick that it is."""
    if not axis.title:
        return next((name for at, name in axis.ticks if at == value), fmt.number(value))
    return f"{fmt.number(value)} {axis.title}"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return _element("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=kind)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> Markup:
    return _element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind)


def _element(name: str, *parts: str, **attributes: str) -> Markup:
    """An element. Parts that are not markup are escaped; `_` in names of attributes is a hyphen."""
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(show_controls(value))}"'
        for key, value in attributes.items()
    )
    content = "".join(escape(show_controls(part)) for part in parts)
    # name and attributes are escaped, and so is the content
    return Markup(f"<{name}{text}>{content}</{name}>")  # noqa: S704
