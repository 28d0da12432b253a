"""What a search found: everything that is shown and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tune.candidates import Candidate
from tune.decision import Decision
from tune.measurements import Trial
from tune.model_under_test import Subject
from tune.plan import Plan


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate: the medians of its trials, how much it does beside the base, and how many trials."""

    candidate: Candidate
    trial: Trial
    gain: float
    times: int

    @property
    def kept(self) -> bool:
        """Whether it failed in nothing, at any number of users."""
        return not any(one.failures for one in self.trial)


@dataclass(frozen=True, slots=True)
class Lower:
    """The model in fewer bits, with the best settings, beside the file that is served."""

    precision: str
    gain: float
    noise: float
    trial: Trial

    @property
    def better(self) -> bool:
        """Whether it is faster by more than noise, and fails in nothing."""
        return self.gain > 1 + self.noise and not any(one.failures for one in self.trial)


@dataclass(frozen=True, slots=True)
class Found:
    """One search that is over."""

    plan: Plan
    subject: Subject
    base: Candidate
    decision: Decision
    lines: tuple[Line, ...]  # the best first
    lower: tuple[Lower, ...]
    notes: tuple[str, ...]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    ended: datetime
    seconds: int  # of each load
