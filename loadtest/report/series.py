"""Time series of a load test: second by second for the charts, in longer intervals for the table."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from turnpike.loadtest.ledger import OutcomeTotals
from turnpike.loadtest.measure.buckets import Buckets
from turnpike.loadtest.measure.record import Record
from turnpike.loadtest.measure.server_metrics import Scrape

# points of a chart, rows of the table, and rows of the table of a soak test, at most
MAX_POINTS, MAX_TABLE_ROWS, MAX_SOAK_ROWS = 3600, 24, 240
# lengths in seconds that an interval may have
INTERVALS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MINUTE = 60


def time_series(record: Record) -> dict[str, Any]:
    """Columns of figures, with a value per second of the test, or per longer interval if it took hours."""
    intervals = _intervals(record, MAX_POINTS)
    keys = {"at", "seconds", *_client_figures(OutcomeTotals(), 0, 1), *_server_figures(())} - {"faults"}
    columns = {key: [interval[key] for interval in intervals] for key in sorted(keys)}
    faults = {fault for interval in intervals for fault in interval["faults"]}
    return {
        "interval": _interval_seconds(record, MAX_POINTS),
        **columns,
        "faults": {
            fault: [interval["faults"].get(fault, 0) for interval in intervals] for fault in sorted(faults)
        },
    }


def time_table(record: Record) -> list[dict[str, Any]]:
    """The same figures in a few rows; of a soak test, a row per minute."""
    if record.plan.shape == "soak" and record.last - record.first >= 2 * MINUTE:
        return _intervals(record, MAX_SOAK_ROWS, shortest=MINUTE)
    return _intervals(record, MAX_TABLE_ROWS)


def _intervals(record: Record, max_count: int, shortest: int = 1) -> list[dict[str, Any]]:
    """The figures of each interval of the test."""
    begin, end = _span(record)
    length = _interval_seconds(record, max_count, shortest)
    # sort outcomes, answers and scrapes into intervals
    outcomes: dict[int, OutcomeTotals] = defaultdict(OutcomeTotals)
    for (second, _), totals in record.ledger.totals.items():
        if second < end:
            outcomes[(second - begin) // length].merge(totals)
    completed: Counter[int] = Counter()
    for second, count in record.ledger.completed.items():
        if second < end:
            completed[(second - begin) // length] += count
    scrapes: dict[int, list[Scrape]] = defaultdict(list)
    for scrape in record.scrapes:
        for index in {(second - begin) // length for second in _seconds(scrape)}:
            scrapes[index].append(scrape)
    # compute the figures
    intervals = []
    for index, at in enumerate(range(begin, end, length)):
        seconds = min(length, end - at)
        intervals.append(
            {
                "at": at - record.begun,
                "seconds": seconds,
                **_client_figures(outcomes.get(index, OutcomeTotals()), completed[index], seconds),
                **_server_figures(scrapes.get(index, [])),
            }
        )
    return intervals


def _span(record: Record) -> tuple[int, int]:
    """First second, and the one after the last, from the first request to the end of the load."""
    begin, end = record.ledger.span()
    if record.plan.find_capacity or not end:
        return begin, end
    # the second in which the users were stopped is not whole
    return begin, max(record.last, begin + 1)


def _interval_seconds(record: Record, max_count: int, shortest: int = 1) -> int:
    begin, end = _span(record)
    fitting = [
        length for length in INTERVALS if length >= shortest and -(-(end - begin) // length) <= max_count
    ]
    return fitting[0] if fitting else INTERVALS[-1]


def _seconds(scrape: Scrape) -> range:
    """The seconds that a scrape covers: all whose middle is between it and the previous scrape."""
    return range(math.ceil(scrape.at - scrape.seconds - 0.5), math.ceil(scrape.at - 0.5))


def _client_figures(totals: OutcomeTotals, completed: int, seconds: int) -> dict[str, Any]:
    bad = totals.faults.total()
    return {
        "due_rate": (totals.latency.count + bad) / seconds,
        "good_rate": completed / seconds,
        "rows_rate": totals.rows / seconds,
        "p50": totals.latency.percentile(0.5),
        "p90": totals.latency.percentile(0.9),
        "p99": totals.latency.percentile(0.99),
        "max": totals.latency.percentile(1.0),
        "late_p99": totals.late.percentile(0.99),
        "bad": bad,
        "faults": dict(totals.faults),
    }


def _server_figures(scrapes: Sequence[Scrape]) -> dict[str, Any]:
    """The server's own metrics; None where there are none."""
    figures: dict[str, Any] = {}
    for name in ("request", "queue", "run"):
        buckets = Buckets.merged(getattr(scrape, name) for scrape in scrapes)
        figures[f"server_{name}_p50"] = buckets.percentile(0.5)
        figures[f"server_{name}_p99"] = buckets.percentile(0.99)
    figures["server_batch_rows"] = Buckets.merged(scrape.rows for scrape in scrapes).mean
    figures["server_depth"] = _maximum(scrape.depth for scrape in scrapes)
    seconds = sum(scrape.seconds for scrape in scrapes)
    figures["server_refused_rate"] = sum(scrape.refused for scrape in scrapes) / seconds if seconds else None
    figures["server_workers"] = scrapes[-1].workers if scrapes else None
    return figures


def _maximum(values: Iterable[float]) -> float | None:
    return max(values, default=None)
