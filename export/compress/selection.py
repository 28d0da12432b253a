"""Chooses the units to keep: the most important ones of all layers together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from turnpike.export.compress.agreement import AnswerComparison, points_lost
from turnpike.export.compress.graph.cut_graph import Kept
from turnpike.export.compress.layer_weights import weigh_layers
from turnpike.export.compress.trials import Cutter
from turnpike.export.compress.unit_changes import measure_changes
from turnpike.export.compress.whole_network import WholeNetwork
from turnpike.export.errors import CompressionError, UsageError
from turnpike.export.network import Array, Rows
from turnpike.export.steps import Steps

# tries of the search for the smallest share: each halves the range of the logarithm of the share
SEARCH_STEPS = 8
# the smallest share that the search tries
MIN_SHARE = 0.01


@dataclass(frozen=True)
class UnitChoice:
    """The units of a network to keep.

    Attributes:
        whole: The network with all of its units: the source, or what training made of it.
        cutter: Cuts its graph.
        kept: The units that each layer keeps.
        share: The share of all units that these are.
        checkpoint: The network as a checkpoint, if it was trained while its other units were shut.
    """

    whole: WholeNetwork
    cutter: Cutter
    kept: Kept
    share: float
    checkpoint: bytes | None = None


@dataclass(frozen=True)
class UnitRanking:
    """The units of a network, by their importance.

    Attributes:
        whole: The network with all of its units.
        cutter: Cuts its graph.
        importance: The importance of each unit, by the name of the gate.
    """

    whole: WholeNetwork
    cutter: Cutter
    importance: Mapping[str, Array]

    def choose(self, share: float) -> UnitChoice:
        """Choose the most important `share` of the units."""
        return UnitChoice(self.whole, self.cutter, most_important(self.importance, share), share)


def rank_units(whole: WholeNetwork, cutter: Cutter, rows: Rows) -> UnitRanking:
    """Rank the units by what they change on rows of data, made comparable between layers."""
    changes = measure_changes(whole.graph.model, cutter.layers, rows)
    return UnitRanking(whole, cutter, weigh_layers(cutter, changes, rows))


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


def search_share(ranking: UnitRanking, rows: Rows, max_drop: float, steps: Steps) -> float:
    """The smallest share of the units that loses at most `max_drop` points on rows of data."""
    cutter = ranking.cutter
    comparison = AnswerComparison(cutter.runtime, cutter.output, rows)
    if not comparison.is_judged:
        raise UsageError(
            f"--max-drop: expected an output with a number for each class, and {cutter.output!r} has none: "
            "use --keep"
        )

    def keeps_limit(share: float) -> bool:
        cut = cutter.cut(ranking.choose(share).kept)
        return points_lost(comparison, comparison.quality_of(cut.runtime)) <= max_drop

    share = smallest_share(keeps_limit, steps.listener.advanced)
    if share is None or share == 1.0:
        raise CompressionError(
            f"--max-drop: expected a share of the units that loses at most {max_drop:g} points, and each "
            "that was tried loses more"
        )
    return share


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
