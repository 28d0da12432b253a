"""The first thing in which two sets of settings differ, said so that a person can act on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 60


def difference(now: Mapping[str, Any], then: Mapping[str, Any], ignored: Iterable[str] = ()) -> str | None:
    """'width 8, and 9 is asked for now', or None where all is the same.

    `then` may have been through JSON, which knows lists and no tuples: both are compared as it has them.
    """
    plain = json.loads(json.dumps(dict(now)))
    before = json.loads(json.dumps(dict(then)))
    for name in sorted((plain.keys() | before.keys()) - set(ignored)):
        if plain.get(name) != before.get(name):
            return f"{name} {_short(before.get(name))}, and {_short(plain.get(name))} is asked for now"
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
