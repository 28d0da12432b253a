"""The list of controls fits the code, and the documentation has every promise with its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reliability import controls
from tests.reliability.controls import Control, read_controls
from tests.support.repository_copy import ROOT

PAGE = (ROOT / "docs/explanation/reliability.md").read_text(encoding="utf-8")
CONTROLS = read_controls()


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_the_defence_is_where_the_control_expects_it(control: Control) -> None:
    """The text to replace is in the file exactly once, and the change keeps a Python file valid."""
    source = (ROOT / control.file).read_text(encoding="utf-8")
    assert source.count(control.old) == 1
    if control.file.endswith(".py"):
        compile(source.replace(control.old, control.new), control.file, "exec")


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_the_promise_is_documented_with_its_test(control: Control) -> None:
    """The table of the documentation has a row with the promise and the name of the test."""
    assert re.search(rf"^\| {re.escape(control.promise)} \|.*`{control.name}`", PAGE, re.MULTILINE)


def test_every_promise_is_documented_once() -> None:
    """No two rows of the page have the same promise or the same test."""
    rows = re.findall(r"^\| (.+?) \| `(\w+)`.* \|$", PAGE, re.MULTILINE)
    assert len(rows) > len(CONTROLS)
    for column in zip(*rows, strict=True):
        assert len(set(column)) == len(column)


def test_tests_in_the_documentation_exist() -> None:
    """Each row names its tests and the one file in which they are."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`test_" in line]
    assert len(rows) > 30
    for row in rows:
        (file,) = re.findall(r"`(tests/[\w/]+\.py)` \|$", row)
        tests = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert set(re.findall(r"`(test_\w+)`", row)) <= set(tests), row


@pytest.mark.slow
def test_a_control_that_changes_nothing_is_reported(tmp_path: Path) -> None:
    """A test proves something only if it passes with the defence on and fails with it off."""
    (tmp_path / "code.py").write_text("DEFENCE = True\n")
    (tmp_path / "test_code.py").write_text(
        "from code import *\n"
        "def test_defence(): assert DEFENCE\n"
        "def test_useless(): pass\n"
        "def test_broken(): assert False\n"
    )
    outcomes = {
        name: controls.try_control(Control("", f"test_code.py::{name}", "code.py", "True", "False"), tmp_path)
        for name in ("test_defence", "test_useless", "test_broken", "test_missing")
    }
    assert outcomes == {
        "test_defence": "fails",
        "test_useless": "STILL PASSES with the defence off",
        "test_broken": "DOES NOT PASS with the defence on",
        "test_missing": "DOES NOT PASS with the defence on",
    }
