"""The charts of a load-test report, as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from turnpike.loadtest.report import sentences
from turnpike.reporting.chart import (
    Axis,
    Bars,
    Chart,
    Color,
    Content,
    Dash,
    Level,
    Line,
    Marks,
    Numbers,
    Shape,
    all_y,
    linear_axis,
    log_axis,
)

ReportDocument = Mapping[str, Any]

MS = 1e3
# measures of an SLO that are times
TIME_MEASURES = ("p50", "p90", "p95", "p99", "p99.9", "max", "mean")
# up to this many seconds, a time axis has a unit of this many seconds, and its name
TIME_UNITS = ((600, 1, "seconds"), (36_000, 60, "minutes"), (math.inf, 3600, "hours"))
# colors of the most frequent faults; all others are shown as one
FAULT_COLORS: tuple[Color, ...] = ("alarm", "2", "3", "4", "1")
# color and dash of each kind of request in the distribution, if there are few kinds
KIND_STYLES: tuple[tuple[Color, Dash], ...] = (
    ("2", "dashed"),
    ("1", "dotted"),
    ("3", "dashed"),
    ("alarm", "dotted"),
)
# ticks on the axis of the distribution
TICK_SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


def make_charts(report: ReportDocument) -> dict[str, Chart]:
    """All charts that the report has data for, by name."""
    makers = (_time_charts, _error_chart, _distribution_chart, _server_charts, _capacity_charts)
    return {chart.name: chart for maker in makers for chart in maker(report)}


def _time_chart(
    report: ReportDocument,
    texts: tuple[str, str, str],
    unit: str,
    content: Sequence[Line | Bars],
    *,
    y: Axis | None = None,
    levels: Sequence[Level] = (),
) -> Chart:
    """A chart over the whole test; shades the time that the figures leave out.

    Args:
        report: The document.
        texts: Name, title and description of the chart.
        unit: Title of the vertical axis.
        content: What it draws.
        y: Vertical axis; by default from zero.
        levels: Lines across the chart.
    """
    name, title, description = texts
    # the axis is in seconds, and its names are in the unit that suits the length of the test
    at, counted = report["series"]["at"], report["counted"]
    last = at[-1] + report["series"]["interval"] if at else report["seconds"]
    size, unit_name = next((size, name) for longest, size, name in TIME_UNITS if last <= longest)
    ticks = [
        (tick * size, text) for tick, text in linear_axis("", [last / size]).ticks if tick * size <= last
    ]
    uncounted = ((0.0, counted["from"]), (counted["from"] + counted["seconds"], last))
    return Chart(
        name,
        title,
        description,
        content,
        Axis(f"{unit_name} since the start", 0, last, ticks),
        linear_axis(unit, all_y(content)) if y is None else y,
        levels=levels,
        shades=[(begin, end) for begin, end in uncounted if end - begin > 1],
        places=[f"{second / size:.6g} {unit_name}" for second in at],
    )


def _time_charts(report: ReportDocument) -> Iterator[Chart]:
    """Latency, throughput and rows over time."""
    series, at = report["series"], report["series"]["at"]
    if not at:
        return
    lines = [
        Line("max", "quiet", at, _to_ms(series["max"])),
        Line("p99", "alarm", at, _to_ms(series["p99"])),
        Line("p90", "2", at, _to_ms(series["p90"])),
        Line("p50", "4", at, _to_ms(series["p50"])),
    ]
    levels = _limit_levels(report)
    yield _time_chart(
        report,
        ("latency", "Latency over time", "Good answers, by the second in which their request was due."),
        "ms",
        lines,
        y=log_axis("ms", all_y(lines, levels)),
        levels=levels,
    )
    description = (
        "Requests by the second in which they were due, good answers by the second in which they arrived."
    )
    lines = [
        Line("requests due", "quiet", at, series["due_rate"], "dotted"),
        Line("good answers", "4", at, series["good_rate"]),
    ]
    yield _time_chart(report, ("throughput", "Throughput over time", description), "per second", lines)
    if report["load"]["rows"] != [1]:
        lines = [Line("rows", "1", at, series["rows_rate"], in_legend=False)]
        description = "Rows of good answers, by the second in which their request was due."
        yield _time_chart(report, ("rows", "Rows over time", description), "per second", lines)


def _error_chart(report: ReportDocument) -> Iterator[Chart]:
    """Stacked bars of faults over time, the most frequent first."""
    faults = sorted(report["series"]["faults"].items(), key=lambda item: -sum(item[1]))
    if not faults:
        return
    if len(faults) > len(FAULT_COLORS):
        rare = [counts for _, counts in faults[len(FAULT_COLORS) - 1 :]]
        others = ("other", [sum(column) for column in zip(*rare, strict=True)])
        faults = [*faults[: len(FAULT_COLORS) - 1], others]
    at = report["series"]["at"]
    bars = [
        Bars(name, color, at, counts) for (name, counts), color in zip(faults, FAULT_COLORS, strict=False)
    ]
    description = (
        "Requests without a good answer, by the second in which they were due and by what happened instead."
    )
    heights = [sum(column) for column in zip(*(part.y for part in bars), strict=True)]
    yield _time_chart(
        report,
        ("errors", "Errors over time", description),
        "requests",
        bars,
        y=linear_axis("requests", heights),
    )


def _distribution_chart(report: ReportDocument) -> Iterator[Chart]:
    if not report["distribution"]:
        return
    # a line for all requests, and one for each kind
    kinds = {kind: points for kind, points in report["distributions"].items() if points}
    has_kinds = 1 < len(kinds) <= len(KIND_STYLES)
    lines = [_distribution_line(report["distribution"], "all", "4", in_legend=has_kinds)]
    if has_kinds:
        for (kind, points), (color, dash) in zip(kinds.items(), KIND_STYLES, strict=False):
            lines.append(_distribution_line(points, kind, color, dash))
    # the horizontal axis shows shares at the logarithm of their rarity
    end = 1.25 * max([2.0, *lines[0].x])
    ticks = [(_rarity(share), f"{share * 100:.6g} %") for share in TICK_SHARES if _rarity(share) <= end]
    levels = _limit_levels(report)
    yield Chart(
        "distribution",
        "Distribution of latency",
        "The latency that each share of the good answers did not exceed. The rarest, slowest answers are at "
        "the right.",
        lines,
        Axis("share of good answers", 1, end, ticks, is_log=True),
        log_axis("ms", all_y(lines, levels)),
        levels=levels,
        places=[f"{share * 100:.6g} %" for share, _ in report["distribution"] if share < 1],
    )


def _server_charts(report: ReportDocument) -> Iterator[Chart]:
    """The server's own metrics over time."""
    if report["server"] is None:
        return
    series, at = report["series"], report["series"]["at"]
    sources: tuple[tuple[str, str, Color], ...] = (
        ("client", "", "4"),
        ("server", "server_request_", "3"),
        ("its queue", "server_queue_", "2"),
        ("its runs", "server_run_", "1"),
    )
    lines: list[Line] = []
    for name, key, color in sources:
        p50 = Line(f"{name} p50", color, at, _to_ms(series[f"{key}p50"]), "dotted", in_legend=False)
        lines += [Line(f"{name} p99", color, at, _to_ms(series[f"{key}p99"])), p50]
    description = (
        "Latency measured by clients, and the server's own times in the same seconds: p99 solid, p50 dotted."
    )
    yield _time_chart(
        report, ("server", "Client and server", description), "ms", lines, y=log_axis("ms", all_y(lines))
    )
    rows = [Line("batches", "1", at, series["server_batch_rows"], in_legend=False)]
    description = "Rows that the server ran together, on average."
    yield _time_chart(report, ("batches", "Batches", description), "rows", rows)
    queue = [Line("queue", "2", at, series["server_depth"], in_legend=False)]
    yield _time_chart(report, ("queue", "Queue", "Requests that waited for their run."), "requests", queue)


def _capacity_charts(report: ReportDocument) -> Iterator[Chart]:
    """Saturation curves: latency and good answers at each rate that was tried."""
    search = report["capacity"]
    if search is None or not search["steps"]:
        return
    steps = sorted(search["steps"], key=lambda step: step["due_rate"])
    rates = [step["due_rate"] for step in steps]
    x = linear_axis("requests due per second", rates)
    capacity = []
    if rate := search["rate"]:
        capacity = [Level(rate, f"capacity {sentences.capacity_rate(search)}", is_vertical=True)]
    # latency, by the first limit of the SLO on a time
    limits = [limit["measure"] for limit in report["verdict"]["limits"] if limit["measure"] in TIME_MEASURES]
    measure = limits[0] if limits else "p99"
    content = _step_marks(steps, _to_ms(step[measure] for step in steps), measure)
    levels = _limit_levels(report, [measure])
    yield Chart(
        "saturation",
        f"Saturation: {measure} by rate",
        "Dot: the rate kept the SLO. Cross: it did not. Diamond: the load generator was too slow.",
        content,
        x,
        log_axis("ms", all_y(content, levels)),
        levels=[*levels, *capacity],
    )
    # good answers, and the line on which every request has one
    ideal = Line("all requests due", "quiet", [0, rates[-1]], [0, rates[-1]], "dotted", in_legend=False)
    content = [ideal, *_step_marks(steps, [step["rate"] for step in steps], "good answers")]
    yield Chart(
        "goodput",
        "Saturation: good answers by rate",
        "Good answers at each rate. On the dotted line, every request has a good answer.",
        content,
        x,
        linear_axis("good answers per second", all_y(content)),
        levels=capacity,
    )


def _step_marks(steps: Sequence[ReportDocument], values: Numbers, name: str) -> list[Content]:
    """A mark for each step, and a line through them; through the last one if a rate was tried again."""
    last_values = {step["due_rate"]: value for step, value in zip(steps, values, strict=True)}
    through = Line(name, "quiet", list(last_values), list(last_values.values()), in_legend=False)
    marks = Marks(name, [step["due_rate"] for step in steps], values, [_marker(step) for step in steps])
    return [through, marks]


def _marker(step: ReportDocument) -> tuple[Shape, Color]:
    """Shape and color; the shapes alone are enough to tell steps apart."""
    if step["limited"]:
        return "hollow diamond", "2"
    return ("circle", "4") if step["held"] else ("cross", "alarm")


def _distribution_line(
    points: Sequence[Sequence[float]],
    name: str,
    color: Color,
    dash: Dash = "solid",
    *,
    in_legend: bool = True,
) -> Line:
    """Latency by rarity. The slowest answer of all is left out: its rarity is infinite."""
    finite = [(share, latency) for share, latency in points if share < 1]
    rarities, latencies = [_rarity(share) for share, _ in finite], [latency * MS for _, latency in finite]
    return Line(name, color, rarities, latencies, dash, in_legend)


def _rarity(share: float) -> float:
    """One in this many answers is slower: 100 for a share of 99 %."""
    return 1 / (1 - share)


def _to_ms(values: Iterable[float | None]) -> list[float | None]:
    """Convert seconds to milliseconds."""
    return [None if value is None else value * MS for value in values]


def _limit_levels(report: ReportDocument, measures: Sequence[str] = TIME_MEASURES) -> list[Level]:
    """A horizontal line for each limit of the SLO on one of these times."""
    return [
        Level(limit["bound"] * MS, limit["words"])
        for limit in report["verdict"]["limits"]
        if limit["measure"] in measures
    ]
