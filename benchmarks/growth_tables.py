"""How costs grow, as tables: medians of the rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.lines import Line
from benchmarks.tables import table

Column = tuple[str, Callable[[Callable[[str], float]], str]]

# each column has a head and what it makes of a point's medians
MEASURED: tuple[Column, ...] = (
    ("requests/s", lambda of: f"{of('rate'):,.0f}"),
    ("p50, ms", lambda of: f"{of('p50_ms'):.2f}"),
    ("CPU a request, µs", lambda of: f"{of('cpu_us'):,.0f}"),
)
RUNS: tuple[Column, ...] = (
    ("onnxruntime, by itself, µs", lambda of: f"{of('alone_us'):,.0f}"),
    ("in full runs, µs", lambda of: f"{of('company_us'):,.0f}"),
    ("CPU beside full runs, µs", lambda of: f"{of('cpu_us') - of('company_us'):,.0f}"),
)
BESIDE: dict[str, tuple[Column, ...]] = {
    "rows, JSON": RUNS,
    "rows, binary": RUNS,
    "depth": RUNS,
    "width": RUNS,
    "connections": (
        ("floor of HTTP, requests/s", lambda of: f"{of('floor_rate'):,.0f}"),
        ("its CPU a request, µs", lambda of: f"{of('floor_us'):,.0f}"),
        ("CPU beside it, µs", lambda of: f"{of('cpu_us') - of('floor_us'):,.0f}"),
    ),
    "models": (
        ("one model, runs of one request, µs", lambda of: f"{of('single_us'):,.0f}"),
        ("onnxruntime, so many sessions in turn, µs", lambda of: f"{of('alone_us'):,.0f}"),
        ("RSS, MiB", lambda of: f"{of('rss_mib'):,.0f}"),
        ("start, s", lambda of: f"{of('started'):.1f}"),
    ),
}


def growth(lines: Sequence[Line], what: str) -> str:
    """One growth's table."""
    columns = (*MEASURED, *BESIDE[what])
    rows = [[str(size), *(tell(of) for _, tell in columns)] for size, of in points(lines, what)]
    return table([what, *(head for head, _ in columns)], rows)


def points(lines: Sequence[Line], what: str) -> list[tuple[int, Callable[[str], float]]]:
    """Every size with a function that gives the median of anything that was measured there."""
    some = [line for line in lines if line.get("what") == what]

    def at(size: int) -> Callable[[str], float]:
        return lambda name: median(line[name] for line in some if line["size"] == size)

    return [(size, at(size)) for size in sorted({line["size"] for line in some})]
