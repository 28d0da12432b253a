"""Prints the tables of a results file, and writes the figures of the documentation's pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.comparison.grpc import grpc_tables
from benchmarks.comparison.tables import comparison
from benchmarks.cost.gates_cost import gates_table
from benchmarks.cuda.page import cuda_tables
from benchmarks.folders import DOCS, RESULTS
from benchmarks.growth import plots as growth_plots
from benchmarks.growth.tables import REFERENCE_COLUMNS, growth_table
from benchmarks.results.pages import replace_block
from benchmarks.results.results_file import ResultLine, read_results
from benchmarks.results.tables import describe_measurement
from benchmarks.under_load.model_loading import loading_table
from benchmarks.under_load.worker_profile import profile_tables

PERFORMANCE_PAGE = DOCS / "explanation" / "performance.md"
IMAGES = DOCS / "images"
COMPARISON, GRPC, GROWTH, PROFILE, GATES, LOADING = (
    RESULTS / f"{name}.jsonl" for name in ("comparison", "grpc", "growth", "profile", "gates", "loading")
)


def format_results(lines: Sequence[ResultLine]) -> str:
    """All tables of a results file, by the kinds of its lines."""
    kinds = {line["kind"] for line in lines}
    parts = [comparison(lines)] if kinds & {"cell", "failed"} else []
    parts += [grpc_tables(lines)] if kinds & {"grpc", "grpc failure"} else []
    growths = {line["what"] for line in lines if line["kind"] == "growth"}
    parts += [
        f"**{growth}**\n\n{growth_table(lines, growth)}" for growth in REFERENCE_COLUMNS if growth in growths
    ]
    parts += [gates_table(lines)] if "gates" in kinds else []
    parts += [loading_table(lines)] if "loading" in kinds else []
    parts += [profile_tables(lines)] if "profile" in kinds else []
    parts += [cuda_tables(lines)] if "device" in kinds else []
    return "\n\n".join(parts)


def write_performance_page(page: Path = PERFORMANCE_PAGE, images: Path = IMAGES) -> None:
    """Write every table and plot of the page from the results in `benchmarks/results`."""
    replace_block(page, "comparison", comparison(read_results(COMPARISON)))
    replace_block(page, "grpc", grpc_tables(read_results(GRPC)))
    growth_lines = read_results(GROWTH)
    replace_block(page, "growth", describe_measurement(growth_lines))
    for growth in REFERENCE_COLUMNS:
        replace_block(page, growth, growth_table(growth_lines, growth))
    for name in growth_plots.PLOTS:
        growth_plots.save_plot(growth_lines, name, images / f"performance-{name}.png")
    for name, path, tables in (
        ("gates", GATES, gates_table),
        ("loading", LOADING, loading_table),
        ("profile", PROFILE, profile_tables),
    ):
        lines = read_results(path)
        replace_block(page, name, f"{describe_measurement(lines)}\n\n{tables(lines)}")
