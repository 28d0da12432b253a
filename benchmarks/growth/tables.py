"""Tables of how costs grow: a row for each size, with medians over the rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.results.results_file import ResultLine
from benchmarks.results.tables import markdown_table

# gives the median of a field at one point
Medians = Callable[[str], float]
# head of a column, and the text of its cell at one point
Column = tuple[str, Callable[[Medians], str]]

MEASURED_COLUMNS: tuple[Column, ...] = (
    ("requests/s", lambda medians: f"{medians('rate'):,.0f}"),
    ("p50, ms", lambda medians: f"{medians('p50_ms'):.2f}"),
    ("CPU per request, µs", lambda medians: f"{medians('cpu_us'):,.0f}"),
)
RUN_COLUMNS: tuple[Column, ...] = (
    ("onnxruntime alone, one request per run, µs", lambda medians: f"{medians('alone_us'):,.0f}"),
    ("onnxruntime alone, full runs, µs", lambda medians: f"{medians('company_us'):,.0f}"),
    ("CPU minus full runs, µs", lambda medians: f"{medians('cpu_us') - medians('company_us'):,.0f}"),
)
# columns that each growth is compared with
REFERENCE_COLUMNS: dict[str, tuple[Column, ...]] = {
    "rows, JSON": RUN_COLUMNS,
    "rows, binary": RUN_COLUMNS,
    "depth": RUN_COLUMNS,
    "width": RUN_COLUMNS,
    "connections": (
        ("floor of HTTP, requests/s", lambda medians: f"{medians('floor_rate'):,.0f}"),
        ("floor of HTTP, CPU per request, µs", lambda medians: f"{medians('floor_us'):,.0f}"),
        ("CPU minus floor, µs", lambda medians: f"{medians('cpu_us') - medians('floor_us'):,.0f}"),
    ),
    "models": (
        ("one model, one request per run, µs", lambda medians: f"{medians('single_us'):,.0f}"),
        ("onnxruntime alone, one session per model, µs", lambda medians: f"{medians('alone_us'):,.0f}"),
        ("RSS, MiB", lambda medians: f"{medians('rss_mib'):,.0f}"),
        ("time to start, s", lambda medians: f"{medians('started'):.1f}"),
    ),
}


def growth_table(lines: Sequence[ResultLine], growth: str) -> str:
    """The table of one growth, with a row for each size."""
    columns = (*MEASURED_COLUMNS, *REFERENCE_COLUMNS[growth])
    rows = [
        [str(size), *(text(medians) for _, text in columns)] for size, medians in median_points(lines, growth)
    ]
    return markdown_table([growth, *(head for head, _ in columns)], rows)


def median_points(lines: Sequence[ResultLine], growth: str) -> list[tuple[int, Medians]]:
    """Every size, in order, with a function that gives the median of a field at that size."""
    lines = [line for line in lines if line.get("what") == growth]

    def medians_at(size: int) -> Medians:
        return lambda field: median(line[field] for line in lines if line["size"] == size)

    return [(size, medians_at(size)) for size in sorted({line["size"] for line in lines})]
