"""The page of a load test, from the same document as `loadtest.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from turnpike.loadtest.report import sentences
from turnpike.loadtest.report.charts import make_charts
from turnpike.reporting import number_format as fmt
from turnpike.reporting.markup import Markup, Part, join, tag
from turnpike.reporting.page import (
    badge,
    build_page,
    chart_figure,
    folded,
    notes,
    section,
    side_by_side,
    summary,
    table,
    tile,
    tiles,
    verdict,
)

Figures = Mapping[str, Any]
# drawn charts by name; those without data are missing
Charts = Mapping[str, Markup]
# the heading of a column, the key of its figures, and what makes a cell of a figure
Column = tuple[str, str, Callable[[Any], Part]]


def _times(*names: str) -> list[Column]:
    """Columns of times, with the names of their figures as headings."""
    return [(name, name, fmt.seconds) for name in names]


RATE: Column = ("good/s", "rate", fmt.number)
ROWS_RATE: Column = ("rows/s", "rows_rate", fmt.number)
LATE: Column = ("sent late, p99", "late_p99", fmt.seconds)
FAULTS: Column = ("errors", "bad", fmt.number)
SERVER_COLUMNS: list[Column] = [
    ("server: p99", "server_request_p99", fmt.seconds),
    ("queue p99", "server_queue_p99", fmt.seconds),
    ("run p99", "server_run_p99", fmt.seconds),
    ("batch", "server_batch_rows", fmt.number),
    ("queue", "server_depth", fmt.number),
    ("errors/s", "server_refused_rate", fmt.number),
]


def render_report(report: Figures) -> str:
    """The page for a document that `build_document` made."""
    charts = {name: chart_figure(chart) for name, chart in make_charts(report).items()}
    title = f"{report['target']['model']} under load"
    return build_page(
        title,
        _summary(title, report),
        _slo(report["verdict"]["limits"]),
        _capacity(report["capacity"], charts),
        _requests(report),
        _over_time(report, charts),
        _errors(report, charts),
        _distribution(report, charts),
        _server(report, charts),
        _explanation(report["load"]),
    )


def _summary(title: str, report: Figures) -> Markup:
    target, outcome, total, capacity = (report[key] for key in ("target", "verdict", "total", "capacity"))
    version = f", model version {target['version']}" if target["version"] else ""
    begun = report["begun"].replace("T", " ").replace("+00:00", " UTC")
    failures = [*outcome["failures"]]
    if outcome["wrong_answer"]:
        failures.append(f"the first wrong answer: {outcome['wrong_answer']}")
    interrupted = ["The test was stopped early."] if report["interrupted"] else []
    capacity_tile = rows_tile = None
    if capacity and capacity["rate"]:
        limits = ["capacity within the SLO", sentences.capacity_limit(capacity)]
        capacity_tile = tile(sentences.capacity_rate(capacity), "; ".join(filter(None, limits)))
    if report["load"]["rows"] != [1]:
        rows_tile = tile(f"{fmt.number(total['rows_rate'])}/s", "rows")
    return summary(
        title,
        _badges(outcome, capacity),
        tag(
            "p",
            f"{target['server']} {target['server_version']} at ",
            tag("code", target["url"]),
            f"{version}. {sentences.load_sentence(report['load'])} Started {begun}, took "
            f"{fmt.length(report['seconds'])}. {sentences.machine_sentence(report)}",
            class_="quiet",
        ),
        notes(failures, "alarm"),
        notes([*interrupted, *report["notes"]], "watch"),
        tiles(
            capacity_tile,
            tile(f"{fmt.number(total['rate'])}/s", "good answers"),
            rows_tile,
            tile(fmt.seconds(total["p50"]), "p50 latency"),
            tile(fmt.seconds(total["p99"]), "p99 latency"),
            tile(fmt.seconds(total["max"]), "longest latency"),
            tile(
                fmt.share(total["errors"]),
                f"errors, {fmt.number(total['bad'])} of {fmt.number(total['requests'])}",
            ),
        ),
    )


def _badges(outcome: Figures, capacity: Figures | None) -> list[Markup]:
    """The result in a few words, and whether an answer was wrong."""
    if capacity and capacity["rate"]:
        rate = f"capacity {sentences.capacity_rate(capacity)}"
        result = badge(rate, "ok" if capacity["limited_by"] == "server" else "off")
    elif capacity:
        result = badge("no rate kept the SLO", "alarm")
        if not capacity["done"]:
            result = badge("search not finished", "off")
    elif outcome["kept"] is not None:
        result = badge("SLO kept", "ok") if outcome["kept"] else badge("SLO missed", "alarm")
    elif outcome["failures"] and not outcome["wrong_answer"]:
        result = badge("failed", "alarm")
    else:
        result = badge("no SLO was given", "off")
    return [result, *([badge("wrong answers", "alarm")] if outcome["wrong_answer"] else [])]


def _slo(limits: Sequence[Figures]) -> Markup | None:
    if not limits:
        return None
    rows = [[limit["words"], sentences.limit_value(limit), verdict(kept=limit["kept"])] for limit in limits]
    return section("SLO", None, table(["limit", "measured", "verdict"], rows, (0, 2)))


def _capacity(capacity: Figures | None, charts: Charts) -> Markup | None:
    if not capacity:
        return None
    columns: list[Column] = [("due/s", "due_rate", fmt.number), ("for", "seconds", fmt.length), RATE]
    columns += [
        *_times("p50", "p99", "max"),
        ("errors", "errors", fmt.share),
        LATE,
        ("verdict", "outcome", join),
    ]
    steps = []
    for step in capacity["steps"]:
        slow = ", load generator too slow" if step["limited"] else None
        steps.append({**step, "outcome": (verdict(kept=step["held"]), slow)})
    caption = "All rates, in the order in which they were tried. turnpike's own load generator sent them."
    return section(
        "Capacity",
        None,
        tag("p", capacity["sentence"]),
        _drawn(charts, "saturation", "goodput"),
        _table(steps, columns, text_columns=(8,), caption=caption),
    )


def _requests(report: Figures) -> Markup:
    kinds, drift = report["kinds"], report["drift"]
    rows = [*kinds, *([report["total"]] if len(kinds) > 1 else [])]
    columns: list[Column] = [("kind", "kind", str), ("requests", "requests", fmt.number), RATE, ROWS_RATE]
    columns += [*_times("p50", "p90", "p99", "p99.9", "max"), FAULTS, ("share", "errors", fmt.share)]
    change = None
    if drift is not None:
        change = _table(
            [drift["first"], drift["last"]],
            [("quarter", "kind", str), RATE, *_times("p50", "p99", "max"), ("errors", "errors", fmt.share)],
            text_columns=(0,),
            caption=sentences.drift_sentence(report),
        )
    return section(
        "Requests",
        None,
        tag("p", sentences.counted_sentence(report)),
        _table(rows, columns, text_columns=(0,), bold=len(kinds)),
        change,
    )


def _over_time(report: Figures, charts: Charts) -> Markup:
    columns: list[Column] = [("from", "at", lambda at: f"{fmt.number(round(at))} s")]
    columns += [("due/s", "due_rate", fmt.number), ("good/s", "good_rate", fmt.number), ROWS_RATE]
    columns += [*_times("p50", "p90", "p99", "max"), LATE, FAULTS]
    return section(
        "Over time",
        sentences.shading_sentence(report) or None,
        _drawn(charts, "latency", "throughput", "rows"),
        folded(
            "As a table", _table(report["stretches"], columns + (SERVER_COLUMNS if report["server"] else []))
        ),
    )


def _errors(report: Figures, charts: Charts) -> Markup:
    total = report["total"]
    if "errors" not in charts:
        none = sentences.NO_ERRORS if total["requests"] else sentences.NO_REQUESTS
        return section("Errors", None, tag("p", none))
    if not total["bad"]:
        return section("Errors", None, tag("p", "No errors in the measured time."), _drawn(charts, "errors"))
    rows = [
        [kind["kind"], fault, fmt.number(count)]
        for kind in report["kinds"]
        for fault, count in kind["faults"].items()
    ]
    faults = table(["kind", "what happened instead of a good answer", "requests"], rows, (0, 1))
    return section("Errors", None, side_by_side(charts["errors"], faults))


def _distribution(report: Figures, charts: Charts) -> Markup | None:
    if "distribution" not in charts:
        return None
    rows = [[f"{share * 100:.6g} %", fmt.seconds(latency)] for share, latency in report["distribution"]]
    as_table = folded("As a table", table(["share of good answers", "latency up to"], rows))
    return section("Distribution", None, _drawn(charts, "distribution"), as_table)


def _server(report: Figures, charts: Charts) -> Markup | None:
    server, total = report["server"], report["total"]
    if not server:
        return None
    rows = [
        {**total, "name": "good answers, measured by clients", "count": total["good"]},
        {**server["request"], "name": "requests in the server"},
        {**server["queue"], "name": "waiting in the queue"},
        {**server["run"], "name": "runs of the model"},
    ]
    columns: list[Column] = [("time of", "name", str), ("count", "count", fmt.number)]
    return section(
        "The server's own metrics",
        None,
        tag("p", "From the server's ", tag("code", "/metrics"), sentences.SERVER_METRICS),
        _table(rows, [*columns, *_times("mean", "p50", "p90", "p99")], text_columns=(0,)),
        tag("p", sentences.server_sentence(server)),
        _drawn(charts, "server", "batches", "queue"),
    )


def _explanation(load: Figures) -> Markup:
    return section(
        "How to read this",
        None,
        tag("p", sentences.omission_paragraph(load)),
        tag("p", sentences.good_answer_paragraph(load)),
        tag("footer", "The same figures are in ", tag("code", "loadtest.json"), ".", class_="quiet"),
    )


def _drawn(charts: Charts, *names: str) -> Markup:
    """The charts of these names that there are."""
    return side_by_side(*(charts[name] for name in names if name in charts))


def _table(rows: Iterable[Figures], columns: Sequence[Column], **options: Any) -> Markup:
    cells = [[text(figures[key]) for _, key, text in columns] for figures in rows]
    return table([heading for heading, _, _ in columns], cells, **options)
