"""Made-up results of tuning searches, and a fake machine on which a search can run without servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from turnpike.tune.errors import ServeError
from turnpike.tune.plan import TunePlan
from turnpike.tune.result import Alternative, CandidateResult, TuneResult
from turnpike.tune.search.candidates import Candidate
from turnpike.tune.search.measurements import LoadFigures, Trial, median_trial
from turnpike.tune.search.settings_search import Decision, SettingsSearch
from turnpike.tune.trial.tuned_model import TunedModel

BASE = Candidate(1, 2, 128, 0.0)


def sample_trial(*rates: float, users: Sequence[int] = (1, 16, 64), missed: Sequence[int] = ()) -> Trial:
    """A trial with these rates; it fails at the numbers of users in `missed`."""
    return tuple(
        LoadFigures(
            count, rate, 0.5 / (rate or 1), 2 / (rate or 1), ("the SLO was missed",) * (count in missed)
        )
        for count, rate in zip(users, rates, strict=True)
    )


class FakeMachine:
    """Measures candidates by a function, and records their order."""

    def __init__(
        self,
        speed: Callable[[Candidate], float],
        *,
        missed: Callable[[Candidate], bool] = lambda candidate: False,
        absent: Callable[[Candidate], bool] = lambda candidate: False,
        drift: Sequence[float] = (1.0,),
    ) -> None:
        """Make a machine.

        Args:
            speed: throughput of a candidate.
            missed: whether a candidate misses the SLO with 64 users.
            absent: whether a candidate does not start.
            drift: factors of the speed in one measurement after another.
        """
        self.speed, self.missed, self.absent, self.drift = speed, missed, absent, drift
        self.measured: list[Candidate] = []
        self.best: list[Candidate] = []

    def measure(self, candidate: Candidate) -> Trial:
        factor = self.drift[len(self.measured) % len(self.drift)]
        self.measured.append(candidate)
        if self.absent(candidate):
            raise ServeError("no room")
        rate = 1000 * self.speed(candidate) * factor
        return sample_trial(rate, rate * 2, rate * 3, missed=(64,) if self.missed(candidate) else ())

    def on_best(self, candidate: Candidate, trial: Trial) -> None:
        self.best.append(candidate)

    def search(self, base: Candidate = BASE, cpus: int = 4, max_rows: int = 64) -> SettingsSearch:
        return SettingsSearch(base, cpus, max_rows, self.measure, self.on_best)


def sample_result(
    trials: Mapping[Candidate, Trial] | None = None,
    *,
    kept: bool = True,
    alternatives: Sequence[Alternative] = (),
    notes: Sequence[str] = (),
    model: str = "digits-10",
    **options: object,
) -> TuneResult:
    """The result of a search that never ran; the first of the trials is the best."""
    trials = trials or {
        Candidate(2, 1, 128, 0.0): sample_trial(1500, 4000, 6000),
        BASE: sample_trial(1600, 3000, 4000),
    }
    best = next(iter(trials))
    gains = {candidate: 1.0 if candidate == BASE else 1.2 for candidate in trials}
    plan = TunePlan(**{"slo": "p99<50ms, errors<0.1%", **options})  # type: ignore[arg-type]
    return TuneResult(
        plan=plan,
        model=TunedModel(model, Path("repo/digits-10/1/model.onnx"), Path("repo")),
        base=BASE,
        decision=Decision(best, gains, 0.031, kept),
        candidates=tuple(
            CandidateResult(candidate, median_trial([trial]), gains[candidate], 1)
            for candidate, trial in trials.items()
        ),
        alternatives=tuple(alternatives),
        notes=tuple(notes),
        machine={"cpus": 2.0, "cpu": "AMD EPYC", "device": "cpu", "precision": "fp32"},
        versions={"turnpike": "0.1.0", "python": "3.11.7"},
        ended=datetime(2026, 2, 3, 4, 5, tzinfo=UTC),
        load_seconds=3,
    )
