"""The columns of a table: what their cells mean, and the numbers that a network gets for them.

Training and service read cells by the same rules, which are in the manifest of an exported model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Literal, get_args

ColumnKind = Literal["number", "boolean", "category", "date"]
KINDS: tuple[ColumnKind, ...] = get_args(ColumnKind)

# cells without a value, in any case
BLANKS = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null"})
# cells without a value in a column whose other cells are numbers, booleans or dates; else they may be words
WEAK_BLANKS = BLANKS | {"none", "-", "--", "?", ".", "n.a."}
TRUE, FALSE = frozenset({"true", "yes", "t", "y"}), frozenset({"false", "no", "f", "n"})
# date formats beside those of datetime.strptime: any date and time of ISO 8601
ISO = "iso"
# what the dashboard's date_cells.js reads, too; datetime.fromisoformat alone reads more, and other texts
# in other versions of Python
ISO_PATTERN = re.compile(
    r"\d{4}(?:-\d\d-\d\d|\d{4}|-W\d\d(?:-\d)?|W\d\d\d?)"
    r"(?:[T ](?:[01]\d|2[0-3])(?::\d\d(?::\d\d(?:[.,]\d+)?)?|\d\d(?:\d\d(?:[.,]\d+)?)?)?"
    r"(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)
EPOCH = datetime(1970, 1, 1)
EPOCH_AT_UTC = EPOCH.replace(tzinfo=UTC)
SECONDS_PER_DAY = 86400.0

EXPONENT = r"(?:[eE][+-]?\d+)?"
GROUPS = r"\d{1,3}(?:[ \u00a0\u202f']\d{3})+"
WITH_POINT = re.compile(rf"[+-]?(?:\d+\.?\d*|\.\d+|(?:\d{{1,3}}(?:,\d{{3}})+|{GROUPS})(?:\.\d*)?){EXPONENT}")
WITH_COMMA = re.compile(rf"[+-]?(?:\d+,?\d*|,\d+|(?:\d{{1,3}}(?:\.\d{{3}})+|{GROUPS})(?:,\d*)?){EXPONENT}")
GROUP_SEPARATORS = re.compile(r"[ \u00a0\u202f']")
MAX_CELL_CHARACTERS = 40  # longer cells are cut in messages


class CellError(ValueError):
    """A cell that is no value of its column; the message says what was expected."""


@dataclass(frozen=True)
class ColumnForm:
    """How the cells of a column become numbers.

    Attributes:
        kind: What the column holds. A number stands for itself, a boolean for 0 or 1, a category for its
            place among `categories`, and a date for the days since 1970.
        categories: The words of a category. Any other word counts as one more, which was never seen.
        date_format: A format of `datetime.strptime`, or "iso".
        decimal_comma: Whether numbers have a comma before their decimals, as in 1.234,5.
        affix: What stands before or behind each number, such as "%" or "$".
    """

    kind: ColumnKind = "number"
    categories: tuple[str, ...] = ()
    date_format: str = ISO
    decimal_comma: bool = False
    affix: str = ""

    @cached_property
    def places(self) -> Mapping[str, float]:
        """The number of each word."""
        return {word: float(place) for place, word in enumerate(self.categories)}

    def number_of(self, cell: object) -> float:
        """The number for a cell: a text, or a value as JSON and Parquet have it. NaN stands for a blank.

        Raises:
            CellError: The cell is no value of this column.
        """
        if is_blank(cell, self.kind):
            return math.nan
        number = _READERS[self.kind](self, cell)
        if number is None:
            raise CellError(f"expected {self.expected}, got {in_words(cell)}")
        return number

    @property
    def expected(self) -> str:
        """What a cell has to be, in words."""
        if self.kind == "date":
            form = "ISO 8601, such as 2024-12-31" if self.date_format == ISO else self.date_format
            return f"a date as {form}"
        if self.kind == "number" and self.decimal_comma:
            return "a number with a decimal comma"
        return {"number": "a number", "boolean": "true or false", "category": "a word"}[self.kind]


def is_blank(cell: object, kind: ColumnKind) -> bool:
    """Whether a cell of such a column has no value."""
    if isinstance(cell, str):
        return cell.strip().casefold() in (BLANKS if kind == "category" else WEAK_BLANKS)
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def parse_number(text: str, *, decimal_comma: bool = False, affix: str = "") -> float | None:
    """The number in a text, with or without separators of thousands; None if it is none."""
    text = text.strip()
    if affix:
        text = text.removeprefix(affix).removesuffix(affix).strip()
    if not (WITH_COMMA if decimal_comma else WITH_POINT).fullmatch(text):
        return None
    plain = GROUP_SEPARATORS.sub("", text)
    return float(plain.replace(".", "").replace(",", ".") if decimal_comma else plain.replace(",", ""))


def parse_date(text: str, form: str) -> float | None:
    """The days since 1970, at UTC if the text has a zone; None if it is no date of this form."""
    if form == ISO and not ISO_PATTERN.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text) if form == ISO else datetime.strptime(text, form)
    except ValueError:
        return None
    return days_since_1970(moment)


def days_since_1970(moment: date) -> float:
    """The days since 1970-01-01, with a part of a day for the time."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    epoch = EPOCH if moment.tzinfo is None else EPOCH_AT_UTC
    return (moment - epoch).total_seconds() / SECONDS_PER_DAY


def date_text(moment: date, form: ColumnForm) -> str:
    """A date as the cells of this column have it, at UTC where they have no zone."""
    if form.kind != "date":
        return str(moment)
    if form.date_format == ISO:
        return moment.isoformat()
    if isinstance(moment, datetime) and moment.tzinfo is not None and "%z" not in form.date_format:
        moment = moment.astimezone(UTC)
    return moment.strftime(form.date_format)


def word_of(cell: object) -> str:
    """The word that a cell of a category stands for: 3.0 is 3, and true is true."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).lower() if isinstance(cell, bool) else str(cell).strip()


def cell_text(form: ColumnForm, number: float) -> str:
    """A cell that has this number, which is no blank, for people to read."""
    if form.kind == "category":
        place = int(number)
        return form.categories[place] if place < len(form.categories) else "another word"
    if form.kind == "boolean":
        return "true" if number else "false"
    if form.kind == "date":
        return (EPOCH + timedelta(days=number)).isoformat(" ", "minutes").removesuffix(" 00:00")
    return f"{number:.6g}"


def in_words(cell: object) -> str:
    """A cell as messages show it."""
    text = repr(cell)
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 3] + "..."


def _read_number(form: ColumnForm, cell: object) -> float | None:
    if isinstance(cell, str):
        return parse_number(cell, decimal_comma=form.decimal_comma, affix=form.affix)
    # a boolean is no number, although Python says so
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return float(cell)


def _read_boolean(_: ColumnForm, cell: object) -> float | None:
    if isinstance(cell, str):
        word = cell.strip().casefold()
        return 1.0 if word in TRUE else 0.0 if word in FALSE else _zero_or_one(parse_number(word))
    return _zero_or_one(cell)


def _zero_or_one(cell: object) -> float | None:
    return float(cell) if isinstance(cell, int | float) and cell in (0, 1) else None


def _read_category(form: ColumnForm, cell: object) -> float | None:
    return form.places.get(word_of(cell), float(len(form.categories)))


def _read_date(form: ColumnForm, cell: object) -> float | None:
    if isinstance(cell, date):
        return days_since_1970(cell)
    return parse_date(cell.strip(), form.date_format) if isinstance(cell, str) else None


_READERS: Mapping[ColumnKind, Callable[[ColumnForm, object], float | None]] = {
    "number": _read_number,
    "boolean": _read_boolean,
    "category": _read_category,
    "date": _read_date,
}
