"""Lines, axes and marks of a chart as plotly takes them: plain data, colours by their name in the style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Document = Mapping[str, Any]
Drawn = dict[str, Any]
Values = Sequence[float | None]

MS = 1e3
# the measures of an SLO that are times
TIMES = ("p50", "p90", "p95", "p99", "p99.9", "max", "mean")
# up to how many seconds a test is told in seconds, in minutes
CLOCKS = ((600, 1, "seconds"), (36_000, 60, "minutes"), (math.inf, 3600, "hours"))


def text(words: str) -> str:
    """Words that plotly shows as they are: what it is given it reads as markup."""
    return escape(words, quote=False)


def ms(values: Iterable[float | None]) -> list[float | None]:
    """Seconds in milliseconds."""
    return [None if value is None else value * MS for value in values]


def line(x: Values, y: Values, name: str, colour: str, dash: str = "solid", width: float = 2) -> Drawn:
    """A curve that has gaps where there is nothing."""
    return {
        "type": "scatter",
        # a curve of one or two seconds can hardly be seen without its points
        "mode": "lines+markers" if len(x) < 3 else "lines",
        "x": x,
        "y": y,
        "name": text(name),
        "line": {"color": colour, "width": width, "dash": dash},
        "connectgaps": False,
    }


def times(found: Document) -> list[float]:
    """Where the places of the series lie on an axis of time."""
    _, divisor, _ = _clock(found)
    return [at / divisor for at in found["series"]["at"]]


def over_time(
    found: Document, unit: str, drawn: Sequence[Drawn], *, log: bool = False, marks: Sequence[Drawn] = ()
) -> Drawn:
    """Axes of a chart over the whole test, with a shade over what the figures leave out."""
    last, divisor, name = _clock(found)
    begin = found["counted"]["from"]
    aside = [(0.0, begin), (begin + found["counted"]["seconds"], last)]
    shades = [_shade(left / divisor, right / divisor) for left, right in aside if right - left > 1]
    axes = layout(f"{name} since the begin", unit, drawn, log=log, marks=[*shades, *marks])
    axes["xaxis"]["range"] = [0, last / divisor]
    return axes | {"hovermode": "x unified"}


def layout(
    across: str, up: str, drawn: Sequence[Drawn], *, log: bool = False, marks: Sequence[Drawn] = ()
) -> Drawn:
    """Axes with their names, and what lies over them; upwards from zero, or by powers of ten."""
    upwards: Drawn = {"title": {"text": up}, "zeroline": False, "rangemode": "tozero"}
    if log:
        upwards |= {"type": "log", **_decades(drawn, marks)}
    return {
        "xaxis": {"title": {"text": across}, "zeroline": False},
        "yaxis": upwards,
        "shapes": list(marks),
        "showlegend": sum(one.get("showlegend", True) for one in drawn) > 1,
    }


def limits(found: Document, measures: Sequence[str] = TIMES) -> list[Drawn]:
    """A line across for each limit of these times."""
    return [
        {
            **_mark("ink", text(limit["words"]), "start", yanchor="bottom"),
            **{"xref": "paper", "x0": 0, "x1": 1},
            **{"yref": "y", "y0": limit["bound"] * MS, "y1": limit["bound"] * MS},
        }
        for limit in found["verdict"]["limits"]
        if limit["measure"] in measures
    ]


def upright(at: float, words: str, side: str) -> Drawn:
    """A line upwards, with its name on this side of it."""
    anchor = "left" if side == "right" else "right"
    return {
        **_mark("green", words, "end", yanchor="top", xanchor=anchor, textangle=0),
        **{"xref": "x", "x0": at, "x1": at},
        **{"yref": "paper", "y0": 0, "y1": 1},
    }


def _mark(colour: str, words: str, place: str, **more: Any) -> Drawn:
    font = {"color": colour, "size": 12}
    return {
        "type": "line",
        "line": {"color": colour, "width": 1.5, "dash": "dash"},
        "label": {"text": words, "textposition": place, "font": font, **more},
    }


def _shade(left: float, right: float) -> Drawn:
    return {
        "type": "rect",
        **{"xref": "x", "x0": left, "x1": right},
        **{"yref": "paper", "y0": 0, "y1": 1},
        "fillcolor": "band",
        "line": {"width": 0},
        "layer": "below",
    }


def _clock(found: Document) -> tuple[float, int, str]:
    """The test's last second, and the unit of time that suits its length."""
    ats = found["series"]["at"]
    last = ats[-1] + found["series"]["interval"] if ats else found["seconds"]
    divisor, name = next((divisor, name) for upto, divisor, name in CLOCKS if last <= upto)
    return last, divisor, name


def _decades(drawn: Iterable[Drawn], marks: Iterable[Drawn]) -> Drawn:
    """Range and numbers of an axis of powers of ten, as far as there is something to show."""
    known = [value for one in drawn for value in one["y"] if value]
    known += [mark["y0"] for mark in marks if mark["yref"] == "y"]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    floor, ceiling = math.floor(math.log10(low)), math.ceil(math.log10(high))
    leads = (1, 2, 5) if ceiling - floor <= 3 else (1,)
    numbers = [lead * 10.0**power for power in range(floor, ceiling + 1) for lead in leads]
    return {
        "range": [math.log10(low) - 0.08, math.log10(high) + 0.08],
        "tickvals": numbers,
        "ticktext": [f"{number:,g}" for number in numbers],
    }
