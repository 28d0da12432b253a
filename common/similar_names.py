"""Finds the name that somebody probably meant, for a misspelled column or option.

Columns of a table that a model does not read are allowed, and columns that may be blank may be left out. A
misspelled column would be both, and the model would answer for a blank: `misspelled` finds such pairs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

# characters and names that are compared to find a similar name, in less than 10 ms
MAX_COMPARED_LENGTH = 60
MAX_COMPARED_NAMES = 200
# missing columns times other columns that are compared, in less than 100 ms
MAX_COMPARED_PAIRS = 5000
# Ratios of difflib. A hint may be wrong, as it only adds to an error; a resemblance is an error by itself.
HINT_RATIO, RESEMBLANCE_RATIO = 0.6, 0.8

SEPARATORS = re.compile(r"[\s_-]+")
DIGITS = re.compile(r"\d+")


def similar_name(name: str, names: Sequence[str], ratio: float = HINT_RATIO) -> str | None:
    """The name that is most like this one, apart from case, spaces, `_` and `-`; None if none is alike."""
    spellings = {_plain(other): other for other in names[:MAX_COMPARED_NAMES]}
    similar = difflib.get_close_matches(_plain(name), spellings, 1, ratio)
    return spellings[similar[0]] if similar else None


def misspelled(missing: Sequence[str], others: Iterable[str]) -> dict[str, str]:
    """For each missing column that one of the other columns resembles, this other column.

    Names whose numbers differ, such as `sensor_1` and `sensor_2`, are different columns.
    """
    found = {}
    candidates = list(dict.fromkeys(others))
    equal = {_plain(other): other for other in candidates}
    budget = MAX_COMPARED_PAIRS
    for name in missing:
        similar = equal.get(_plain(name))
        if similar is None and budget > 0:
            alike = [other for other in candidates[:budget] if _same_digits(name, other)]
            budget -= len(candidates)
            similar = similar_name(name, alike, RESEMBLANCE_RATIO)
        if similar is not None:
            found[name] = similar
    return found


def misspelled_text(missing: Sequence[str], others: Iterable[str]) -> str:
    """Which column is probably misspelled, as the words of an error; empty if none is."""
    for name, other in misspelled(missing, others).items():
        return (
            f"expected a column {name!r}, got {other[:MAX_COMPARED_LENGTH]!r}: did you mean it? Rename it, "
            f"or, if it is another, add {name!r} with blanks"
        )
    return ""


def _plain(name: str) -> str:
    text = name[:MAX_COMPARED_LENGTH].casefold()
    return SEPARATORS.sub("", text) or text


def _same_digits(name: str, other: str) -> bool:
    digits, others = DIGITS.findall(name), DIGITS.findall(other[:MAX_COMPARED_LENGTH])
    return not digits or not others or digits == others
