"""The charts of the page, as plain data: a row per candidate, a mark per number of users."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from turnpike.loadtest.slo import Slo
from turnpike.reporting.chart import Axis, Chart, Color, Level, Marks, Shape, log_axis
from turnpike.tune.report.sentences import users_text
from turnpike.tune.result import TuneResult
from turnpike.tune.search.measurements import LoadFigures

MS = 1e3
# color and shape for each number of users; the shapes alone are enough to tell them apart
MARKERS: tuple[tuple[Shape, Color], ...] = (
    ("circle", "4"),
    ("square", "2"),
    ("diamond", "1"),
    ("triangle", "3"),
)


def make_charts(result: TuneResult) -> list[Chart]:
    """Throughput and p99 of every candidate."""
    limits = Slo.parse(result.plan.slo).limits if result.plan.slo else ()
    levels = [
        Level(limit.bound * MS, limit.text, is_vertical=True) for limit in limits if limit.measure == "p99"
    ]
    return [
        _dot_chart(
            result,
            ("throughput", "Throughput", "Good answers per second. Further to the right is better."),
            "good answers per second",
            lambda figures: figures.rate or None,
        ),
        _dot_chart(
            result,
            (
                "p99",
                "p99 latency",
                "99 % of the answers took at most this many ms. Further to the left is better.",
            ),
            "ms",
            lambda figures: None if figures.p99 is None else figures.p99 * MS,
            levels,
        ),
    ]


def _dot_chart(
    result: TuneResult,
    texts: tuple[str, str, str],
    unit: str,
    value: Callable[[LoadFigures], float | None],
    levels: Sequence[Level] = (),
) -> Chart:
    """A chart of one measure.

    Args:
        result: The search.
        texts: Name, title and description of the chart.
        unit: Title of the horizontal axis.
        value: Reads the measure.
        levels: Limits of the SLO on the measure.
    """
    # the first row is at the top
    rows = result.candidates[::-1]
    places = list(range(len(rows)))
    marks = [
        Marks(
            users_text(users),
            [value(row.trial[index]) for row in rows],
            places,
            [MARKERS[index % len(MARKERS)]] * len(rows),
        )
        for index, users in enumerate(result.plan.users)
    ]
    values = [x for part in marks for x in part.x if x] + [level.at for level in levels]
    name, title, description = texts
    candidates = Axis(
        "",
        -0.5,
        len(rows) - 0.5,
        [(place, row.candidate.name) for place, row in zip(places, rows, strict=True)],
    )
    return Chart(name, title, description, marks, _rate_axis(unit, values), candidates, levels=levels)


def _rate_axis(unit: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis, which has room for the rates of one user and of many."""
    spread = max(values) / min(values) if values else 1.0
    return log_axis(unit, values, (1, 2, 5) if spread < 10 else (1, 3) if math.log10(spread) < 3 else (1,))
