"""The table of docs/explanation/silent-bugs.md: what turnpike and other tools say of each bug."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.folders import DOCS, RESULTS
from benchmarks.results.pages import replace_block
from benchmarks.results.results_file import ResultLine, read_results
from tests.export.museum.collection import EXHIBITS
from tests.export.museum.exhibit import Exhibit

MUSEUM_PAGE = DOCS / "explanation" / "silent-bugs.md"
MUSEUM_RESULTS = RESULTS / "museum.jsonl"
BLOCK = "museum"
# verdicts of a tool that notices a bug: it says so, or cannot run the file
NOTICED = frozenset({"refused", "failed"})


def write_museum_page(page: Path = MUSEUM_PAGE, results: Path = MUSEUM_RESULTS) -> None:
    """Write the table of a results file into the page."""
    replace_block(page, BLOCK, museum_table(read_results(results)))


def museum_table(lines: Sequence[ResultLine]) -> str:
    """A row per exhibit, and before it the versions and the number of bugs that each tool notices."""
    verdicts = {
        (line["tool"], line["exhibit"], line["file"]): line["verdict"]
        for line in lines
        if line["kind"] == "verdict"
    }
    tools = list(dict.fromkeys(tool for tool, _, _ in verdicts))
    (versions,) = (line["versions"] for line in lines if line["kind"] == "tools")
    wrongly = [key for key, verdict in verdicts.items() if key[2] == "right" and verdict in NOTICED]
    if wrongly:
        raise BenchmarkError(f"expected each tool to accept each right file, got {wrongly[0]}")
    counts = {
        tool: sum(verdicts[tool, exhibit.name, "wrong"] in NOTICED for exhibit in EXHIBITS) for tool in tools
    }
    head = ["bug", "program", "what the file computes", "turnpike", *tools]
    rows = [
        [*exhibit_cells(exhibit), *(tool_cell(verdicts[tool, exhibit.name, "wrong"]) for tool in tools)]
        for exhibit in EXHIBITS
    ]
    total = [f"**noticed, of {len(EXHIBITS)}**", "", "", f"**{len(EXHIBITS)}**"]
    rows.append([*total, *(f"**{counts[tool]}**" for tool in tools)])
    table = [head, ["---"] * len(head), *rows]
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return "\n".join(
        [
            f"{lines[0]['date']}, with {listed}; turnpike with onnxruntime {lines[0]['onnxruntime']}.",
            "",
            *(f"| {' | '.join(cells)} |" for cells in table),
        ]
    )


def exhibit_cells(exhibit: Exhibit) -> list[str]:
    """The cells that say what the bug is, and how turnpike notices it."""
    return [f"[{exhibit.source}]({exhibit.url})", exhibit.culprit, exhibit.symptom, exhibit.noticed]


def tool_cell(verdict: str) -> str:
    return {"accepted": "**accepted**", "refused": "noticed", "failed": "noticed (cannot run)"}[verdict]
