"""The charts of a load-test report, as plain data for plotly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadtest.report import number_format as fmt
from loadtest.report.chart_parts import (
    MS,
    TIME_MEASURES,
    Numbers,
    PlotlyObject,
    ReportDocument,
    layout,
    limit_lines,
    line,
    plain_text,
    time_layout,
    time_values,
    to_ms,
    vertical_line,
)

# colours of the most frequent faults; all others are shown as one
FAULT_COLOURS = ("red", "orange", "purple", "blue", "green")
# colour and dash of each kind of request in the distribution, if there are few kinds
KIND_STYLES = (("orange", "dash"), ("green", "dot"), ("purple", "dashdot"), ("red", "dash"))
# ticks on the axis of the distribution
TICK_SHARES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the page; `description` says in a sentence what it shows."""

    name: str  # part of the id of its element in the page
    title: str
    description: str
    data: list[PlotlyObject]
    layout: PlotlyObject

    @property
    def json(self) -> PlotlyObject:
        """What the page's script needs to draw it."""
        return {"name": self.name, "data": self.data, "layout": self.layout}


def make_charts(report: ReportDocument) -> dict[str, Chart]:
    """All charts that the report has data for, by name."""
    makers = (_time_charts, _error_chart, _distribution_chart, _server_charts, _capacity_charts)
    return {chart.name: chart for maker in makers for chart in maker(report)}


def _time_charts(report: ReportDocument) -> Iterator[Chart]:
    """Latency, throughput and rows over time."""
    series, at = report["series"], time_values(report)
    if not at:
        return
    lines = [
        line(at, to_ms(series["max"]), "max", "grey", width=1),
        line(at, to_ms(series["p99"]), "p99", "red"),
        line(at, to_ms(series["p90"]), "p90", "orange"),
        line(at, to_ms(series["p50"]), "p50", "blue"),
    ]
    yield Chart(
        "latency",
        "Latency over time",
        "Good answers, by the second in which their request was due.",
        lines,
        time_layout(report, "ms", lines, log=True, marks=limit_lines(report)),
    )
    lines = [
        line(at, series["due_rate"], "requests due", "grey", "dot"),
        line(at, series["good_rate"], "good answers", "blue"),
    ]
    yield Chart(
        "throughput",
        "Throughput over time",
        "Requests by the second in which they were due, good answers by the second in which they arrived.",
        lines,
        time_layout(report, "per second", lines),
    )
    if report["load"]["rows"] != [1]:
        lines = [line(at, series["rows_rate"], "rows", "green")]
        yield Chart(
            "rows",
            "Rows over time",
            "Rows of good answers, by the second in which their request was due.",
            lines,
            time_layout(report, "per second", lines),
        )


def _error_chart(report: ReportDocument) -> Iterator[Chart]:
    """Stacked bars of faults over time, the most frequent first."""
    faults = sorted(report["series"]["faults"].items(), key=lambda item: -sum(item[1]))
    if not faults:
        return
    if len(faults) > len(FAULT_COLOURS):
        rare = [counts for _, counts in faults[len(FAULT_COLOURS) - 1 :]]
        others = ("other", [sum(column) for column in zip(*rare, strict=True)])
        faults = [*faults[: len(FAULT_COLOURS) - 1], others]
    at = time_values(report)
    bars: list[PlotlyObject] = [
        {"type": "bar", "x": at, "y": counts, "name": plain_text(name), "marker": {"color": colour}}
        for (name, counts), colour in zip(faults, FAULT_COLOURS, strict=False)
    ]
    yield Chart(
        "errors",
        "Errors over time",
        "Requests without a good answer, by the second in which they were due and by what happened instead.",
        bars,
        time_layout(report, "requests", bars) | {"barmode": "stack", "bargap": 0.05, "showlegend": True},
    )


def _distribution_chart(report: ReportDocument) -> Iterator[Chart]:
    if not report["distribution"]:
        return
    # a line for all requests, and one for each kind
    lines = [_distribution_line(report["distribution"], "all", "blue")]
    kinds = {kind: points for kind, points in report["distributions"].items() if points}
    if 1 < len(kinds) <= len(KIND_STYLES):
        for (kind, points), (colour, dash) in zip(kinds.items(), KIND_STYLES, strict=False):
            lines.append(_distribution_line(points, kind, colour, dash))
    # the horizontal axis shows shares at the logarithm of their rarity
    axes = layout("share of good answers", "ms", lines, log=True, marks=limit_lines(report))
    end = lines[0]["x"][-1]
    shares = [share for share in TICK_SHARES if _rarity(share) <= end * 2]
    axes["xaxis"] |= {
        "type": "log",
        "range": [0, math.log10(end) + 0.1],
        "tickangle": 0,
        "tickvals": [_rarity(share) for share in shares],
        "ticktext": [f"{share * 100:.6g} %" for share in shares],
    }
    yield Chart(
        "distribution",
        "Distribution of latency",
        "The latency that each share of the good answers did not exceed. The rarest, slowest answers are at "
        "the "
        "right.",
        lines,
        axes,
    )


def _server_charts(report: ReportDocument) -> Iterator[Chart]:
    """The server's own metrics over time."""
    if report["server"] is None:
        return
    series, at = report["series"], time_values(report)
    lines: list[PlotlyObject] = []
    for name, key, colour in (
        ("client", "", "blue"),
        ("server", "server_request_", "purple"),
        ("its queue", "server_queue_", "orange"),
        ("its runs", "server_run_", "green"),
    ):
        p50 = line(at, to_ms(series[f"{key}p50"]), f"{name} p50", colour, "dot")
        lines += [line(at, to_ms(series[f"{key}p99"]), f"{name} p99", colour), {**p50, "showlegend": False}]
    yield Chart(
        "server",
        "Client and server",
        "Latency measured by clients, and the server's own times in the same seconds: p99 solid, p50 dotted.",
        lines,
        time_layout(report, "ms", lines, log=True),
    )
    for name, title, description, key, unit, colour in (
        (
            "batches",
            "Batches",
            "Rows that the server ran together, on average.",
            "batch_rows",
            "rows",
            "green",
        ),
        ("queue", "Queue", "Requests that waited for their run.", "depth", "requests", "orange"),
    ):
        lines = [line(at, series[f"server_{key}"], title.lower(), colour)]
        yield Chart(name, title, description, lines, time_layout(report, unit, lines))


def _capacity_charts(report: ReportDocument) -> Iterator[Chart]:
    """Saturation curves: latency and good answers at each rate that was tried."""
    search = report["capacity"]
    if search is None or not search["steps"]:
        return
    steps = sorted(search["steps"], key=lambda step: step["due_rate"])
    highest = steps[-1]["due_rate"]
    marks = []
    if rate := search["rate"]:
        # on the side with more room
        side = "right" if rate < highest / 2 else "left"
        marks = [vertical_line(rate, f"capacity {fmt.number(rate)}/s", side)]
    # latency, by the first limit of the SLO on a time
    limits = [limit["measure"] for limit in report["verdict"]["limits"] if limit["measure"] in TIME_MEASURES]
    measure = limits[0] if limits else "p99"
    lines = _step_marks(steps, to_ms(step[measure] for step in steps), measure)
    all_marks = [*limit_lines(report, [measure]), *marks]
    yield Chart(
        "saturation",
        f"Saturation: {measure} by rate",
        "Dot: the rate kept the SLO. Cross: it did not. Diamond: the load generator was too slow.",
        lines,
        layout("requests due per second", "ms", lines, log=True, marks=all_marks),
    )
    # good answers, and the line on which every request has one
    ideal = line([0, highest], [0, highest], "all requests due", "grey", "dot")
    lines = [
        {**ideal, "mode": "lines", "hoverinfo": "skip"},
        *_step_marks(steps, [step["rate"] for step in steps], "good answers"),
    ]
    axes = layout("requests due per second", "good answers per second", lines, marks=marks)
    yield Chart(
        "goodput",
        "Saturation: good answers by rate",
        "Good answers at each rate. On the dotted line, every request has a good answer.",
        lines,
        axes | {"showlegend": False},
    )


def _step_marks(steps: Sequence[ReportDocument], values: Numbers, name: str) -> list[PlotlyObject]:
    """A mark for each step, and a line through them; through the last one if a rate was tried again."""
    markers = [_marker(step) for step in steps]
    colours = [colour for _, colour in markers]
    last_values = {step["due_rate"]: value for step, value in zip(steps, values, strict=True)}
    marks: PlotlyObject = {
        "type": "scatter",
        "mode": "markers",
        "x": [step["due_rate"] for step in steps],
        "y": values,
        "name": plain_text(name),
        "marker": {
            "symbol": [symbol for symbol, _ in markers],
            "color": colours,
            "size": 10,
            "line": {"color": colours, "width": 2},
        },
    }
    through = line(list(last_values), list(last_values.values()), name, "grey", width=1.5)
    return [{**through, "mode": "lines", "hoverinfo": "skip", "showlegend": False}, marks]


def _marker(step: ReportDocument) -> tuple[str, str]:
    """Symbol and colour; the symbols alone are enough to tell steps apart."""
    if step["limited"]:
        return "diamond-open", "orange"
    return ("circle", "blue") if step["held"] else ("x-thin", "red")


def _distribution_line(
    points: Sequence[Sequence[float]], name: str, colour: str, dash: str = "solid"
) -> PlotlyObject:
    """Latency by rarity. The slowest answer of all is left out: its rarity is infinite."""
    finite = [(share, latency) for share, latency in points if share < 1]
    rarities, latencies = [_rarity(share) for share, _ in finite], [latency * MS for _, latency in finite]
    return {
        **line(rarities, latencies, name, colour, dash),
        "customdata": [f"{share * 100:.6g}" for share, _ in finite],
        "hovertemplate": "%{customdata} %: %{y:.3~g} ms",
    }


def _rarity(share: float) -> float:
    """One in this many answers is slower: 100 for a share of 99 %."""
    return 1 / (1 - share)
