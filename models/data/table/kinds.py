"""Finds out what each column of a table holds: numbers, words, dates, or nothing to learn from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Any, Literal

from turnpike.common.columns import (
    FALSE,
    ISO,
    KINDS,
    TRUE,
    ColumnForm,
    in_words,
    is_blank,
    parse_date,
    parse_number,
    word_of,
)

# why a column is left out
Useless = Literal["constant", "id", "text"]

# words that a category may have; a column with more is free text
MAX_CATEGORIES = 100
# each word of a category stands in this many rows on average, or the column is free text or an id
MIN_ROWS_PER_CATEGORY = 2
# with fewer rows, all numbers of a column may be distinct by chance
MIN_ROWS_OF_IDS = 20
ID_NAME = re.compile(
    r"(^|[_\s.-])(id|ids|index|key|uuid|guid|row|rownames|unnamed)([_\s.:-]|\d|$)", re.IGNORECASE
)
CAMEL_ID = re.compile(r"[a-z]I[dD]$")  # as in userId, and not as in valid
CODE_NAME = re.compile(
    r"(^|[_\s.-])(zip|zipcode|postal|postcode|plz|fips|iban|phone|isbn|ssn)([_\s.-]|code|no|number|$)",
    re.IGNORECASE,
)
# with this share of numbers, and this many different ones, the other values of a column are mistakes
NUMBERS_SHARE = 0.9
MIN_DISTINCT_NUMBERS = 20
LEADING_ZERO = re.compile(r"0\d+")
AFFIXES = ("%", "$", "€", "£", "¥")
DATE_FORMATS = (
    ISO,
    "%Y/%m/%d",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%d.%m.%Y",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y-%m",
    "%Y/%m",
    "%b %Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%b %d %Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)
# formats that read the same texts as other days
DAY_AND_MONTH = {
    form: form.replace(f"%d{mark}%m", f"%m{mark}%d")
    for mark in "/-"
    for form in DATE_FORMATS
    if form.startswith(f"%d{mark}%m")
}


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Attributes:
        name: Its name.
        form: How its cells become numbers; None if it is left out.
        useless: Why it is left out, if its cells are no reason to keep it.
        blanks: The number of cells without a value, also in rows that are left out.
        distinct: The number of different values.
        note: What is special about it, in words.
        problem: What has to be decided before it can be used, in words, with the remedy.
    """

    name: str
    form: ColumnForm | None
    useless: Useless | None = None
    blanks: int = 0
    distinct: int = 0
    note: str = ""
    problem: str = ""


def kind_of_column(
    name: str, cells: Sequence[Any], delimiter: str = ",", places: Sequence[str] = ()
) -> Column:
    """What a column holds, by its cells and its name.

    Args:
        name: Its name.
        cells: Texts, or the values of a Parquet file.
        delimiter: What stands between the cells of the file. With another one than a comma, a comma in a
            number stands before its decimals if all of them allow that.
        places: Names each cell in messages.
    """
    strong = [cell for cell in cells if not is_blank(cell, "category")]
    values = [cell for cell in strong if not is_blank(cell, "number")]
    distinct = len(set(map(str, strong)))
    if distinct <= 1 and (distinct == 0 or len(strong) == len(cells)):
        what = "no values" if distinct == 0 else f"always {in_words(strong[0])}"
        return Column(name, None, "constant", len(cells) - len(strong), distinct, what)
    if not name:
        return Column(name, None, "id", len(cells) - len(strong), distinct, "has no name")
    form = _boolean(values) or numeric_form(values, delimiter) or date_form(values)
    if form is not None:
        return _checked(name, form, values, len(cells) - len(values), len(set(map(str, values))))
    column = _words(name, strong, len(cells) - len(strong), distinct)
    return replace(column, problem=mistakes(name, cells, places))


def mistakes(name: str, cells: Sequence[Any], places: Sequence[str] = ()) -> str:
    """Says which cells are no numbers if nearly all of a column's are; "" if the column has words."""
    wrong, numbers, first = 0, set(), 0
    rows = 0
    for row, cell in enumerate(cells):
        if is_blank(cell, "number"):
            continue
        rows += 1
        number = parse_number(cell) if isinstance(cell, str) else None
        if number is not None:
            numbers.add(number)
            continue
        first = first if wrong else row
        wrong += 1
    if not wrong or wrong > (1 - NUMBERS_SHARE) * rows or len(numbers) < MIN_DISTINCT_NUMBERS:
        return ""
    where = f" in {places[first]}" if places else ""
    return (
        f"{wrong:,} of {rows:,} values {'is no number' if wrong == 1 else 'are no numbers'}, the first is "
        f"{in_words(cells[first])}{where}: correct or empty such cells, or --kind {name}=category, "
        f"or --drop {name}"
    )


def _boolean(values: Sequence[Any]) -> ColumnForm | None:
    words = {str(value).casefold() for value in values}
    return ColumnForm("boolean") if words and words <= TRUE | FALSE else None


def numeric_form(values: Sequence[Any], delimiter: str = ",") -> ColumnForm | None:
    """How values that are no blanks are written as numbers; None if one of them is none."""
    if not values:
        return None
    if not any(isinstance(value, str) for value in values):
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        return ColumnForm() if numbers else None
    texts = [str(value) for value in values]
    first = next((affix for affix in AFFIXES if texts[0].startswith(affix) or texts[0].endswith(affix)), "")
    affix = first if all(text.startswith(first) or text.endswith(first) for text in texts) else ""
    has_comma = any("," in text for text in texts)
    styles = [False, True] if delimiter == "," or not has_comma else [True, False]
    for decimal_comma in styles:
        if all(parse_number(text, decimal_comma=decimal_comma, affix=affix) is not None for text in texts):
            return ColumnForm("number", decimal_comma=decimal_comma, affix=affix)
    return None


def date_form(values: Sequence[Any]) -> ColumnForm | None:
    """How values that are no blanks are written as dates; None if one of them is none."""
    if values and all(isinstance(value, date) for value in values):
        return ColumnForm("date")
    texts = [value for value in values if isinstance(value, str)]
    if not texts or len(texts) < len(values):
        return None
    for form in DATE_FORMATS:
        if all(parse_date(text, form) is not None for text in texts):
            return ColumnForm("date", date_format=form)
    return None


def _checked(name: str, form: ColumnForm, values: Sequence[Any], blanks: int, distinct: int) -> Column:
    """A column of numbers, booleans or dates, unless it only names the rows or things."""
    if form.kind == "number" and distinct == len(values) >= MIN_ROWS_OF_IDS:
        numbers = [form.number_of(value) for value in values]
        # years count up, too, but not from the first row
        counts = numbers[0] in (0, 1) and all(b - a == 1 for a, b in pairwise(numbers))
        if counts or (
            (ID_NAME.search(name) or CAMEL_ID.search(name)) and all(number.is_integer() for number in numbers)
        ):
            why = "counts the rows" if counts else "each row has its own"
            return Column(name, None, "id", blanks, distinct, why)
    problem = note = ""
    if form.kind == "number" and _names_things(name, values):
        problem = (
            f"its numbers may be names, such as postal codes: --kind {name}=category or "
            f"--kind {name}=number says which, and --drop {name} leaves it out"
        )
    other = DAY_AND_MONTH.get(form.date_format) if form.kind == "date" else None
    if other is not None and all(parse_date(str(value), other) is not None for value in values):
        problem = (
            f"days and months may be exchanged: --kind {name}=date:{form.date_format} or {other} says which"
        )
    if form.decimal_comma:
        note = "decimal comma"
    return Column(name, form, None, blanks, distinct, note or form.affix, problem)


def _names_things(name: str, values: Sequence[Any]) -> bool:
    """Whether numbers have a leading zero, or the name of a code."""
    texts = [str(value) for value in values]
    return any(LEADING_ZERO.fullmatch(text) for text in texts) or (
        CODE_NAME.search(name) is not None and all(text.isdecimal() for text in texts)
    )


def _words(name: str, values: Sequence[Any], blanks: int, distinct: int) -> Column:
    counts = Counter(map(word_of, values))
    rows = len(values)
    if distinct == rows >= MIN_ROWS_OF_IDS and not any(" " in word for word in counts):
        return Column(name, None, "id", blanks, distinct, "each row has its own")
    if distinct > MAX_CATEGORIES or distinct * MIN_ROWS_PER_CATEGORY > rows + blanks >= MIN_ROWS_OF_IDS:
        note = f"{distinct:,} different texts"
        if numbers := sum(parse_number(word) is not None for word in counts):
            first = next(word for word in counts if parse_number(word) is None)
            note = f"{numbers:,} numbers, and words such as {in_words(first)}"
        return Column(name, None, "text", blanks, distinct, note)
    return Column(name, ColumnForm("category", categories=tuple(sorted(counts))), None, blanks, distinct)


def column_of_kind(name: str, cells: Sequence[Any], chosen: str, delimiter: str = ",") -> Column:
    """A column of a kind that the user chose: "number", "boolean", "category", "date" or "date:FORMAT".

    Raises:
        ValueError: No such kind, or a cell that is none. The message says what was expected.
    """
    kind, _, date_format = chosen.partition(":")
    if kind not in KINDS or (date_format and kind != "date"):
        raise ValueError(f"expected {', '.join(KINDS)} or date:FORMAT, got {chosen!r}")
    values = [cell for cell in cells if not is_blank(cell, kind)]
    blanks, distinct = len(cells) - len(values), len(set(map(str, values)))
    if kind == "category":
        words = sorted({word_of(value) for value in values})
        return Column(name, ColumnForm("category", categories=tuple(words)), None, blanks, distinct)
    form = None
    if kind == "number":
        form = numeric_form(values, delimiter)
    elif kind == "date":
        form = ColumnForm("date", date_format=date_format) if date_format else date_form(values)
    form = form or ColumnForm(kind)
    for value in values:
        form.number_of(value)
    return Column(name, form, None, blanks, distinct)


def kept(column: Column, cells: Sequence[Any]) -> Column:
    """A column that seems to say nothing, and is to be used."""
    values = [cell for cell in cells if not is_blank(cell, "category")]
    form = numeric_form(values) or ColumnForm(
        "category", categories=tuple(sorted({word_of(value) for value in values}))
    )
    return Column(column.name, form, None, column.blanks, column.distinct)
