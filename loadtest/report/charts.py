"""The charts of a report, as plotly draws them from plain data.

A colour is the name of one of the page's style (`blue`); the page's script puts it in, by day or by night.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadtest.report import number_format as wording
from loadtest.report.chart_parts import (
    MS,
    TIMES,
    Document,
    Drawn,
    Values,
    layout,
    limits,
    line,
    ms,
    over_time,
    text,
    times,
    upright,
)

# of the faults that are told apart; the rest are one
FAULTS = ("red", "orange", "purple", "blue", "green")
# of the kinds of requests, where they are few
KINDS = (("orange", "dash"), ("green", "dot"), ("purple", "dashdot"), ("red", "dash"))
# numbers on the axis of a distribution
NINES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture; `what` says in a sentence what it shows."""

    name: str  # of its element in the page
    title: str
    what: str
    data: list[Drawn]
    layout: Drawn

    @property
    def drawn(self) -> Drawn:
        """What the page's script needs."""
        return {"name": self.name, "data": self.data, "layout": self.layout}


def charts(found: Document) -> dict[str, Chart]:
    """Those that there are figures for, by name."""
    makers = (_load, _errors, _distribution, _server, _capacity)
    return {chart.name: chart for make in makers for chart in make(found)}


def _load(found: Document) -> Iterator[Chart]:
    series, at = found["series"], times(found)
    if not at:
        return
    lines = [
        line(at, ms(series["max"]), "max", "grey", width=1),
        line(at, ms(series["p99"]), "p99", "red"),
        line(at, ms(series["p90"]), "p90", "orange"),
        line(at, ms(series["p50"]), "p50", "blue"),
    ]
    yield Chart(
        "latency",
        "Latency over time",
        "Of good answers, by the second in which their request was due to leave.",
        lines,
        over_time(found, "ms", lines, log=True, marks=limits(found)),
    )
    lines = [
        line(at, series["due_rate"], "requests due", "grey", "dot"),
        line(at, series["good_rate"], "good answers", "blue"),
    ]
    yield Chart(
        "throughput",
        "Throughput over time",
        "Requests by the second in which they were due, good answers by the second in which they came.",
        lines,
        over_time(found, "a second", lines),
    )
    if found["load"]["rows"] != [1]:
        lines = [line(at, series["rows_rate"], "rows", "green")]
        yield Chart(
            "rows",
            "Rows over time",
            "Rows of good answers, by the second in which their request was due.",
            lines,
            over_time(found, "a second", lines),
        )


def _errors(found: Document) -> Iterator[Chart]:
    told = sorted(found["series"]["faults"].items(), key=lambda item: -sum(item[1]))
    if not told:
        return
    if len(told) > len(FAULTS):
        rest = [counts for _, counts in told[len(FAULTS) - 1 :]]
        told = [*told[: len(FAULTS) - 1], ("other", [sum(column) for column in zip(*rest, strict=True)])]
    bars: list[Drawn] = [
        {"type": "bar", "x": times(found), "y": counts, "name": text(name), "marker": {"color": colour}}
        for (name, counts), colour in zip(told, FAULTS, strict=False)
    ]
    yield Chart(
        "errors",
        "Errors over time",
        "Requests without a good answer by the second in which they were due, by what came instead.",
        bars,
        over_time(found, "requests", bars) | {"barmode": "stack", "bargap": 0.05, "showlegend": True},
    )


def _distribution(found: Document) -> Iterator[Chart]:
    if not found["distribution"]:
        return
    lines = [_curve(found["distribution"], "all", "blue")]
    kinds = {kind: points for kind, points in found["distributions"].items() if points}
    if 1 < len(kinds) <= len(KINDS):
        for (kind, points), (colour, dash) in zip(kinds.items(), KINDS, strict=False):
            lines.append(_curve(points, kind, colour, dash))
    axes = layout("share of good answers", "ms", lines, log=True, marks=limits(found))
    end = lines[0]["x"][-1]
    shown = [share for share in NINES if _rarity(share) <= end * 2]
    axes["xaxis"] |= {
        "type": "log",
        "range": [0, math.log10(end) + 0.1],
        "tickangle": 0,
        "tickvals": [_rarity(share) for share in shown],
        "ticktext": [f"{share * 100:.6g} %" for share in shown],
    }
    yield Chart(
        "distribution",
        "Distribution of latency",
        "What a share of the good answers did not exceed. To the right ever fewer are slower.",
        lines,
        axes,
    )


def _server(found: Document) -> Iterator[Chart]:
    if found["server"] is None:
        return
    series, at = found["series"], times(found)
    lines: list[Drawn] = []
    for name, key, colour in (
        ("client", "", "blue"),
        ("server", "server_request_", "purple"),
        ("its queue", "server_queue_", "orange"),
        ("its runs", "server_run_", "green"),
    ):
        p50 = line(at, ms(series[f"{key}p50"]), f"{name} p50", colour, "dot")
        lines += [line(at, ms(series[f"{key}p99"]), f"{name} p99", colour), {**p50, "showlegend": False}]
    yield Chart(
        "server",
        "Client and server",
        "The latency of clients, and what the server says of the same seconds: p99 solid, p50 dotted.",
        lines,
        over_time(found, "ms", lines, log=True),
    )
    for name, title, what, key, unit, colour in (
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
        yield Chart(name, title, what, lines, over_time(found, unit, lines))


def _capacity(found: Document) -> Iterator[Chart]:
    """The saturation curve: what each rate that was tried did to latency and to good answers."""
    search = found["capacity"]
    if search is None or not search["steps"]:
        return
    steps = sorted(search["steps"], key=lambda step: step["due_rate"])
    marks = []
    if rate := search["rate"]:
        # where there is more room
        side = "right" if rate < steps[-1]["due_rate"] / 2 else "left"
        marks = [upright(rate, f"capacity {wording.number(rate)}/s", side)]
    timed = [limit["measure"] for limit in found["verdict"]["limits"] if limit["measure"] in TIMES]
    measure = timed[0] if timed else "p99"
    lines = _tried(steps, ms(step[measure] for step in steps), measure)
    yield Chart(
        "saturation",
        f"Saturation: {measure} by rate",
        "Dot: the rate kept the SLO. Cross: it did not. Diamond: the generator could not keep up.",
        lines,
        layout("requests due a second", "ms", lines, log=True, marks=[*limits(found, [measure]), *marks]),
    )
    most = steps[-1]["due_rate"]
    lines = [
        {
            **line([0, most], [0, most], "all that is due", "grey", "dot"),
            "mode": "lines",
            "hoverinfo": "skip",
        },
        *_tried(steps, [step["rate"] for step in steps], "good answers"),
    ]
    yield Chart(
        "goodput",
        "Saturation: good answers by rate",
        "How many good answers came of each rate. On the dotted line every request has one.",
        lines,
        layout("requests due a second", "good answers a second", lines, marks=marks) | {"showlegend": False},
    )


def _tried(steps: Sequence[Document], values: Values, name: str) -> list[Drawn]:
    """A mark for each step; the line goes through the last of those that had the same rate."""
    looks = [_look(step) for step in steps]
    colours = [colour for _, colour in looks]
    last = {step["due_rate"]: value for step, value in zip(steps, values, strict=True)}
    marks: Drawn = {
        "type": "scatter",
        "mode": "markers",
        "x": [step["due_rate"] for step in steps],
        "y": values,
        "name": text(name),
        "marker": {
            "symbol": [symbol for symbol, _ in looks],
            "color": colours,
            "size": 10,
            "line": {"color": colours, "width": 2},
        },
    }
    through = line(list(last), list(last.values()), name, "grey", width=1.5)
    return [{**through, "mode": "lines", "hoverinfo": "skip", "showlegend": False}, marks]


def _look(step: Document) -> tuple[str, str]:
    """Told apart by shape as well as by colour."""
    if step["limited"]:
        return "diamond-open", "orange"
    return ("circle", "blue") if step["held"] else ("x-thin", "red")


def _curve(points: Sequence[Sequence[float]], name: str, colour: str, dash: str = "solid") -> Drawn:
    """Latency by rarity, on which the very last answer has no place."""
    told = [(share, latency) for share, latency in points if share < 1]
    drawn = line([_rarity(share) for share, _ in told], [at * MS for _, at in told], name, colour, dash)
    return {
        **drawn,
        "customdata": [f"{share * 100:.6g}" for share, _ in told],
        "hovertemplate": "%{customdata} %: %{y:.3~g} ms",
    }


def _rarity(share: float) -> float:
    """Of how many answers one is slower: 100 for a share of 99 %."""
    return 1 / (1 - share)
