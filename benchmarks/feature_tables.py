"""What gates and loads cost, as tables: medians of the rounds, and of ratios within a round."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.gates import GATES, PREDICTION, WITHOUT
from benchmarks.lines import Line
from benchmarks.tables import table


def gates(lines: Sequence[Line]) -> str:
    """What is asked for by rows, connections by columns: requests a second, and the cost in predictions."""
    cells = [line for line in lines if line["kind"] == "gates"]
    connections = sorted({line["connections"] for line in cells})
    rows = []
    for net in dict.fromkeys(line["net"] for line in cells):
        for what in (PREDICTION, GATES, WITHOUT):
            row = [f"{net}, {what}"]
            for count in connections:
                some, own = (rates(cells, net, asked, count) for asked in (what, PREDICTION))
                cost = median(own[number] / rate for number, rate in some.items())
                row.append(f"{median(some.values()):,.0f} ({cost:.2f})")
            rows.append(row)
    return table(["requests/s (cost)", *(plural(count) for count in connections)], rows)


def rates(cells: Sequence[Line], net: str, asked: str, connections: int) -> dict[int, float]:
    """Requests a second by round."""
    wanted = (net, asked, connections)
    return {
        line["round"]: line["rate"]
        for line in cells
        if (line["net"], line["request"], line["connections"]) == wanted
    }


def loading(lines: Sequence[Line]) -> str:
    """Workers and connections by rows: at rest and while another model is loaded."""
    cells = [line for line in lines if line["kind"] == "loading"]
    rows = []
    for workers, connections in dict.fromkeys((line["workers"], line["connections"]) for line in cells):
        some = [line for line in cells if (line["workers"], line["connections"]) == (workers, connections)]
        rest, during = (
            {line["round"]: line for line in some if line["what"] == what} for what in ("rest", "loading")
        )
        pairs = [(rest[number], during[number]) for number in rest]
        rows.append(
            [
                f"{workers} worker{'s' * (workers > 1)}, {plural(connections)}",
                *(f"{median(line[part] for line in rest.values()):.2f}" for part in ("p50_ms", "p99_ms")),
                *(f"{median(line[part] for line in during.values()):.2f}" for part in ("p50_ms", "p99_ms")),
                f"{median(b['p99_ms'] / a['p99_ms'] for a, b in pairs):.2f}",
                f"{median(b['rate'] / a['rate'] for a, b in pairs):.2f}",
                f"{median(b['loads'] / b['seconds'] for _, b in pairs):.1f}",
            ]
        )
    head = ["", "p50, ms", "p99", "p50 while it loads", "p99 while it loads", "ratio of p99", "of requests/s"]
    return table([*head, "loads/s"], rows)


def plural(connections: int) -> str:
    return f"{connections} connection{'s' * (connections > 1)}"
