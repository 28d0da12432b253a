"""The page of silent bugs says what the exhibits and the results of the other tools say."""

from __future__ import annotations

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.museum.page import MUSEUM_PAGE, MUSEUM_RESULTS, museum_table
from benchmarks.results.results_file import ResultLine, read_results
from tests.export.museum.collection import EXHIBITS


@pytest.fixture
def lines() -> list[ResultLine]:
    return read_results(MUSEUM_RESULTS)


def test_the_page_has_the_table_of_the_exhibits_and_the_results(lines: list[ResultLine]) -> None:
    """`python -m benchmarks.museum` writes it."""
    assert museum_table(lines) in MUSEUM_PAGE.read_text(encoding="utf-8")


def test_every_tool_was_asked_about_every_file(lines: list[ResultLine]) -> None:
    expected = [(exhibit.name, file) for exhibit in EXHIBITS for file in ("right", "wrong")]
    verdicts = [line for line in lines if line["kind"] == "verdict"]
    tools = {line["tool"] for line in verdicts}
    assert len(tools) == 4
    for tool in tools:
        assert [(line["exhibit"], line["file"]) for line in verdicts if line["tool"] == tool] == expected


def test_a_tool_that_refuses_a_right_file_is_no_witness(lines: list[ResultLine]) -> None:
    """Its verdict about the wrong file would mean nothing."""
    right = next(line for line in lines if line.get("file") == "right")
    right["verdict"] = "refused"
    with pytest.raises(BenchmarkError, match="expected each tool to accept each right file"):
        museum_table(lines)
