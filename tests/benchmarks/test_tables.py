"""Medians, ratios within a round, and tables that leave nothing out."""

from __future__ import annotations

from typing import Any

from benchmarks.growth_tables import BESIDE, growth
from benchmarks.tables import comparison

MACHINE = {
    "kind": "machine",
    "date": "2026-01-01",
    "cpu": "a CPU",
    "cpus": 2,
    "python": "3.11",
    "onnxruntime": "1.31",
}


def cell(server: str, number: int, rate: float, **more: Any) -> dict[str, Any]:
    line = {"kind": "cell", "server": server, "net": "S", "round": number, "rate": rate, "request": "JSON"}
    line |= {"rows": 1, "connections": 16, "p50_ms": 1.0, "p99_ms": 2.0, "lost": 0, "refused": 0}
    return line | {"other_cpus": 0.1, "server_cpus": 1.5} | more


def ceiling(number: int, rows: float, precision: str = "fp32") -> dict[str, Any]:
    shape = {"processes": 2, "threads": 1, "batch": 32, "precision": precision}
    return {"kind": "ceiling", "round": number, "net": "S", "rows": rows, **shape}


def test_a_ratio_is_of_one_round() -> None:
    """A machine that is twice as fast in the second round changes no ratio."""
    lines = [
        cell("turnpike", 0, 1000),
        cell("other", 0, 500),
        cell("turnpike", 1, 2000),
        cell("other", 1, 1000),
        cell("turnpike", 2, 9000),
    ]
    told = comparison([MACHINE, *lines])
    assert "| turnpike | 2,000 |" in told
    assert "| other | 750 |" in told
    assert "| other | 2.00 |" in told
    assert "Rounds: 3." in told


def test_a_cell_that_a_server_does_not_have_is_blank() -> None:
    """Such as binary ones, which few know."""
    lines = [cell("turnpike", 0, 10), cell("turnpike", 0, 7, request="binary", rows=32), cell("other", 0, 5)]
    told = comparison([MACHINE, *lines])
    assert "| turnpike | 10 | 7 |" in told
    assert "| other | 5 | - |" in told


def test_what_went_wrong_is_told() -> None:
    """Requests without an answer, other people's work, and servers that failed."""
    lines = [cell("turnpike", 0, 10, lost=2, refused=3, other_cpus=0.7)]
    told = comparison([MACHINE, *lines, {"kind": "failed", "net": "S", "failed": "other: expected more"}])
    assert "lost or refused: 5." in told
    assert "0.70 at most" in told
    assert "Failed: other: expected more." in told


def test_the_share_of_the_ceiling_is_of_one_round() -> None:
    """Rows of the best cell by the most that onnxruntime did in the same round."""
    lines = [
        ceiling(0, 100),
        cell("turnpike", 0, 80),
        ceiling(1, 1000),
        cell("turnpike", 1, 10, rows=32),
        cell("turnpike", 1, 300),
    ]
    assert "turnpike's best cell: 56% of the most" in comparison([MACHINE, *lines])


def test_the_share_is_of_our_own_precision() -> None:
    """A lower one has a row, and a ceiling of its own."""
    told = comparison([MACHINE, ceiling(0, 100), ceiling(0, 900, "int8"), cell("turnpike", 0, 80)])
    assert "| int8, 2 processes x 1 threads | 900 |" in told
    assert "turnpike's best cell: 80% of the most" in told


def test_memory_and_start_are_medians() -> None:
    """Of all starts."""
    base = {"kind": "server", "server": "turnpike", "net": "S", "pss_mib": 90, "processes": 3}
    lines = [
        {**base, "round": number, "rss_mib": held, "started": started}
        for number, (held, started) in enumerate([(100, 0.5), (120, 0.7), (110, 0.6)])
    ]
    assert "| turnpike | 110 | 90 | 3 | 0.6 |" in comparison([MACHINE, cell("turnpike", 0, 1), *lines])


def test_a_growth_has_a_row_a_size() -> None:
    """In order, each the median of its rounds, with what is beside the runs."""
    points = [
        {
            "what": "depth",
            "size": size,
            "rate": 100,
            "p50_ms": 1,
            "cpu_us": cpu,
            "alone_us": 9,
            "company_us": 4,
        }
        for size in (10, 5)
        for cpu in (size, 3 * size, 2 * size)
    ]
    rows = growth(points, "depth").splitlines()[2:]
    assert rows == ["| 5 | 100 | 1.00 | 10 | 9 | 4 | 6 |", "| 10 | 100 | 1.00 | 20 | 9 | 4 | 16 |"]
    assert set(BESIDE) == {"rows, JSON", "rows, binary", "connections", "depth", "width", "models"}
