"""The charts of the page, as plain data for plotly: a row per candidate, a mark per number of users."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loadtest.report.chart_parts import MS, PlotlyObject, plain_text, vertical_line
from loadtest.report.charts import Chart
from loadtest.slo import Slo
from tune.report.sentences import users_text
from tune.result import TuneResult
from tune.search.measurements import LoadFigures

# colour and symbol for each number of users; the symbols alone are enough to tell them apart
MARKERS = (("blue", "circle"), ("orange", "square"), ("green", "diamond"), ("purple", "triangle-up"))


def make_charts(result: TuneResult) -> list[Chart]:
    """Throughput and p99 of every candidate."""
    limits = Slo.parse(result.plan.slo).limits if result.plan.slo else ()
    bounds = [(limit.bound * MS, limit.text) for limit in limits if limit.measure == "p99"]
    return [
        _dot_chart(
            result,
            ("throughput", "Throughput", "Good answers per second. Further to the right is better."),
            lambda figures: figures.rate or None,
        ),
        _dot_chart(
            result,
            (
                "p99",
                "p99 latency",
                "99 % of the answers took at most this many ms. Further to the left is better.",
            ),
            lambda figures: None if figures.p99 is None else figures.p99 * MS,
            bounds,
        ),
    ]


def _dot_chart(
    result: TuneResult,
    texts: tuple[str, str, str],
    value: Callable[[LoadFigures], float | None],
    bounds: Sequence[tuple[float, str]] = (),
) -> Chart:
    """A chart of one measure.

    Args:
        result: The search.
        texts: Name, title and description of the chart.
        value: Reads the measure.
        bounds: Limits of the SLO on the measure, each with its label.
    """
    # plotly draws the first row at the bottom
    rows = result.candidates[::-1]
    names = [plain_text(row.candidate.name) for row in rows]
    names[-1] = f"<b>{names[-1]}</b>"
    data: list[PlotlyObject] = []
    for index, users in enumerate(result.plan.users):
        colour, symbol = MARKERS[index % len(MARKERS)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [value(row.trial[index]) for row in rows],
                "y": names,
                "name": users_text(users),
                "marker": {"color": colour, "symbol": symbol, "size": 10},
                "hovertemplate": "%{x:,.4~g}<extra>%{fullData.name}</extra>",
            }
        )
    values = [x for trace in data for x in trace["x"] if x] + [bound for bound, _ in bounds]
    layout: PlotlyObject = {
        "xaxis": _log_axis(min(values), max(values)) if values else {},
        "yaxis": {"type": "category", "zeroline": False},
        "shapes": [vertical_line(bound, plain_text(label), "left") for bound, label in bounds],
        "showlegend": len(data) > 1,
    }
    name, title, description = texts
    return Chart(name, title, description, data, layout)


def _log_axis(low: float, high: float) -> PlotlyObject:
    """A logarithmic axis, which has room for the rates of one user and of many."""
    leads = (1, 2, 5) if high < 10 * low else (1, 3) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [lead * 10.0**power for power in powers for lead in leads]
    return {
        "type": "log",
        "range": [math.log10(low) - 0.1, math.log10(high) + 0.1],
        "tickvals": ticks,
        "ticktext": [f"{tick:,g}" for tick in ticks],
        "tickangle": 0,
        "zeroline": False,
    }
