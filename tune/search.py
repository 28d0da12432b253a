"""The search: the ways to share the CPUs, then batches and waits around the best, then the best in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tune.candidates import Candidate, around, shapes
from tune.decision import Decision, Round, decide
from tune.errors import ServeError
from tune.measurements import Trial, gain, kept, middle

# of the best, how many are measured once more beside the base, and how often
FINALISTS, ROUNDS = 2, 2

# loads a server with these settings; a ServeError where it does not start
Measure = Callable[[Candidate], Trial]


# hears of the best so far
Watch = Callable[[Candidate, Trial], None]


def planned(base: Candidate, cpus: int, most_rows: int) -> int:
    """How many trials a search takes, if every server starts."""
    first, second = len(shapes(base, cpus)), len(around(base, most_rows))
    # the best of the first step is measured again in the second
    finalists = min(first + second - 2, FINALISTS)
    return first + (second if second > 1 else 0) + (ROUNDS * (finalists + 2) if finalists else 0)


@dataclass(slots=True)
class Search:
    """A search under way. A step measures its candidates in turn, beside the best of the step before."""

    base: Candidate
    cpus: int
    most_rows: int  # in flight at once
    measure: Measure
    watch: Watch
    trials: dict[Candidate, list[Trial]] = field(default_factory=dict)
    # how many times as much as the base, each by way of those it was measured with
    standing: dict[Candidate, float] = field(default_factory=dict)
    # why a candidate did not start
    failed: dict[Candidate, str] = field(default_factory=dict)

    def run(self) -> Decision:
        """All of it."""
        self.standing[self.base] = 1.0
        best = self._step(shapes(self.base, self.cpus))
        near = around(best, self.most_rows)
        if len(near) > 1:
            self._step(near)
        finalists = self._finalists()
        rounds = [self._round(finalists) for _ in range(ROUNDS)] if finalists else []
        return decide(self.base, rounds, self.trials)

    def _step(self, candidates: Sequence[Candidate]) -> Candidate:
        """Measure them; the first is what the others are compared with. Gives the best that there is now."""
        first, *others = candidates
        reference = self._tried(first)
        for candidate in others:
            try:
                trial = self._tried(candidate)
            except ServeError as error:
                # as where there is not memory enough for so many workers
                self.failed[candidate] = str(error)
                continue
            self.standing[candidate] = self.standing[first] * gain(trial, reference)
        return self._ranked()[0]

    def _round(self, finalists: Sequence[Candidate]) -> Round:
        before = self._tried(self.base)
        others = {candidate: self._tried(candidate) for candidate in finalists}
        return Round(before, others, after=self._tried(self.base))

    def _finalists(self) -> list[Candidate]:
        return [candidate for candidate in self._ranked() if candidate != self.base][:FINALISTS]

    def _ranked(self) -> list[Candidate]:
        """Those that keep most first, and among these the fastest."""
        return sorted(
            self.standing,
            key=lambda candidate: (-sum(kept(self.trials[candidate])), -self.standing[candidate]),
        )

    def _tried(self, candidate: Candidate) -> Trial:
        trial = self.measure(candidate)
        self.trials.setdefault(candidate, []).append(trial)
        best = self._ranked()[0]
        self.watch(best, middle(self.trials[best]))
        return trial
