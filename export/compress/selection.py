"""Chooses the units to keep: the most important ones of all layers together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from export.source import Array

# the units that each layer keeps, by the name of its gate
Kept = dict[str, list[int]]

# tries of the search for the smallest share: each halves the range of the logarithm of the share
SEARCH_STEPS = 8
# the smallest share that the search tries
MIN_SHARE = 0.01


def most_important(importance: Mapping[str, Array], share: float) -> Kept:
    """The most important `share` of all units, ranked over all layers; a layer may keep none."""
    names = [(name, unit) for name, values in importance.items() for unit in range(len(values))]
    values = np.concatenate([np.asarray(array, np.float64) for array in importance.values()])
    count = round(share * len(values))
    kept: Kept = {name: [] for name in importance}
    # a stable sort: units of equal importance are kept in the order of the layers
    for index in np.sort(np.argsort(-values, kind="stable")[:count]):
        name, unit = names[index]
        kept[name].append(unit)
    return kept


def smallest_share(keeps_limit: Callable[[float], bool], on_step: Callable[[int, int], None]) -> float | None:
    """The smallest share of units that keeps a limit, found by bisection; None if even 1 breaks it.

    Args:
        keeps_limit: Tries a share.
        on_step: Is called with the number of tries done, and of all tries.
    """
    low, high = np.log(MIN_SHARE), 0.0
    if not keeps_limit(1.0):
        return None
    best = 1.0
    for step in range(SEARCH_STEPS):
        on_step(step, SEARCH_STEPS)
        middle = (low + high) / 2
        share = float(np.exp(middle))
        if keeps_limit(share):
            best, high = share, middle
        else:
            low = middle
    on_step(SEARCH_STEPS, SEARCH_STEPS)
    return best
