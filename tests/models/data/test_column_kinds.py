"""What the columns of a table hold, found from their cells and names."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from turnpike.common.columns import ColumnForm
from turnpike.models.data.table.kinds import column_of_kind, kept, kind_of_column

DRAW = random.Random(4)
NUMBERS = [str(DRAW.randrange(10**6)) for _ in range(200)]
DAYS = [f"2024-{DRAW.randrange(12) + 1:02}-{DRAW.randrange(28) + 1:02}" for _ in range(200)]


@pytest.mark.parametrize(
    ("cells", "delimiter", "form"),
    [
        (["1", "2.5", "NA"], ",", ColumnForm()),
        (["1", "2.5", "?"], ",", ColumnForm()),
        (["1", "2,5", "3"], ";", ColumnForm(decimal_comma=True)),
        (["1,5", "2,25"], ",", ColumnForm(decimal_comma=True)),
        (["1,500", "2,250"], ";", ColumnForm(decimal_comma=True)),
        (["1,500", "2,250"], ",", ColumnForm()),
        (["1,500,000", "2,250"], ";", ColumnForm()),
        (["1 500", "2"], ",", ColumnForm()),
        (["5%", "2.5 %", ""], ",", ColumnForm(affix="%")),
        (["$5", "$1,200.50"], ",", ColumnForm(affix="$")),
        (["yes", "no", ""], ",", ColumnForm("boolean")),
        (["True", "FALSE"], ",", ColumnForm("boolean")),
        (["yes", "no", "maybe"], ",", ColumnForm("category", ("maybe", "no", "yes"))),
        (["0", "1", "1"], ",", ColumnForm()),
        (["1", "2", "3+"], ",", ColumnForm("category", ("1", "2", "3+"))),
        (DAYS, ",", ColumnForm("date")),
        (["2024-01-31T10:00:00Z", "2024-02-01T10:00:00+02:00"], ",", ColumnForm("date")),
        (["31.12.2024", "1.1.2024"], ",", ColumnForm("date", date_format="%d.%m.%Y")),
        (["12/31/2024", "01/01/2024"], ",", ColumnForm("date", date_format="%m/%d/%Y")),
        (["31/12/2024", "01/01/2024"], ",", ColumnForm("date", date_format="%d/%m/%Y")),
        (["Jan 1 2000", "Dec 31 2001"], ",", ColumnForm("date", date_format="%b %d %Y")),
        (["2024-01", "2024-12"], ",", ColumnForm("date", date_format="%Y-%m")),
        ([1, 2.5, None], "", ColumnForm()),
        ([True, False, None], "", ColumnForm("boolean")),
        (["NA", "none", "-", "a"], ",", ColumnForm("category", ("-", "a", "none"))),
        (NUMBERS, ",", ColumnForm()),
    ],
)
def test_kinds_are_found_from_cells(cells: Sequence[Any], delimiter: str, form: ColumnForm) -> None:
    column = kind_of_column("x", cells, delimiter)
    assert (column.form, column.problem, column.useless) == (form, "", None)


@pytest.mark.parametrize(
    ("name", "cells", "useless", "note"),
    [
        ("x", ["a"] * 30, "constant", "always 'a'"),
        ("x", ["", "NA", "null"], "constant", "no values"),
        ("x", [str(n) for n in range(30)], "id", "counts the rows"),
        ("x", [str(n) for n in range(1, 31)], "id", "counts the rows"),
        ("customer_id", [str(n * 7919 % 1000) for n in range(30)], "id", "each row has its own"),
        ("userId", [str(n * 7919 % 1000) for n in range(30)], "id", "each row has its own"),
        ("x", [f"A-{n}" for n in range(30)], "id", "each row has its own"),
        ("", ["1", "2", "1"], "id", "has no name"),
        ("x", [f"some words {n}" for n in range(30)], "text", "30 different texts"),
        ("x", [f"word{n % 101}" for n in range(1000)], "text", "101 different texts"),
    ],
)
def test_columns_that_say_nothing_are_left_out(
    name: str, cells: Sequence[Any], useless: str, note: str
) -> None:
    column = kind_of_column(name, cells)
    assert (column.form, column.useless, column.note) == (None, useless, note)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("x", ["a", ""] * 15),
        ("year", [str(1990 + n) for n in range(30)]),
        ("x", [str(n) for n in range(19)]),
        ("price", [str(n * 7919 % 1000) for n in range(30)]),
        ("x", [f"word{n % 100}" for n in range(1000)]),
        ("valid", [str(n * 7919 % 1000) for n in range(30)]),
    ],
)
def test_columns_that_only_seem_to_say_nothing_are_used(name: str, cells: Sequence[Any]) -> None:
    """One value and blanks, years, few numbers, distinct numbers without the name of an id."""
    assert kind_of_column(name, cells).form is not None


@pytest.mark.parametrize(
    ("name", "cells", "problem"),
    [
        ("zip", ["10115", "20095"] * 20, "--kind zip=category or --kind zip=number says which"),
        ("PLZ", ["10115", "20095"] * 20, "--drop PLZ leaves it out"),
        ("x", ["0123", "2345"] * 20, "its numbers may be names"),
        ("day", ["01/02/2024", "03/04/2024"], "--kind day=date:%d/%m/%Y or %m/%d/%Y says which"),
        ("day", ["01-02-2024", "03-04-2024"], "--kind day=date:%d-%m-%Y or %m-%d-%Y says which"),
        (
            "x",
            [*NUMBERS, "old"],
            "1 of 201 values is no number, the first is 'old': correct or empty such cells",
        ),
    ],
)
def test_what_cannot_be_decided_is_asked(name: str, cells: Sequence[Any], problem: str) -> None:
    assert problem in kind_of_column(name, cells).problem


@pytest.mark.parametrize(("name", "cells"), [("zipper", ["1", "2"] * 20), ("x", ["0", "0.5"] * 20)])
def test_what_is_clear_is_not_asked(name: str, cells: Sequence[Any]) -> None:
    assert kind_of_column(name, cells).problem == ""


@pytest.mark.parametrize(
    ("chosen", "cells", "form"),
    [
        ("category", ["10115", "020", "10115"], ColumnForm("category", ("020", "10115"))),
        ("number", ["020", "1"], ColumnForm()),
        ("boolean", ["1", "0", ""], ColumnForm("boolean")),
        ("date", ["2024-12-31"], ColumnForm("date")),
        ("date:%d/%m/%Y", ["01/02/2024"], ColumnForm("date", date_format="%d/%m/%Y")),
    ],
)
def test_a_kind_can_be_chosen(chosen: str, cells: Sequence[Any], form: ColumnForm) -> None:
    assert column_of_kind("x", cells, chosen).form == form


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("colour", "expected number, boolean, category, date or date:FORMAT, got 'colour'"),
        ("number:%d", "got 'number:%d'"),
        ("number", "expected a number, got 'a'"),
        ("date:%d/%m/%Y", "expected a date as %d/%m/%Y, got 'a'"),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(chosen: str, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        column_of_kind("x", ["a"], chosen)
    assert message in str(caught.value)


def test_a_column_can_be_kept() -> None:
    """A column of numbers is kept as numbers, one of words as a category."""
    numbers, words = [str(n) for n in range(30)], [f"A-{n}" for n in range(30)]
    assert kept(kind_of_column("x", numbers), numbers).form == ColumnForm()
    assert kept(kind_of_column("x", words), words).form == ColumnForm("category", tuple(sorted(words)))
