"""Tables of a growth: a row for each size, with medians over the rounds."""

from __future__ import annotations

from benchmarks.growth.tables import REFERENCE_COLUMNS, growth_table


def test_a_growth_has_a_row_a_size() -> None:
    """In order, each with medians of its rounds."""
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
    rows = growth_table(points, "depth").splitlines()[2:]
    assert rows == ["| 5 | 100 | 1.00 | 10 | 9 | 4 | 6 |", "| 10 | 100 | 1.00 | 20 | 9 | 4 | 16 |"]
    assert set(REFERENCE_COLUMNS) == {"rows, JSON", "rows, binary", "connections", "depth", "width", "models"}
