"""The charts of the page, as plotly draws them from plain data: a row for each candidate, a dot for users."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from loadtest.report.chart_parts import MS, Drawn, text, upright
from loadtest.report.charts import Chart
from loadtest.slo import Slo
from tune.measurements import Figures
from tune.result import Found
from tune.sentences import crowd

# told apart by shape as well as by colour
LOOKS = (("blue", "circle"), ("orange", "square"), ("green", "diamond"), ("purple", "triangle-up"))


def charts(found: Found) -> list[Chart]:
    """Throughput and p99 of every candidate."""
    limits = Slo.parse(found.plan.slo).limits if found.plan.slo else ()
    bounds = [(limit.bound * MS, limit.words) for limit in limits if limit.measure == "p99"]
    return [
        _dots(
            found,
            "throughput",
            "Throughput",
            "Good answers a second. Further to the right is better.",
            lambda one: one.rate or None,
        ),
        _dots(
            found,
            "p99",
            "p99 latency",
            "Milliseconds that one answer in a hundred takes longer than. Further to the left is better.",
            lambda one: None if one.p99 is None else one.p99 * MS,
            bounds,
        ),
    ]


def _dots(
    found: Found,
    name: str,
    title: str,
    what: str,
    value: Callable[[Figures], float | None],
    bounds: Sequence[tuple[float, str]] = (),
) -> Chart:
    # plotly begins at the bottom
    lines = found.lines[::-1]
    names = [text(line.candidate.name) for line in lines]
    names[-1] = f"<b>{names[-1]}</b>"
    data: list[Drawn] = []
    for at, users in enumerate(found.plan.users):
        colour, symbol = LOOKS[at % len(LOOKS)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [value(line.trial[at]) for line in lines],
                "y": names,
                "name": crowd(users),
                "marker": {"color": colour, "symbol": symbol, "size": 10},
                "hovertemplate": "%{x:,.4~g}<extra>%{fullData.name}</extra>",
            }
        )
    known = [one for drawn in data for one in drawn["x"] if one] + [at for at, _ in bounds]
    layout: Drawn = {
        "xaxis": _powers(min(known), max(known)) if known else {},
        "yaxis": {"type": "category", "zeroline": False},
        "shapes": [upright(at, text(words), "left") for at, words in bounds],
        "showlegend": len(data) > 1,
    }
    return Chart(name, title, what, data, layout)


def _powers(low: float, high: float) -> Drawn:
    """An axis by powers of ten, on which the rates of one user and of many have room."""
    leads = (1, 2, 5) if high < 10 * low else (1, 3) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    numbers = [lead * 10.0**power for power in powers for lead in leads]
    return {
        "type": "log",
        "range": [math.log10(low) - 0.1, math.log10(high) + 0.1],
        "tickvals": numbers,
        "ticktext": [f"{number:,g}" for number in numbers],
        "tickangle": 0,
        "zeroline": False,
    }
