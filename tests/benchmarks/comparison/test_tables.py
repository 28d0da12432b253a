"""Tables of the comparison: medians, ratios within a round, and blank cells."""

from __future__ import annotations

from typing import Any

from benchmarks.comparison.tables import comparison

MACHINE = {
    "kind": "machine",
    "date": "2026-01-01",
    "cpu": "a CPU",
    "cpus": 2,
    "python": "3.11",
    "onnxruntime": "1.31",
}


def workload(server: str, number: int, rate: float, **fields: Any) -> dict[str, Any]:
    line = {"kind": "cell", "server": server, "net": "S", "round": number, "rate": rate, "request": "JSON"}
    line |= {"rows": 1, "connections": 16, "p50_ms": 1.0, "p99_ms": 2.0, "lost": 0, "refused": 0}
    return line | {"other_cpus": 0.1, "server_cpus": 1.5} | fields


def ceiling(number: int, rows: float, precision: str = "fp32") -> dict[str, Any]:
    shape = {"processes": 2, "threads": 1, "batch": 32, "precision": precision}
    return {"kind": "ceiling", "round": number, "net": "S", "rows": rows, **shape}


def test_a_ratio_is_of_one_round() -> None:
    """A machine that is twice as fast in the second round changes no ratio."""
    lines = [
        workload("turnpike", 0, 1000),
        workload("other", 0, 500),
        workload("turnpike", 1, 2000),
        workload("other", 1, 1000),
        workload("turnpike", 2, 9000),
    ]
    text = comparison([MACHINE, *lines])
    assert "| turnpike | 2,000 |" in text
    assert "| other | 750 |" in text
    assert "| other | 2.00 |" in text
    assert "Rounds: 3." in text


def test_a_cell_that_a_server_does_not_have_is_blank() -> None:
    lines = [
        workload("turnpike", 0, 10),
        workload("turnpike", 0, 7, request="binary", rows=32),
        workload("other", 0, 5),
    ]
    text = comparison([MACHINE, *lines])
    assert "| turnpike | 10 | 7 |" in text
    assert "| other | 5 | - |" in text


def test_failures_are_listed() -> None:
    """Requests without an answer, CPU time of other processes, and servers that failed."""
    lines = [workload("turnpike", 0, 10, lost=2, refused=3, other_cpus=0.7)]
    text = comparison([MACHINE, *lines, {"kind": "failed", "net": "S", "failed": "other: expected more"}])
    assert "lost or refused: 5." in text
    assert "0.70 at most" in text
    assert "Failed: other: expected more." in text


def test_the_share_of_the_ceiling_is_of_one_round() -> None:
    """Rows per second of the best workload, divided by the highest rate of onnxruntime in the same round."""
    lines = [
        ceiling(0, 100),
        workload("turnpike", 0, 80),
        ceiling(1, 1000),
        workload("turnpike", 1, 10, rows=32),
        workload("turnpike", 1, 300),
    ]
    assert "The best workload of turnpike reached 56% of the highest rate" in comparison([MACHINE, *lines])


def test_the_share_is_of_our_own_precision() -> None:
    """A lower precision has rows of its own."""
    text = comparison([MACHINE, ceiling(0, 100), ceiling(0, 900, "int8"), workload("turnpike", 0, 80)])
    assert "| int8, 2 processes x 1 thread | 900 |" in text
    assert "The best workload of turnpike reached 80% of the highest rate" in text


def test_memory_and_start_are_medians() -> None:
    base = {"kind": "server", "server": "turnpike", "net": "S", "pss_mib": 90, "processes": 3}
    lines = [
        {**base, "round": number, "rss_mib": rss, "started": started}
        for number, (rss, started) in enumerate([(100, 0.5), (120, 0.7), (110, 0.6)])
    ]
    assert "| turnpike | 110 | 90 | 3 | 0.6 |" in comparison([MACHINE, workload("turnpike", 0, 1), *lines])
