"""What loading a server gave: figures for each number of users, and how those of two servers compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Figures:
    """Of so many users: good answers a second, seconds of latency, and why it does not count as good."""

    users: int
    rate: float
    p50: float | None
    p99: float | None
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: dict[str, Any]) -> Self:
        """From the `report.json` of `turnpike loadtest`."""
        total = report["total"]
        return cls(
            users=report["load"]["users"],
            rate=total["rate"],
            p50=total["p50"],
            p99=total["p99"],
            failures=tuple(report["verdict"]["failures"]),
            notes=tuple(report["notes"]),
        )


# one trial: figures for each number of users, in the same order for every candidate
Trial = tuple[Figures, ...]


def gain(trial: Trial, beside: Trial) -> float:
    """How many times as much one does as the other: the geometric mean over the numbers of users.

    Each number of users weighs alike, whatever the rates are.
    """
    return mean([_ratio(one.rate, other.rate) for one, other in zip(trial, beside, strict=True)])


def mean(ratios: Sequence[float]) -> float:
    """The geometric mean, in which twice and half are one."""
    if not all(ratios):
        return 0.0
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def kept(trials: Sequence[Trial]) -> tuple[bool, ...]:
    """For each number of users, whether most of the trials failed in nothing."""
    return tuple(2 * sum(not one.failures for one in column) > len(column) for column in _columns(trials))


def middle(trials: Sequence[Trial]) -> Trial:
    """The medians of several trials, and whether most of them were good."""
    return tuple(
        Figures(
            users=column[0].users,
            rate=median(one.rate for one in column),
            p50=_median([one.p50 for one in column]),
            p99=_median([one.p99 for one in column]),
            failures=() if good else tuple(dict.fromkeys(why for one in column for why in one.failures)),
            notes=tuple(dict.fromkeys(note for one in column for note in one.notes)),
        )
        for column, good in zip(_columns(trials), kept(trials), strict=True)
    )


def _columns(trials: Sequence[Trial]) -> list[Trial]:
    return list(zip(*trials, strict=True))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _ratio(rate: float, other: float) -> float:
    # a server that answers nothing is infinitely slower; beside one, anything is as good as it is
    return rate / other if other else max(rate, 1.0)
