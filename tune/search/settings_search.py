"""Searches for the best settings, and decides by the figures of the trials.

The search first tries ways to split the CPUs, then batch sizes and delays with the best of them. At the end
it measures the finalists again, in turn with the settings that serve has now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from turnpike.tune.errors import ServeError
from turnpike.tune.search.candidates import Candidate, batch_variants, cpu_splits
from turnpike.tune.search.measurements import Trial, gain, geometric_mean, keeps_slo, median_trial

# lowest noise, as a share: smaller gains mean nothing, even if measurements of the same settings agree better
MIN_NOISE = 0.02
# above this noise, other programs probably disturb the measurements
HIGH_NOISE = 0.15
# number of candidates that are measured again at the end, and how often
FINALIST_COUNT, ROUND_COUNT = 2, 2
# trials of the settings that others are compared with: one before them and one after them
BEFORE_AND_AFTER = 2

# loads a server with these settings; raises a ServeError if it does not start
Measure = Callable[[Candidate], Trial]

# called with the best candidate so far, after each trial
OnBest = Callable[[Candidate, Trial], None]


@dataclass(frozen=True, slots=True)
class ComparisonRound:
    """Trials one after another: the base first, then the other candidates, then the base again."""

    before: Trial
    others: Mapping[Candidate, Trial]
    after: Trial

    @property
    def base_difference(self) -> float:
        """How much the two trials of the base differ, as a share."""
        ratio = gain(self.after, self.before)
        return max(ratio, 1 / ratio) - 1 if ratio else 1.0

    def gain(self, candidate: Candidate) -> float:
        """Throughput of a candidate divided by that of the base, the mean over both trials of the base."""
        trial = self.others[candidate]
        return geometric_mean([gain(trial, self.before), gain(trial, self.after)])


@dataclass(frozen=True, slots=True)
class Decision:
    """The best candidate, the gains of all over the base, and the noise, which a gain must exceed."""

    best: Candidate
    gains: Mapping[Candidate, float]
    noise: float
    keeps_slo: bool  # whether the best keeps the SLO at every number of users


def decide(
    base: Candidate, rounds: Sequence[ComparisonRound], trials: Mapping[Candidate, Sequence[Trial]]
) -> Decision:
    """Choose the best candidate.

    Candidates that keep the SLO at the most numbers of users come first; among them, the fastest wins. The
    base stays unless another candidate is faster by more than noise. If several candidates are as fast as the
    fastest except for noise, the most similar to the base wins.

    Args:
        base: The settings that serve has now.
        rounds: The comparisons at the end, which give gains and noise.
        trials: All trials of each candidate, which say whether it keeps the SLO.
    """
    noise = max([MIN_NOISE, *(comparison.base_difference for comparison in rounds)])
    finalists = dict.fromkeys(candidate for comparison in rounds for candidate in comparison.others)
    gains = {base: 1.0}
    for finalist in finalists:
        gains[finalist] = geometric_mean([comparison.gain(finalist) for comparison in rounds])
    # keep those that keep the SLO best
    kept = {candidate: sum(keeps_slo(trials[candidate])) for candidate in gains}
    eligible = {
        candidate: times for candidate, times in gains.items() if kept[candidate] == max(kept.values())
    }
    # keep those that beat the base by more than noise, or the base if there are none
    if base in eligible:
        faster = {candidate: times for candidate, times in eligible.items() if times > 1 + noise}
        eligible = faster or {base: 1.0}
    # among the fastest, choose the most similar to the base
    top = max(eligible.values())
    fastest = [candidate for candidate, times in eligible.items() if times * (1 + noise) >= top]
    best = min(fastest, key=lambda candidate: (candidate.distance(base), -gains[candidate]))
    return Decision(best, gains, noise, all(keeps_slo(trials[best])))


def count_trials(base: Candidate, cpus: int, max_rows: int) -> int:
    """How many trials a search takes if every server starts; `max_rows` are in flight at the same time."""
    first, second = len(cpu_splits(base, cpus)), len(batch_variants(base, max_rows))
    # the best of the first step is measured again in the second
    finalists = min(first + second - 2, FINALIST_COUNT)
    return (
        first
        + (second if second > 1 else 0)
        + (ROUND_COUNT * (finalists + BEFORE_AND_AFTER) if finalists else 0)
    )


@dataclass(slots=True)
class SettingsSearch:
    """A search in progress. Each step compares its candidates with the best of the step before."""

    base: Candidate
    cpus: int
    max_rows: int  # rows in flight at the same time
    measure: Measure
    on_best: OnBest
    trials: dict[Candidate, list[Trial]] = field(default_factory=dict)
    # gain over the base, computed through the candidates that were measured in the same step
    gains: dict[Candidate, float] = field(default_factory=dict)
    # why a candidate did not start
    start_errors: dict[Candidate, str] = field(default_factory=dict)

    def run(self) -> Decision:
        self.gains[self.base] = 1.0
        best = self._step(cpu_splits(self.base, self.cpus))
        variants = batch_variants(best, self.max_rows)
        if len(variants) > 1:
            self._step(variants)
        finalists = self._finalists()
        rounds = [self._round(finalists) for _ in range(ROUND_COUNT)] if finalists else []
        return decide(self.base, rounds, self.trials)

    def _step(self, candidates: Sequence[Candidate]) -> Candidate:
        """Measure candidates and compare them with the first; returns the best of all so far."""
        first, *others = candidates
        reference = self._measure(first)
        for candidate in others:
            try:
                trial = self._measure(candidate)
            except ServeError as error:
                # for example, because memory is too small for this many workers
                self.start_errors[candidate] = str(error)
                continue
            self.gains[candidate] = self.gains[first] * gain(trial, reference)
        return self._ranking()[0]

    def _round(self, finalists: Sequence[Candidate]) -> ComparisonRound:
        before = self._measure(self.base)
        others = {candidate: self._measure(candidate) for candidate in finalists}
        return ComparisonRound(before, others, after=self._measure(self.base))

    def _finalists(self) -> list[Candidate]:
        return [candidate for candidate in self._ranking() if candidate != self.base][:FINALIST_COUNT]

    def _ranking(self) -> list[Candidate]:
        """All candidates: first those that keep the SLO at the most numbers of users, then by gain."""
        return sorted(
            self.gains,
            key=lambda candidate: (-sum(keeps_slo(self.trials[candidate])), -self.gains[candidate]),
        )

    def _measure(self, candidate: Candidate) -> Trial:
        trial = self.measure(candidate)
        self.trials.setdefault(candidate, []).append(trial)
        best = self._ranking()[0]
        self.on_best(best, median_trial(self.trials[best]))
        return trial
