"""Figures of searches that never took place, and a search that takes them, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tune.candidates import Candidate
from tune.decision import Decision
from tune.errors import ServeError
from tune.measurements import Figures, Trial, middle
from tune.model_under_test import Subject
from tune.plan import Plan
from tune.result import Found, Line, Lower
from tune.search import Search

BASE = Candidate(1, 2, 128, 0.0)


def trial(*rates: float, users: Sequence[int] = (1, 16, 64), missed: Sequence[int] = ()) -> Trial:
    """One with these rates; at the numbers of users in `missed` it fails."""
    return tuple(
        Figures(count, rate, 0.5 / (rate or 1), 2 / (rate or 1), ("the SLO was missed",) * (count in missed))
        for count, rate in zip(users, rates, strict=True)
    )


class Machine:
    """Measures by a rule, notes the order, and drifts as it is told to."""

    def __init__(
        self,
        speed: Callable[[Candidate], float],
        *,
        missed: Callable[[Candidate], bool] = lambda candidate: False,
        absent: Callable[[Candidate], bool] = lambda candidate: False,
        drift: Sequence[float] = (1.0,),
    ) -> None:
        self.speed, self.missed, self.absent, self.drift = speed, missed, absent, drift
        self.measured: list[Candidate] = []
        self.best: list[Candidate] = []

    def measure(self, candidate: Candidate) -> Trial:
        factor = self.drift[len(self.measured) % len(self.drift)]
        self.measured.append(candidate)
        if self.absent(candidate):
            raise ServeError("no room")
        rate = 1000 * self.speed(candidate) * factor
        return trial(rate, rate * 2, rate * 3, missed=(64,) if self.missed(candidate) else ())

    def watch(self, candidate: Candidate, figures: Trial) -> None:
        self.best.append(candidate)

    def search(self, base: Candidate = BASE, cpus: int = 4, most_rows: int = 64) -> Search:
        return Search(base, cpus, most_rows, self.measure, self.watch)


def found(
    trials: Mapping[Candidate, Trial] | None = None,
    *,
    kept: bool = True,
    lower: Sequence[Lower] = (),
    notes: Sequence[str] = (),
    model: str = "digits-10",
    **asked: object,
) -> Found:
    """What a search would have found: the first of the trials is the best."""
    given = trials or {Candidate(2, 1, 128, 0.0): trial(1500, 4000, 6000), BASE: trial(1600, 3000, 4000)}
    best = next(iter(given))
    gains = {candidate: 1.0 if candidate == BASE else 1.2 for candidate in given}
    plan = Plan(**{"slo": "p99<50ms, errors<0.1%", **asked})  # type: ignore[arg-type]
    return Found(
        plan=plan,
        subject=Subject(model, Path("repo/digits-10/1/model.onnx"), Path("repo")),
        base=BASE,
        decision=Decision(best, gains, 0.031, kept),
        lines=tuple(Line(one, middle([figures]), gains[one], 1) for one, figures in given.items()),
        lower=tuple(lower),
        notes=tuple(notes),
        machine={"cpus": 2.0, "cpu": "AMD EPYC", "device": "cpu"},
        versions={"turnpike": "0.1.0", "python": "3.11.7"},
        ended=datetime(2026, 2, 3, 4, 5, tzinfo=UTC),
        seconds=3,
    )
