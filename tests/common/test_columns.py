"""How cells of a table become numbers."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from turnpike.common.columns import CellError, ColumnForm, cell_text, parse_number

DAY = 20_088  # days from 1970-01-01 to 2024-12-31 (54 years of 365 days, 13 leap days, and 365 days)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5", 1.5),
        ("-2e1", -20),
        (".5", 0.5),
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
        ("1 234", 1234),
        ("1\u202f234.5", 1234.5),
        ("1'234", 1234),
        ("1,5", None),
        ("12,34", None),
        ("1_0", None),
        ("inf", None),
        ("1.2.3", None),
        ("", None),
    ],
)
def test_numbers_with_a_decimal_point(text: str, number: float | None) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,5", 1.5),
        ("1.234,5", 1234.5),
        ("1 234,5", 1234.5),
        ("1,234", 1.234),
        ("1.5", None),
        ("1,2,3", None),
    ],
)
def test_numbers_with_a_decimal_comma(text: str, number: float | None) -> None:
    assert parse_number(text, decimal_comma=True) == number


@pytest.mark.parametrize("text", ["12%", "12 %", "% 12"])
def test_an_affix_stands_on_either_side(text: str) -> None:
    assert ColumnForm(affix="%").number_of(text) == 12


@pytest.mark.parametrize("kind", ["number", "boolean", "category", "date"])
@pytest.mark.parametrize("cell", ["", "  ", "NA", "n/a", "NaN", "null", None, math.nan])
def test_blanks_have_no_number(kind: str, cell: object) -> None:
    assert math.isnan(ColumnForm(kind, ("a",)).number_of(cell))  # type: ignore[arg-type]


def test_a_dash_is_blank_unless_it_may_be_a_word() -> None:
    assert math.isnan(ColumnForm("number").number_of("-"))
    assert ColumnForm("category", ("-", "a")).number_of("-") == 0


def test_words_have_the_number_of_their_place_and_others_come_last() -> None:
    form = ColumnForm("category", ("3", "red", "true"))
    assert [form.number_of(cell) for cell in (" red ", 3, 3.0, True, "blue", "Red")] == [1, 0, 0, 2, 3, 3]


@pytest.mark.parametrize(
    ("cell", "number"),
    [("Yes", 1), ("t", 1), ("FALSE", 0), ("n", 0), ("1", 1), (0, 0), (True, 1), (False, 0)],
)
def test_booleans(cell: object, number: float) -> None:
    assert ColumnForm("boolean").number_of(cell) == number


@pytest.mark.parametrize(
    ("cell", "date_format", "days"),
    [
        ("2024-12-31", "iso", DAY),
        ("2024-12-31T12:00:00Z", "iso", DAY + 0.5),
        ("31.12.2024", "%d.%m.%Y", DAY),
        ("12/31/2024 06:00", "%m/%d/%Y %H:%M", DAY + 0.25),
        (date(2024, 12, 31), "iso", DAY),
        ("2025-W01-2", "iso", DAY),
        ("2025W01", "iso", DAY - 1),
        ("20241231T0200+02", "iso", DAY),
        ("0001-01-01T00:00+01:00", "iso", -719_162 - 1 / 24),
        (datetime(2024, 12, 31, 18, tzinfo=UTC), "iso", DAY + 0.75),
        (datetime(2024, 12, 31, 2, tzinfo=timezone(timedelta(hours=2))), "iso", DAY),
        ("1969-12-31", "iso", -1),
    ],
)
def test_dates_are_days_since_1970(cell: object, date_format: str, days: float) -> None:
    assert ColumnForm("date", date_format=date_format).number_of(cell) == days


@pytest.mark.parametrize(
    ("form", "cell", "message"),
    [
        (ColumnForm(), "old", "expected a number, got 'old'"),
        (ColumnForm(), True, "expected a number, got True"),
        (ColumnForm(decimal_comma=True), "1.5", "expected a number with a decimal comma, got '1.5'"),
        (ColumnForm("boolean"), "maybe", "expected true or false, got 'maybe'"),
        (ColumnForm("boolean"), 2, "expected true or false, got 2"),
        (
            ColumnForm("date"),
            "31.12.2024",
            "expected a date as ISO 8601, such as 2024-12-31, got '31.12.2024'",
        ),
        (ColumnForm("date", date_format="%d.%m.%Y"), "2024-12-31", "expected a date as %d.%m.%Y, got"),
        (ColumnForm("date"), 20240101, "expected a date"),
        # datetime.fromisoformat reads these, or does so in newer versions of Python
        (ColumnForm("date"), "2024-12-31_06:00", "expected a date"),
        (ColumnForm("date"), "2024-12-31T24:00", "expected a date"),
        (ColumnForm("date"), "2024-12-31T06:00+02:00:30", "expected a date"),
        (ColumnForm(), "x" * 100, "got 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."),
    ],
)
def test_other_cells_are_errors_that_say_what_was_expected(
    form: ColumnForm, cell: object, message: str
) -> None:
    with pytest.raises(CellError) as caught:
        form.number_of(cell)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("form", "number", "text"),
    [
        (ColumnForm(), 1.25, "1.25"),
        (ColumnForm("boolean"), 1, "true"),
        (ColumnForm("category", ("a", "b")), 1, "b"),
        (ColumnForm("category", ("a", "b")), 2, "another word"),
        (ColumnForm("date"), DAY, "2024-12-31"),
        (ColumnForm("date"), DAY + 0.5, "2024-12-31 12:00"),
    ],
)
def test_cells_are_written_for_people(form: ColumnForm, number: float, text: str) -> None:
    assert cell_text(form, number) == text
