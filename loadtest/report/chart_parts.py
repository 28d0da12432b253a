"""Building blocks of charts: lines, axes and marks as plain data for plotly.

Colours are names of the page's style ("blue"), which the page's script replaces by the colours of the theme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

ReportDocument = Mapping[str, Any]
# a trace, a shape or a layout of plotly
PlotlyObject = dict[str, Any]
Numbers = Sequence[float | None]

MS = 1e3
# measures of an SLO that are times
TIME_MEASURES = ("p50", "p90", "p95", "p99", "p99.9", "max", "mean")
# up to this many seconds, a time axis is divided by the second number and named by the third
TIME_UNITS = ((600, 1, "seconds"), (36_000, 60, "minutes"), (math.inf, 3600, "hours"))


def plain_text(text: str) -> str:
    """Escape a text, because plotly reads texts as markup."""
    return escape(text, quote=False)


def to_ms(values: Iterable[float | None]) -> list[float | None]:
    """Convert seconds to milliseconds."""
    return [None if value is None else value * MS for value in values]


def line(
    x: Numbers, y: Numbers, name: str, colour: str, dash: str = "solid", width: float = 2
) -> PlotlyObject:
    """A line with gaps where there are no values.

    Args:
        x, y: values of both axes.
        name: Text in the legend.
        colour: Name of a colour of the page's style.
        dash: Plotly's name of the dash style.
        width: Pixels.
    """
    return {
        "type": "scatter",
        # a line of one or two points is hardly visible without markers
        "mode": "lines+markers" if len(x) < 3 else "lines",
        "x": x,
        "y": y,
        "name": plain_text(name),
        "line": {"color": colour, "width": width, "dash": dash},
        "connectgaps": False,
    }


def time_values(report: ReportDocument) -> list[float]:
    """The positions of the time series on the time axis."""
    _, divisor, _ = _time_axis(report)
    return [at / divisor for at in report["series"]["at"]]


def time_layout(
    report: ReportDocument,
    unit: str,
    traces: Sequence[PlotlyObject],
    *,
    log: bool = False,
    marks: Sequence[PlotlyObject] = (),
) -> PlotlyObject:
    """Layout of a chart over the whole test; shades the time that the figures leave out.

    Args:
        report: The document.
        unit: Title of the vertical axis.
        traces: What the chart draws.
        log: Whether the vertical axis is logarithmic.
        marks: Lines across the chart.
    """
    last, divisor, name = _time_axis(report)
    begin = report["counted"]["from"]
    uncounted = [(0.0, begin), (begin + report["counted"]["seconds"], last)]
    shades = [_shade(left / divisor, right / divisor) for left, right in uncounted if right - left > 1]
    axes = layout(f"{name} since the start", unit, traces, log=log, marks=[*shades, *marks])
    axes["xaxis"]["range"] = [0, last / divisor]
    return axes | {"hovermode": "x unified"}


def layout(
    x_title: str,
    y_title: str,
    traces: Sequence[PlotlyObject],
    *,
    log: bool = False,
    marks: Sequence[PlotlyObject] = (),
) -> PlotlyObject:
    """Layout with titled axes; the vertical axis starts at zero or is logarithmic."""
    y_axis: PlotlyObject = {"title": {"text": y_title}, "zeroline": False, "rangemode": "tozero"}
    if log:
        y_axis |= {"type": "log", **_log_axis(traces, marks)}
    return {
        "xaxis": {"title": {"text": x_title}, "zeroline": False},
        "yaxis": y_axis,
        "shapes": list(marks),
        "showlegend": sum(trace.get("showlegend", True) for trace in traces) > 1,
    }


def limit_lines(report: ReportDocument, measures: Sequence[str] = TIME_MEASURES) -> list[PlotlyObject]:
    """A horizontal line for each limit of the SLO on one of these times."""
    return [
        {
            **_mark("ink", plain_text(limit["words"]), "start", yanchor="bottom"),
            **{"xref": "paper", "x0": 0, "x1": 1},
            **{"yref": "y", "y0": limit["bound"] * MS, "y1": limit["bound"] * MS},
        }
        for limit in report["verdict"]["limits"]
        if limit["measure"] in measures
    ]


def vertical_line(at: float, label: str, side: str) -> PlotlyObject:
    """A vertical line with its label on one side, "left" or "right"."""
    anchor = "left" if side == "right" else "right"
    return {
        **_mark("green", label, "end", yanchor="top", xanchor=anchor, textangle=0),
        **{"xref": "x", "x0": at, "x1": at},
        **{"yref": "paper", "y0": 0, "y1": 1},
    }


def _mark(colour: str, label: str, position: str, **more: Any) -> PlotlyObject:
    font = {"color": colour, "size": 12}
    return {
        "type": "line",
        "line": {"color": colour, "width": 1.5, "dash": "dash"},
        "label": {"text": label, "textposition": position, "font": font, **more},
    }


def _shade(left: float, right: float) -> PlotlyObject:
    return {
        "type": "rect",
        **{"xref": "x", "x0": left, "x1": right},
        **{"yref": "paper", "y0": 0, "y1": 1},
        "fillcolor": "band",
        "line": {"width": 0},
        "layer": "below",
    }


def _time_axis(report: ReportDocument) -> tuple[float, int, str]:
    """The end of the test in seconds, and divisor and name of the unit that suits it."""
    starts = report["series"]["at"]
    last = starts[-1] + report["series"]["interval"] if starts else report["seconds"]
    divisor, name = next((divisor, name) for longest, divisor, name in TIME_UNITS if last <= longest)
    return last, divisor, name


def _log_axis(traces: Iterable[PlotlyObject], marks: Iterable[PlotlyObject]) -> PlotlyObject:
    """Range and tick labels of a logarithmic axis that fits the values."""
    values = [value for trace in traces for value in trace["y"] if value]
    values += [mark["y0"] for mark in marks if mark["yref"] == "y"]
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    floor, ceiling = math.floor(math.log10(low)), math.ceil(math.log10(high))
    leads = (1, 2, 5) if ceiling - floor <= 3 else (1,)
    ticks = [lead * 10.0**power for power in range(floor, ceiling + 1) for lead in leads]
    return {
        "range": [math.log10(low) - 0.08, math.log10(high) + 0.08],
        "tickvals": ticks,
        "ticktext": [f"{tick:,g}" for tick in ticks],
    }
