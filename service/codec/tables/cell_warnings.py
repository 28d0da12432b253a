"""Warns of cells that a network can read, but that its training did not have.

These are numbers and dates outside of training's range, and words that training has not seen. Blanks in a
column that had none are no warning: they are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from turnpike.common.columns import cell_text, in_words, word_of
from turnpike.common.similar_names import misspelled
from turnpike.service.artifact.signature import Column, Signature
from turnpike.service.inference_types import Array

# warnings in one answer
MAX_LISTED = 20
# characters of a cell in a warning
MAX_CELL_CHARACTERS = 80
NO_WARNINGS = (
    "--warnings: expected a model of a table with words, dates, booleans or blanks, "
    "and this one has plain numbers"
)
OUTSIDE, UNSEEN = "outside_range", "unseen_word"


@dataclass(frozen=True)
class CellWarnings:
    """The cells of a request that training did not have: their rows and columns, row by row."""

    places: Array
    cells: Sequence[Sequence[object]]
    columns: Sequence[Column]

    def listed(self) -> dict[str, Any]:
        """The members of an answer: `warnings`, at most 20 of them, and the number of `more_warnings`."""
        found = [
            {
                "row": row,
                "column": self.columns[place].name,
                "value": _short(self.cells[row][place]),
                "what": warning_text(self.columns[place], self.cells[row][place]),
            }
            for row, place in self.places[:MAX_LISTED].tolist()
        ]
        more = len(self.places) - len(found)
        return {"warnings": found, **({"more_warnings": more} if more else {})}

    def counts(self) -> Mapping[str, int]:
        """The number of warnings of each kind."""
        kinds = [_kind(column) for column in self.columns]
        return Counter(kinds[place] for place in self.places[:, 1].tolist())


def cell_warnings(
    numbers: Array, cells: Sequence[Sequence[object]], signature: Signature
) -> CellWarnings | None:
    """The warnings for rows of cells and their numbers, None if there are none."""
    found = _is_new(numbers, signature)
    return CellWarnings(np.argwhere(found), cells, signature.columns) if found.any() else None


def row_warnings(numbers: Array, signature: Signature, cells: Sequence[Sequence[object]] = ()) -> list[str]:
    """For each row of numbers the warnings as a text, which is empty for most.

    If the cells are known too, a word that training has not seen is compared with those that it has.
    """
    texts: list[list[str]] = [[] for _ in numbers]
    for row, place in np.argwhere(_is_new(numbers, signature)).tolist():
        column = signature.columns[place]
        value = "" if _kind(column) == UNSEEN else f"{cell_text(column.form, float(numbers[row, place]))} is "
        texts[row].append(
            f"{column.name}: {value}{warning_text(column, cells[row][place] if cells else None)}"
        )
    return ["; ".join(parts) for parts in texts]


def warning_text(column: Column, cell: object = None) -> str:
    """What is wrong with a cell of this column, in words; the cell itself may be unknown."""
    if _kind(column) == UNSEEN:
        meant = (
            None
            if cell is None
            else _similar_word(word_of(cell)[:MAX_CELL_CHARACTERS], column.form.categories)
        )
        return "a word that training has not seen" + (f" (did you mean {in_words(meant)}?)" if meant else "")
    low, high = (cell_text(column.form, bound) for bound in (column.low, column.high))
    return f"outside of training's range, {low} to {high}"


@lru_cache(maxsize=1000)
def _similar_word(word: str, words: tuple[str, ...]) -> str | None:
    """The word of a category that differs from this one by case, spaces or a slip only."""
    return misspelled([word], words).get(word)


def _is_new(numbers: Array, signature: Signature) -> Array:
    """Which cells training did not have; no blanks, as NaN is neither below nor above."""
    low, high = signature.cell_bounds
    outside: Array = (numbers < low) | (numbers > high)
    return outside


def _kind(column: Column) -> str:
    return UNSEEN if column.form.kind == "category" else OUTSIDE


def _short(cell: object) -> object:
    return (
        f"{cell[: MAX_CELL_CHARACTERS - 3]}..."
        if isinstance(cell, str) and len(cell) > MAX_CELL_CHARACTERS
        else cell
    )
