"""The document's figures are those of the results, and nothing else of it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import growth_picture
from benchmarks.blocks import rewrite
from benchmarks.errors import BenchmarkError
from benchmarks.growth_picture import PICTURES, draw
from benchmarks.lines import Writer, read
from benchmarks.report import COMPARISON, DOCUMENT, GROWTH, PROFILE, write_document


def test_a_block_is_rewritten_alone(tmp_path: Path) -> None:
    """What is before, after and in other blocks stays, backslashes too."""
    document = tmp_path / "d.md"
    document.write_text("a\n<!-- one -->\nold\n<!-- end of one -->\nb\n<!-- two -->\n<!-- end of two -->\n")
    rewrite(document, "one", r"new \1")
    rewrite(document, "one", r"new \1 again")
    assert document.read_text() == (
        "a\n<!-- one -->\n\nnew \\1 again\n\n<!-- end of one -->\nb\n<!-- two -->\n<!-- end of two -->\n"
    )


@pytest.mark.parametrize("text", ["", "<!-- one -->", "<!-- end of one --><!-- one -->"])
def test_a_document_without_the_block_is_refused(tmp_path: Path, text: str) -> None:
    """It says which marks are wanted."""
    document = tmp_path / "d.md"
    document.write_text(text)
    with pytest.raises(
        BenchmarkError, match=r"expected one line <!-- one --> and after it one <!-- end of one"
    ):
        rewrite(document, "one", "new")


def test_the_document_holds_the_figures_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made again of the results that the repository holds, it is the same."""
    # what needs no proof twice, and takes a second
    monkeypatch.setattr(growth_picture, "draw", lambda *of: None)
    copy = tmp_path / DOCUMENT.name
    copy.write_text(DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    write_document(copy)
    assert copy.read_text(encoding="utf-8") == DOCUMENT.read_text(encoding="utf-8")


def test_every_table_stands_in_a_block() -> None:
    """A figure typed by hand would stand elsewhere."""
    text = DOCUMENT.read_text(encoding="utf-8")
    outside = re.sub(r"<!-- (.*?) -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    assert "---:" in text
    assert "---:" not in outside


@pytest.mark.parametrize("name", PICTURES)
def test_a_growth_is_drawn(name: str, tmp_path: Path) -> None:
    """From the results that the repository holds, as a PNG."""
    draw(read(GROWTH), name, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_results_are_kept_as_they_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line tells the machine, and what was measured before an end is there."""
    path = tmp_path / "new" / "r.jsonl"
    with Writer(path) as writer:
        writer.write({"kind": "cell", "server": "turnpike", "rate": 1234.5})
        first, second = read(path)
    assert first["kind"] == "machine"
    assert first["cpus"] >= 1
    assert second == {"kind": "cell", "server": "turnpike", "rate": 1234.5}
    assert "turnpike  1,234 req/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "expected results that were measured, got No such file"),
        ("{", "expected JSON in each line"),
        ('{"kind": "cell"}', "expected a first line of kind machine"),
        ("", "expected a first line of kind machine"),
    ],
)
def test_results_that_are_none_are_refused(tmp_path: Path, text: str | None, said: str) -> None:
    """With the file's name."""
    path = tmp_path / "r.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BenchmarkError, match=f"r.jsonl: {said}"):
        read(path)


@pytest.mark.parametrize("path", [COMPARISON, GROWTH, PROFILE], ids=lambda path: path.stem)
def test_results_are_small(path: Path) -> None:
    """They are kept in the repository."""
    assert path.stat().st_size < 500_000
