"""A load test over time: second by second for the charts, in longer stretches for a table to read."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from loadtest.ledger import Cell
from loadtest.measure.buckets import Buckets
from loadtest.measure.record import Record
from loadtest.measure.scrape import Scrape

# how many points a chart shows at most, how many lines a table
POINTS, LINES, SOAK_LINES = 3600, 24, 240
LENGTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
MINUTE = 60


def series(record: Record) -> dict[str, Any]:
    """Columns of figures, a place for each second of the test (for longer stretches when it took hours)."""
    parts = _parts(record, POINTS)
    keys = {"at", "seconds", *_client(Cell(), 0, 1), *_server(())} - {"faults"}
    columns = {key: [part[key] for part in parts] for key in sorted(keys)}
    faults = {fault for part in parts for fault in part["faults"]}
    return {
        "interval": _interval(record, POINTS),
        **columns,
        "faults": {fault: [part["faults"].get(fault, 0) for part in parts] for fault in sorted(faults)},
    }


def stretches(record: Record) -> list[dict[str, Any]]:
    """The same in few lines; of a soak by the minute."""
    if record.plan.shape == "soak" and record.last - record.first >= 2 * MINUTE:
        return _parts(record, SOAK_LINES, least=MINUTE)
    return _parts(record, LINES)


def _parts(record: Record, most: int, least: int = 1) -> list[dict[str, Any]]:
    begin, end = _span(record)
    interval = _interval(record, most, least)
    cells: dict[int, Cell] = defaultdict(Cell)
    for (second, _), cell in record.ledger.cells.items():
        if second < end:
            cells[(second - begin) // interval].merge(cell)
    completed: Counter[int] = Counter()
    for second, count in record.ledger.completed.items():
        if second < end:
            completed[(second - begin) // interval] += count
    scrapes: dict[int, list[Scrape]] = defaultdict(list)
    for scrape in record.scrapes:
        for place in {(second - begin) // interval for second in _seconds(scrape)}:
            scrapes[place].append(scrape)
    parts = []
    for place, at in enumerate(range(begin, end, interval)):
        seconds = min(interval, end - at)
        parts.append(
            {
                "at": at - record.begun,
                "seconds": seconds,
                **_client(cells.get(place, Cell()), completed[place], seconds),
                **_server(scrapes.get(place, [])),
            }
        )
    return parts


def _span(record: Record) -> tuple[int, int]:
    """From the first request to the end of the load; nothing without requests."""
    begin, end = record.ledger.span()
    if record.plan.find_capacity or not end:
        return begin, end
    # what left while users were stopped is part of a second
    return begin, max(record.last, begin + 1)


def _interval(record: Record, most: int, least: int = 1) -> int:
    begin, end = _span(record)
    fitting = [length for length in LENGTHS if length >= least and -(-(end - begin) // length) <= most]
    return fitting[0] if fitting else LENGTHS[-1]


def _seconds(scrape: Scrape) -> range:
    """Those that it tells of, which are before it: all whose middle it covers."""
    return range(math.ceil(scrape.at - scrape.seconds - 0.5), math.ceil(scrape.at - 0.5))


def _client(cell: Cell, completed: int, seconds: int) -> dict[str, Any]:
    bad = cell.faults.total()
    return {
        "due_rate": (cell.latency.count + bad) / seconds,
        "good_rate": completed / seconds,
        "rows_rate": cell.rows / seconds,
        "p50": cell.latency.percentile(0.5),
        "p90": cell.latency.percentile(0.9),
        "p99": cell.latency.percentile(0.99),
        "max": cell.latency.percentile(1.0),
        "late_p99": cell.late.percentile(0.99),
        "bad": bad,
        "faults": dict(cell.faults),
    }


def _server(scrapes: Sequence[Scrape]) -> dict[str, Any]:
    """What the server told of these seconds; nothing is None."""
    figures: dict[str, Any] = {}
    for name in ("request", "queue", "run"):
        buckets = Buckets.added(getattr(scrape, name) for scrape in scrapes)
        figures[f"server_{name}_p50"] = buckets.percentile(0.5)
        figures[f"server_{name}_p99"] = buckets.percentile(0.99)
    figures["server_batch_rows"] = Buckets.added(scrape.rows for scrape in scrapes).mean
    figures["server_depth"] = _most(scrape.depth for scrape in scrapes)
    seconds = sum(scrape.seconds for scrape in scrapes)
    figures["server_refused_rate"] = sum(scrape.refused for scrape in scrapes) / seconds if seconds else None
    figures["server_workers"] = scrapes[-1].workers if scrapes else None
    return figures


def _most(values: Iterable[float]) -> float | None:
    return max(values, default=None)
