"""Separates rows that cannot be scored from the others of their batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from turnpike.score.errors import RowsError
from turnpike.service.inference_types import Array


class BadRowsError(RowsError):
    """Rows that do not fit the model: for the index of each, a message with its place."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons[min(reasons)])
        self.reasons = reasons


def good_rows(
    count: int, convert: Callable[[Array], dict[str, Array]], bad: Mapping[int, str] | None = None
) -> tuple[dict[str, Array], dict[int, str]]:
    """The inputs of those rows that can be converted, and the reason for each other row.

    Args:
        count: How many rows there are.
        convert: Converts the rows of some indices. It raises a BadRowsError for positions among these, and
            is called again without them.
        bad: Rows that are known to be bad.
    """
    found = dict(bad or {})
    indices = np.delete(np.arange(count), list(found))
    while len(indices):
        try:
            return convert(indices), found
        except BadRowsError as error:
            found |= {int(indices[position]): reason for position, reason in error.reasons.items()}
            indices = np.delete(indices, list(error.reasons))
    return {}, found
