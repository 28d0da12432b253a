"""Checks the names of features that a client sends, as keys of a row or as the header of a table."""

from __future__ import annotations

from collections.abc import Sequence

from turnpike.common.similar_names import misspelled_text, similar_name
from turnpike.service.artifact.signature import Signature
from turnpike.service.codec.json_document import quoted
from turnpike.service.errors import RequestError

MAX_LISTED = 3


def expect_features(names: Sequence[str], features: Sequence[str], where: str) -> None:
    """Raise RequestError unless the names are the model's features, in any order, and no others."""
    known = set(features)
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    if unknown:
        given = set(names)
        missing = [name for name in features if name not in given]
        raise RequestError(
            f"{where}: expected only the model's {len(features)} features, got {_listed(unknown)}"
            f"{_suggestions(unknown, missing)}"
        )
    _expect_all(names, features, features, where)


def expect_columns(names: Sequence[str], signature: Signature, where: str) -> list[str]:
    """Raise RequestError unless a table has the model's features, in any order. It may have other columns.

    Columns that may be blank may be missing, unless another column has almost the name of one: it is probably
    misspelled. Returns the features that are there.
    """
    features, given = signature.features, set(names)
    found = [name for name in features if name in given]
    optional = {column.name for column in signature.columns if column.blanks} if found else set()
    _expect_all(names, [name for name in features if name not in optional], features, where)
    if len(found) < len(features):
        target = None if signature.target is None else signature.target.name
        known = {*features, target}
        others = [name for name in names if name not in known]
        if text := misspelled_text([name for name in features if name not in given], others):
            raise RequestError(f"{where}: {text}")
    return found


def _expect_all(names: Sequence[str], needed: Sequence[str], features: Sequence[str], where: str) -> None:
    """Raise RequestError unless all of the needed features are among the names, and no name comes twice."""
    given = set(names)
    if missing := [name for name in needed if name not in given]:
        unknown = [name for name in dict.fromkeys(names) if name not in set(features)]
        raise RequestError(
            f"{where}: expected all {len(features)} features of the model, and {_listed(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing{_suggestions(unknown, missing)}"
        )
    if len(names) != len(given):
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise RequestError(f"{where}: expected each feature once, got {quoted(repeated)} twice")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(map(quoted, names[:MAX_LISTED])) + (f" and {more} more" if more > 0 else "")


def _suggestions(unknown: Sequence[str], missing: Sequence[str]) -> str:
    """For the first unknown names, the missing features that are spelled like them."""
    if len(unknown) == 1:
        meant = similar_name(unknown[0], missing)
        return "" if meant is None else f"; did you mean {quoted(meant)}?"
    found = [
        f"or {quoted(name)}, did you mean {quoted(meant)}?"
        for name in unknown[:MAX_LISTED]
        if (meant := similar_name(name, missing)) is not None
    ]
    return "; f" + " F".join(found) if found else ""
