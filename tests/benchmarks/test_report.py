"""The figures of the performance page are those of the results, and nothing else of it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.growth import plots as growth_plots
from benchmarks.growth.plots import PLOTS, save_plot
from benchmarks.report import (
    COMPARISON,
    GROWTH,
    PERFORMANCE_PAGE,
    PROFILE,
    write_performance_page,
)
from benchmarks.results.results_file import ResultsWriter, read_results


def test_the_document_holds_the_figures_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # plots take a second, and have a test of their own
    monkeypatch.setattr(growth_plots, "save_plot", lambda *arguments: None)
    copy = tmp_path / PERFORMANCE_PAGE.name
    copy.write_text(PERFORMANCE_PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_performance_page(copy)
    assert copy.read_text(encoding="utf-8") == PERFORMANCE_PAGE.read_text(encoding="utf-8")


def test_every_table_stands_in_a_block() -> None:
    """Outside a block there are only figures that somebody typed, which `docs` does not update."""
    text = PERFORMANCE_PAGE.read_text(encoding="utf-8")
    outside = re.sub(r"<!-- (.*?) -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    assert "---:" in text
    assert "---:" not in outside


@pytest.mark.parametrize("name", PLOTS)
def test_a_growth_is_drawn(name: str, tmp_path: Path) -> None:
    save_plot(read_results(GROWTH), name, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_results_are_kept_as_they_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line describes the machine; each line is in the file before the end of the benchmark."""
    path = tmp_path / "new" / "r.jsonl"
    with ResultsWriter(path) as writer:
        writer.write({"kind": "cell", "server": "turnpike", "rate": 1234.5})
        first, second = read_results(path)
    assert first["kind"] == "machine"
    assert first["cpus"] >= 1
    assert second == {"kind": "cell", "server": "turnpike", "rate": 1234.5}
    assert "turnpike  1,234 req/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected a results file, got No such file"),
        ("{", "expected JSON in each line"),
        ('{"kind": "cell"}', "expected a first line of kind machine"),
        ("", "expected a first line of kind machine"),
    ],
)
def test_files_that_hold_no_results_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "r.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BenchmarkError, match=f"r.jsonl: {message}"):
        read_results(path)


@pytest.mark.parametrize("path", [COMPARISON, GROWTH, PROFILE], ids=lambda path: path.stem)
def test_results_are_small(path: Path) -> None:
    """They are part of the repository."""
    assert path.stat().st_size < 500_000
