"""Mutants of a small module: each differs in one place, and the program says whether a test kills it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import __main__ as program
from tests.mutants.mutate import Mutant, count_mutants, make_mutant
from tests.support.repository_copy import ROOT


def mutants(code: str) -> list[Mutant]:
    return [make_mutant(code, number) for number in range(count_mutants(code))]


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("ok = a < b", {"ok = a <= b"}),
        ("ok = a is b in c", {"ok = a is not b in c", "ok = a is b not in c"}),
        ("ok = not a", {"ok = a"}),
        ("ok = a and b", {"ok = a or b"}),
        ("n = a % b - c", {"n = a * b - c", "n = a % b + c"}),
        ("n = 7", {"n = 8", "n = 6"}),
        ("ok = True", {"ok = False"}),
        ("seed = 20150503", set()),
        ("a.b = c", {"pass"}),
        ("n += m", {"pass", "n -= m"}),
        ("f(a, b, c)", {"pass", "f(b, a, c)"}),
        ("raise E", {"pass"}),
        ("for a in b:\n    break", {"for a in b:\n    continue"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        # texts, annotations and decorators
        ('"""A module."""\nx = "text"\ny = f"{1}"', set()),
        ("@cache(1)\ndef f(a: A | 1) -> B | 1:\n    return None", set()),
    ],
)
def test_each_mutant_has_one_error(code: str, changed: set[str]) -> None:
    assert {mutant.source for mutant in mutants(code)} == changed


def test_a_mutant_is_shown_with_its_line_and_change() -> None:
    (mutant,) = mutants("import a\n\nif a.b(c) == d:\n    import e\n")
    assert str(mutant) == "3: if a.b(c) == d:  ->  if a.b(c) != d:"


def test_a_mutant_is_killed_if_a_test_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is as before afterwards."""
    code, tests = tmp_path / "part" / "code.py", tmp_path / "tests" / "part"
    code.parent.mkdir()
    tests.mkdir(parents=True)
    code.write_text("USED = True\nUNUSED = True\n")
    (tests / "test_code.py").write_text("from part import code\n\ndef test_it():\n    assert code.USED\n")
    monkeypatch.setattr(program, "ROOT", tmp_path)
    drawn = program.draw_mutants(9, 0, ["part"])
    assert {str(entry[1]): program.is_killed(entry, tmp_path) for entry in drawn} == {
        "1: USED = True  ->  USED = False": True,
        "2: UNUSED = True  ->  UNUSED = False": False,
    }
    assert code.read_text() == "USED = True\nUNUSED = True\n"


def test_a_seed_draws_the_same_mutants() -> None:
    target = ["models/layers"]
    assert program.draw_mutants(9, 1, target) == program.draw_mutants(9, 1, target)
    assert program.draw_mutants(9, 1, target) != program.draw_mutants(9, 2, target)


@pytest.mark.parametrize("target", program.TARGETS)
def test_the_tests_of_every_module_are_known(target: str) -> None:
    """Its own tests come first."""
    assert program.tests_of(f"{target}/missing.py", ROOT)
    assert program.tests_of("service/batching/queue.py", ROOT)[0] == "tests/service/batching/test_queue.py"
