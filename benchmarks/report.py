"""Results told: the tables of a file, and the document with its tables and pictures made anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import feature_tables, growth_picture
from benchmarks.blocks import rewrite
from benchmarks.growth_tables import BESIDE, growth
from benchmarks.hotspots import hotspots
from benchmarks.lines import Line, read
from benchmarks.places import DOCS, RESULTS
from benchmarks.tables import comparison, taken_on

DOCUMENT = DOCS / "explanation" / "performance.md"
PICTURES = DOCS / "images"
COMPARISON, GROWTH, PROFILE, GATES, LOADING = (
    RESULTS / f"{name}.jsonl" for name in ("comparison", "growth", "profile", "gates", "loading")
)


def tables(lines: Sequence[Line]) -> str:
    """All tables of a file's lines, whatever it holds."""
    kinds = {line["kind"] for line in lines}
    parts = [comparison(lines)] if kinds & {"cell", "failed"} else []
    grown = {line["what"] for line in lines if line["kind"] == "growth"}
    parts += [f"**{what}**\n\n{growth(lines, what)}" for what in BESIDE if what in grown]
    parts += [feature_tables.gates(lines)] if "gates" in kinds else []
    parts += [feature_tables.loading(lines)] if "loading" in kinds else []
    parts += [hotspots(lines)] if "profile" in kinds else []
    return "\n\n".join(parts)


def write_document(document: Path = DOCUMENT, pictures: Path = PICTURES) -> None:
    """Every table and picture of the document, from the results that the repository holds."""
    rewrite(document, "comparison", comparison(read(COMPARISON)))
    grown = read(GROWTH)
    rewrite(document, "growth", taken_on(grown))
    for what in BESIDE:
        rewrite(document, what, growth(grown, what))
    for name in growth_picture.PICTURES:
        growth_picture.draw(grown, name, pictures / f"performance-{name}.png")
    gates, loading = read(GATES), read(LOADING)
    rewrite(document, "gates", f"{taken_on(gates)}\n\n{feature_tables.gates(gates)}")
    rewrite(document, "loading", f"{taken_on(loading)}\n\n{feature_tables.loading(loading)}")
    profiled = read(PROFILE)
    rewrite(document, "profile", f"{taken_on(profiled)}\n\n{hotspots(profiled)}")
