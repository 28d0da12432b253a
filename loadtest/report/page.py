"""The page of a load test, from the same document as `loadtest.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnpike.loadtest.report import sentences
from turnpike.loadtest.report.charts import make_charts
from turnpike.reporting import number_format as fmt
from turnpike.reporting.markup import Markup, Part, join, tag
from turnpike.reporting.page import (
    aligned,
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
        limit = f"; {sentences.GENERATOR_WAS_LIMIT}" if capacity["limited_by"] == "generator" else ""
        capacity_tile = tile(sentences.capacity_rate(capacity), f"capacity within the SLO{limit}")
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
        result = (
            badge("no rate kept the SLO", "alarm")
            if capacity["done"]
            else badge("search not finished", "off")
        )
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
    rows: list[list[Part]] = []
    for step in capacity["steps"]:
        slow = ", load generator too slow" if step["limited"] else None
        rows.append(
            [
                fmt.number(step["due_rate"]),
                fmt.length(step["seconds"]),
                *_numbers(step, "rate"),
                *_times(step, "p50", "p99", "max"),
                aligned(fmt.share(step["errors"])),
                *_times(step, "late_p99"),
                join((verdict(kept=step["held"]), slow)),
            ]
        )
    head = ["due/s", "for", "good/s", "p50", "p99", "max", "errors", "sent late, p99", "verdict"]
    return section(
        "Capacity",
        None,
        tag("p", capacity["sentence"]),
        _drawn(charts, "saturation", "goodput"),
        table(head, rows, (8,), caption="All rates, in the order in which they were tried."),
    )


def _requests(report: Figures) -> Markup:
    kinds, drift = report["kinds"], report["drift"]
    rows: list[list[Part]] = [
        [
            figures["kind"],
            fmt.number(figures["requests"]),
            *_numbers(figures, "rate", "rows_rate"),
            *_times(figures, "p50", "p90", "p99", "p99.9", "max"),
            fmt.number(figures["bad"]),
            aligned(fmt.share(figures["errors"])),
        ]
        for figures in [*kinds, *([report["total"]] if len(kinds) > 1 else [])]
    ]
    head = ["kind", "requests", "good/s", "rows/s", "p50", "p90", "p99", "p99.9", "max", "errors", "share"]
    return section(
        "Requests",
        None,
        tag("p", sentences.counted_sentence(report)),
        table(head, rows, (0,), bold=len(kinds)),
        None if drift is None else _drift(drift, report["counted"]["seconds"]),
    )


def _drift(drift: Figures, seconds: float) -> Markup:
    rows = [
        [
            quarter["kind"],
            *_numbers(quarter, "rate"),
            *_times(quarter, "p50", "p99", "max"),
            aligned(fmt.share(quarter["errors"])),
        ]
        for quarter in (drift["first"], drift["last"])
    ]
    caption = (
        f"Change over {fmt.length(seconds)} of load: the first quarter of the time, and the last quarter."
    )
    return table(["quarter", "good/s", "p50", "p99", "max", "errors"], rows, (0,), caption=caption)


def _over_time(report: Figures, charts: Charts) -> Markup:
    head = ["from", "due/s", "good/s", "rows/s", "p50", "p90", "p99", "max", "sent late, p99", "errors"]
    if report["server"]:
        head += ["server: p99", "queue p99", "run p99", "batch", "queue", "errors/s"]
    rows: list[list[Part]] = []
    for interval in report["stretches"]:
        row: list[Part] = [
            f"{fmt.number(round(interval['at']))} s",
            *_numbers(interval, "due_rate", "good_rate", "rows_rate"),
            *_times(interval, "p50", "p90", "p99", "max", "late_p99"),
            fmt.number(interval["bad"]),
        ]
        if report["server"]:
            row += _times(interval, "server_request_p99", "server_queue_p99", "server_run_p99")
            row += [fmt.number(interval["server_batch_rows"]), fmt.number(interval["server_depth"])]
            row += _numbers(interval, "server_refused_rate")
        rows.append(row)
    return section(
        "Over time",
        sentences.shading_sentence(report) or None,
        _drawn(charts, "latency", "throughput", "rows"),
        folded("As a table", table(head, rows)),
    )


def _errors(report: Figures, charts: Charts) -> Markup:
    total = report["total"]
    if "errors" not in charts:
        return section(
            "Errors", None, tag("p", sentences.NO_ERRORS if total["requests"] else sentences.NO_REQUESTS)
        )
    faults = None
    if total["bad"]:
        rows = [
            [kind["kind"], fault, fmt.number(count)]
            for kind in report["kinds"]
            for fault, count in kind["faults"].items()
        ]
        faults = table(["kind", "what happened instead of a good answer", "requests"], rows, (0, 1))
    none = None if total["bad"] else tag("p", "No errors in the measured time.")
    return section("Errors", None, none, _drawn(charts, "errors", more=faults))


def _distribution(report: Figures, charts: Charts) -> Markup | None:
    if "distribution" not in charts:
        return None
    rows = [
        [f"{share * 100:.6g} %", aligned(fmt.seconds(latency))] for share, latency in report["distribution"]
    ]
    as_table = folded("As a table", table(["share of good answers", "latency up to"], rows))
    return section("Distribution", None, _drawn(charts, "distribution"), as_table)


def _server(report: Figures, charts: Charts) -> Markup | None:
    server, total = report["server"], report["total"]
    if not server:
        return None
    measured = (
        ("good answers, measured by clients", total["good"], total),
        ("requests in the server", server["request"]["count"], server["request"]),
        ("waiting in the queue", server["queue"]["count"], server["queue"]),
        ("runs of the model", server["run"]["count"], server["run"]),
    )
    rows = [
        [name, fmt.number(count), *_times(figures, "mean", "p50", "p90", "p99")]
        for name, count, figures in measured
    ]
    return section(
        "The server's own metrics",
        None,
        tag("p", "From the server's ", tag("code", "/metrics"), sentences.SERVER_METRICS),
        table(["time of", "count", "mean", "p50", "p90", "p99"], rows, (0,)),
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


def _drawn(charts: Charts, *names: str, more: Markup | None = None) -> Markup:
    """The charts of these names that there are."""
    return side_by_side(*(charts[name] for name in names if name in charts), more)


def _numbers(figures: Figures, *keys: str) -> Iterable[Markup]:
    return (aligned(fmt.number(figures[key])) for key in keys)


def _times(figures: Figures, *keys: str) -> Iterable[Markup]:
    return (aligned(fmt.seconds(figures[key])) for key in keys)
