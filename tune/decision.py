"""Which of the candidates is best, by figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tune.candidates import Candidate
from tune.measurements import Trial, gain, kept, mean

# gains below this share are nothing, however alike two measurements of the same came out
LEAST_NOISE = 0.02
# above this share something else is going on
LOUD = 0.15


@dataclass(frozen=True, slots=True)
class Round:
    """Trials that followed on each other: the base's own before and after those of the others."""

    before: Trial
    others: Mapping[Candidate, Trial]
    after: Trial

    @property
    def drift(self) -> float:
        """How far the base is from itself, as a share."""
        ratio = gain(self.after, self.before)
        return max(ratio, 1 / ratio) - 1 if ratio else 1.0

    def gain(self, candidate: Candidate) -> float:
        """How many times as much it does as the base around it."""
        trial = self.others[candidate]
        return mean([gain(trial, self.before), gain(trial, self.after)])


@dataclass(frozen=True, slots=True)
class Decision:
    """The best; what each does beside the base; and which share of a difference is noise."""

    best: Candidate
    gains: Mapping[Candidate, float]
    noise: float
    kept: bool  # whether the best fails in nothing, at any number of users


def decide(base: Candidate, rounds: Sequence[Round], trials: Mapping[Candidate, Sequence[Trial]]) -> Decision:
    """The fastest of those that keep most. Nothing is better than the base that is so by noise alone, and of
    those that are as fast as the fastest but for noise the one that is most like the base is best.

    `trials` are all that there are of each, by which it is told what a candidate keeps.
    """
    noise = max([LEAST_NOISE, *(one.drift for one in rounds)])
    names = dict.fromkeys(candidate for one in rounds for candidate in one.others)
    gains = {base: 1.0} | {name: mean([one.gain(name) for one in rounds]) for name in names}
    keeps = {candidate: sum(kept(trials[candidate])) for candidate in gains}
    most = max(keeps.values())
    chosen = {candidate: times for candidate, times in gains.items() if keeps[candidate] == most}
    if base in chosen:
        chosen = {one: times for one, times in chosen.items() if times > 1 + noise} or {base: 1.0}
    top = max(chosen.values())
    alike = [candidate for candidate, times in chosen.items() if times * (1 + noise) >= top]
    best = min(alike, key=lambda candidate: (candidate.distance(base), -gains[candidate]))
    return Decision(best, gains, noise, all(kept(trials[best])))
