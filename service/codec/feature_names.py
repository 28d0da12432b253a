"""Checks the names of features that a client sends, as keys of a row or as the header of a table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from turnpike.service.codec.json_document import quoted
from turnpike.service.errors import RequestError

MAX_LISTED = 3
# characters and names that are compared to find a similar name, in less than 10 ms
MAX_COMPARED_LENGTH = 60
MAX_COMPARED_NAMES = 200


def expect_features(
    names: Sequence[str], features: Sequence[str], where: str, *, allow_others: bool = False
) -> None:
    """Raise RequestError unless the names are the model's features, in any order, and others if allowed."""
    known, given = set(features), set(names)
    missing = [name for name in features if name not in given]
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown and not allow_others:
        raise RequestError(
            f"{where}: expected only the model's {len(features)} features, got {_listed(unknown)}"
            f"{_suggestion(unknown, missing)}"
        )
    if missing:
        raise RequestError(
            f"{where}: expected all {len(features)} features of the model, and {_listed(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing{_suggestion(unknown, missing)}"
        )
    if len(names) != len(given):
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise RequestError(f"{where}: expected each feature once, got {quoted(repeated)} twice")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(map(quoted, names[:MAX_LISTED])) + (f" and {more} more" if more > 0 else "")


def _suggestion(unknown: Sequence[str], missing: Sequence[str]) -> str:
    """A missing feature that is spelled like an unknown name."""
    spellings = {name.casefold(): name for name in missing[:MAX_COMPARED_NAMES]}
    for name in unknown[:MAX_LISTED]:
        text = name[:MAX_COMPARED_LENGTH].casefold()
        if similar := difflib.get_close_matches(text, spellings, 1):
            got = f"for {quoted(name)}, " if len(unknown) > 1 else ""
            return f"; {got}did you mean {quoted(spellings[similar[0]])}?"
    return ""
