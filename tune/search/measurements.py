"""Results of loading a server with each number of users, and how those of two servers compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from turnpike.loadtest.measure.summary import MAX_BUSY

SENDERS_BUSY = (
    "The sending processes were busy nearly all of the time: the server may be faster than measured, and "
    "more workers may help if the users are on other machines."
)


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """The result of one load with a number of users."""

    users: int
    rate: float  # good answers per second
    p50: float | None  # seconds
    p99: float | None  # seconds
    failures: tuple[str, ...] = ()  # why the load failed
    notes: tuple[str, ...] = ()

    @classmethod
    def from_report(cls, report: dict[str, Any]) -> Self:
        """From the document in loadtest's `loadtest.json`."""
        total = report["total"]
        return cls(
            users=report["load"]["users"],
            rate=total["rate"],
            p50=total["p50"],
            p99=total["p99"],
            failures=tuple(report["verdict"]["failures"]),
            notes=(SENDERS_BUSY,) if (report["busy"] or 0.0) > MAX_BUSY else (),
        )


# one trial of a candidate: figures for each number of users, always in the same order
Trial = tuple[LoadFigures, ...]


def gain(trial: Trial, reference: Trial) -> float:
    """How many times the throughput of the reference a trial has: the geometric mean over numbers of users.

    Each number of users counts equally, however different the rates are.
    """
    return geometric_mean(
        [_ratio(load.rate, other.rate) for load, other in zip(trial, reference, strict=True)]
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean in which twice and half cancel out; 0 if a ratio is 0."""
    if not all(ratios):
        return 0.0
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def keeps_slo(trials: Sequence[Trial]) -> tuple[bool, ...]:
    """For each number of users, whether more than half of the trials had no failure."""
    return tuple(
        2 * sum(not figures.failures for figures in column) > len(column) for column in _by_users(trials)
    )


def missed_users(trial: Trial) -> tuple[int, ...]:
    """The numbers of users at which a trial has a failure."""
    return tuple(figures.users for figures in trial if figures.failures)


def median_trial(trials: Sequence[Trial]) -> Trial:
    """The medians of several trials; has failures where at least half of them failed."""
    return tuple(
        LoadFigures(
            users=column[0].users,
            rate=median(figures.rate for figures in column),
            p50=_median([figures.p50 for figures in column]),
            p99=_median([figures.p99 for figures in column]),
            failures=()
            if kept
            else tuple(dict.fromkeys(why for figures in column for why in figures.failures)),
            notes=tuple(dict.fromkeys(note for figures in column for note in figures.notes)),
        )
        for column, kept in zip(_by_users(trials), keeps_slo(trials), strict=True)
    )


def _by_users(trials: Sequence[Trial]) -> list[Trial]:
    """For each number of users, the figures of all trials."""
    return list(zip(*trials, strict=True))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _ratio(rate: float, other: float) -> float:
    # a server without good answers is infinitely slower; the best ratio then is the rate itself
    return rate / other if other else max(rate, 1.0)
