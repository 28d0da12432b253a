"""Cells of a table: the page reads and writes them by the rules of the service."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.page_modules import PageModules, page_modules
from turnpike.common.columns import WEAK_BLANKS, CellError, ColumnForm
from turnpike.models.data.table.kinds import DATE_FORMATS
from turnpike.service.artifact.manifest import Feature

READ = """async ([feature, cells]) => {
  const { numberOf } = await import("/dashboard/inputs/table_cells.js");
  const read = (cell) => {
    try { const number = numberOf(feature, cell); return Number.isNaN(number) ? "blank" : number; }
    catch (error) { return error.message; }
  };
  return cells.map(read);
}"""
WRITE = """async ([feature, numbers]) => {
  const { cellOf } = await import("/dashboard/inputs/table_cells.js");
  return numbers.map((number) => cellOf(feature, number ?? NaN));
}"""
READ_TABLE = """async ([text, features]) => {
  const { readFeatureTable } = await import("/dashboard/inputs/feature_rows.js");
  try { return readFeatureTable(text, features).rows.map(({ instance }) => instance); }
  catch (error) { return error.message; }
}"""
CELLS = {
    ColumnForm(): [
        "1",
        " -2.5 ",
        "1,234.5",
        "1 234",
        "1'234'567",
        ".5",
        "1e3",
        "1,23",
        "x",
        "true",
        "",
        "NA",
    ],
    ColumnForm(decimal_comma=True): ["1,5", "1.234,5", "1 234,5", "1.5", "1.234", ",5", "2,5E1", "-"],
    ColumnForm(affix="%"): ["5%", "5 %", "%5", "5", "%", "5%%", "n/a"],
    ColumnForm("boolean"): ["true", "FALSE", "Yes", "n", "1", "0.0", "2", "maybe", *sorted(WEAK_BLANKS)],
    ColumnForm("category", ("a b", "none", "3")): [
        "a b",
        " a b ",
        "none",
        "3",
        "3.0",
        "c",
        "NULL",
        *sorted(WEAK_BLANKS),
    ],
    ColumnForm("date"): [
        *("2024-12-31", "20241231", "2024-12-31T12:00", "2024-12-31 06:30:15", "2024-12-31T12:00:00.25Z"),
        *("2024-12-31T12:00+02:00", "2024-12-31T12:00:00-0530", "2024-02-30", "2024-13-01", "31.12.2024"),
        *("1969-12-31", "2024-12-31T24:30", "2024-12-31T24:00", "", "nan"),
        *("2024-W01", "2024W01", "2024-W01-7", "2020W537", "2021-W53", "2024-W00", "2024-W01-8", "0001-W01"),
        *("9999-W52-5", "9999-W52-6", "1969-W01-3T12:00Z", "2024-W01T06", "2024-1231", "2024-W017"),
        *("20241231T0630", "20241231 063015.5", "2024-12-31 06", "2024-12-31T06:3015", "2024-12-31T06:60"),
        *("2024-12-31T06+02", "2024-12-31T06-0530", "2024-12-31T06+24", "2024-12-31T06:00+02:60"),
        *("2024-12-31T06:00Z ", "2024-12-31T06:00 Z", "2024-12-31_06:00", "2024-12-31T", "0001-01-01T00+01"),
    ],
}
FORMATTED = {
    "%d.%m.%Y": ["31.12.2024", "1.2.2024", "30.02.2024", "2024-12-31"],
    "%m/%d/%y": ["12/31/24", "1/2/68", "1/2/69", "31/12/24"],
    "%d/%m/%Y %H:%M:%S": ["31/12/2024 23:59:58", "31/12/2024", "31/12/2024 24:00:00"],
    "%b %d, %Y": ["Dec 31, 2024", "may 1, 2024", "December 31, 2024"],
    "%d %B %Y": ["31 December 2024", "1  may 2024"],
    "%Y/%m/%d": ["2024/12/31", "2024/1/ 9", "2024/12/32"],
    "%Y-%m": ["2024-12", "2024-1", "2024-13"],
}
FORMS = [
    *CELLS.items(),
    *((ColumnForm("date", date_format=form), cells) for form, cells in FORMATTED.items()),
]


@pytest.fixture(scope="module")
def modules() -> Iterator[PageModules]:
    with page_modules() as modules:
        yield modules


def feature(form: ColumnForm, *, name: str = "x", blanks: bool = True) -> dict[str, Any]:
    fields = {
        key: getattr(form, key) for key in ("kind", "categories", "date_format", "decimal_comma", "affix")
    }
    return Feature(name=name, low=0, high=1, mean=0, sd=1, blanks=blanks, **fields).model_dump()


@pytest.mark.parametrize(("form", "cells"), FORMS, ids=[f"{form.kind} {cells[0]}" for form, cells in FORMS])
def test_cells_are_read_as_by_the_service(modules: PageModules, form: ColumnForm, cells: list[str]) -> None:
    """With the same numbers, and errors for the same cells."""
    for cell, found in zip(cells, modules.evaluate(READ, [feature(form), cells]), strict=True):
        try:
            number = form.number_of(cell)
        except CellError:
            assert str(found).startswith(f"expected {form.expected}"), cell
            continue
        if math.isnan(number):
            assert found == "blank", cell
        else:
            assert found == pytest.approx(number, abs=1e-9), cell


def test_a_blank_needs_a_column_with_blanks(modules: PageModules) -> None:
    found = modules.evaluate(READ, [feature(ColumnForm("boolean"), blanks=False), ["", "yes"]])
    assert found == ['expected true or false, since this column has no blanks, got ""', 1]


@pytest.mark.parametrize("form", DATE_FORMATS)
def test_dates_are_written_as_the_service_reads_them(modules: PageModules, form: str) -> None:
    """In every format that a column may have; months without a day are their first day."""
    column = ColumnForm("date", date_format=form)
    (cell, blank) = modules.evaluate(WRITE, [feature(column), [17_897, None]])
    # 2019-01-01
    assert column.number_of(cell) == 17_897
    assert blank is None


def test_rows_have_words_and_booleans(modules: PageModules) -> None:
    """A word that was never seen is none of the words of the training."""
    colors = ColumnForm("category", ("red", "another word"))
    assert modules.evaluate(WRITE, [feature(colors), [0, 1]]) == ["red", "another word"]
    (unseen,) = modules.evaluate(WRITE, [feature(colors), [2]])
    assert colors.number_of(unseen) == 2
    assert modules.evaluate(WRITE, [feature(ColumnForm("boolean")), [0, 1, None]]) == [False, True, None]
    assert modules.evaluate(WRITE, [feature(ColumnForm("date")), [0.5]]) == ["1970-01-01T12:00:00"]
    # without their words, categories are indices
    assert modules.evaluate(WRITE, [feature(ColumnForm("category")), [3]]) == [3]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("day;color;mass\n1.2.2024;red;1,5\n;;2\n", [["1,5", "red", "1.2.2024"], ["2", "", ""]]),
        ("color\tmass\nred\t1\n", [["1", "red", None]]),
        ("1,red,1.2.2024\n", [["1", "red", "1.2.2024"]]),
        ("2,blue,\n3,red,\n", [["2", "blue", ""], ["3", "red", ""]]),
        ("mass,color,day\n,red,\n", 'line 2, column "mass": expected a number with a decimal comma, since '),
        ("mass,color,day\n1,red,2024\n", 'line 2, column "day": expected a date as %d.%m.%Y, got "2024"'),
        ("a,b,c\nx,y,z\n", 'expected a column "mass", which is missing; other columns are "a", "b", "c"'),
    ],
)
def test_tables_keep_their_cells(modules: PageModules, text: str, rows: Any) -> None:
    """The service gets them as they are, in the order of the model; columns with blanks may be missing."""
    features = [
        feature(ColumnForm(decimal_comma=True), name="mass", blanks=False),
        feature(ColumnForm("category", ("red",)), name="color"),
        feature(ColumnForm("date", date_format="%d.%m.%Y"), name="day"),
    ]
    found = modules.evaluate(READ_TABLE, [text, features])
    if isinstance(rows, str):
        assert str(found).startswith(rows)
    else:
        assert found == rows
