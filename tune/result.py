"""The result of a search: everything that is shown and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from turnpike.tune.plan import TunePlan
from turnpike.tune.search.candidates import Candidate
from turnpike.tune.search.measurements import Trial, missed_users
from turnpike.tune.search.settings_search import Decision
from turnpike.tune.trial.tuned_model import TunedModel


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """The result of one candidate: the medians of its trials, and its gain over the base."""

    candidate: Candidate
    trial: Trial
    gain: float
    trial_count: int

    @property
    def keeps_slo(self) -> bool:
        """Whether it has no failure at any number of users."""
        return not missed_users(self.trial)


@dataclass(frozen=True, slots=True)
class Alternative:
    """The throughput of an alternative, compared with the served file at the best settings.

    It is a file of lower precision, or (with a `candidate`) the same file on OpenVINO.
    """

    precision: str
    gain: float
    noise: float
    trial: Trial
    candidate: Candidate | None = None

    @property
    def name(self) -> str:
        return f"{self.precision} on OpenVINO" if self.candidate else self.precision


@dataclass(frozen=True, slots=True)
class TuneResult:
    """A finished search."""

    plan: TunePlan
    model: TunedModel
    base: Candidate
    decision: Decision
    candidates: tuple[CandidateResult, ...]  # the best first
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    ended: datetime
    load_seconds: int  # measured seconds of each load

    def slo_losses(self, alternative: Alternative) -> tuple[int, ...]:
        """The numbers of users at which an alternative misses the SLO, while the best settings keep it.

        Empty if it keeps the SLO at as many numbers of users as they do; the search judges alike.
        """
        best_missed = missed_users(self.candidates[0].trial)
        missed = missed_users(alternative.trial)
        if len(missed) <= len(best_missed):
            return ()
        return tuple(users for users in missed if users not in best_missed)
