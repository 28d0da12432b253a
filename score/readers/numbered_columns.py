"""Finds the numbered columns of a table, such as `pixel_0` to `pixel_63`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product


def numbered_columns(names: Sequence[str], width: int | None) -> list[str]:
    """The `width` columns with a common name and the numbers from 0 or 1 on, by their numbers.

    A name may have several numbers, as in `pixel_0_0` to `pixel_7_7`. The result is empty if there are no
    such columns, or several groups of them.
    """
    found = [
        [group[numbers] for numbers in sorted(group)]
        for group in _groups(names)
        if len(group) == width and _is_grid(set(group))
    ]
    return found[0] if len(found) == 1 else []


def incomplete_columns(names: Sequence[str], width: int | None) -> list[str]:
    """Numbered columns that are most of a table, or of `width`, but neither: some are probably missing."""
    largest = max(_groups(names), key=len, default={})
    is_most = 2 * len(largest) > (width or len(names))
    return list(largest.values()) if is_most and len(largest) not in (width, len(names)) else []


def _groups(names: Sequence[str]) -> list[dict[tuple[int, ...], str]]:
    """The columns that differ by numbers alone, by these."""
    groups: dict[str, dict[tuple[int, ...], str]] = {}
    for name in names:
        if numbers := re.findall(r"\d+", name):
            groups.setdefault(re.sub(r"\d+", "#", name), {})[tuple(map(int, numbers))] = name
    return list(groups.values())


def _is_grid(places: set[tuple[int, ...]]) -> bool:
    """Whether the numbers at each position go from 0 or 1 on, and come in all combinations."""
    axes = [sorted(set(axis)) for axis in zip(*places, strict=True)]
    return all(axis[0] in (0, 1) and axis[-1] - axis[0] + 1 == len(axis) for axis in axes) and places == set(
        product(*axes)
    )
