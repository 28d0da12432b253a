"""A whole search: what is asked for, what there is, measured, decided, and put together."""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from service.config.auto_workers import describe_machine
from service.config.cpus import available_cpus, threads_per_worker
from service.config.settings import Settings
from service.config.sources import resolve
from service.version import VERSION
from tune.bench import Bench, expected, seconds
from tune.candidates import Candidate
from tune.decision import LOUD, Decision, Round
from tune.errors import ExportError
from tune.interrupt import Check
from tune.measurements import Trial, middle
from tune.model_under_test import Subject, subject
from tune.plan import Plan
from tune.precision import lowered
from tune.result import Found, Line, Lower
from tune.search import Search, planned

# trials of a lower precision: it, and before and after it the file that is served
COMPARED = 3
UNQUIET = (
    "The same settings differ much from themselves: other processes take time from this machine, or loads "
    "are too short. Take more --minutes, or a quieter hour."
)


class Watcher(Protocol):
    """Who is told how it goes on."""

    def say(self, words: str) -> None:
        """Something that stays."""

    def begin(self, loads: int, lasting: float) -> None:
        """So many loads will take so many seconds."""

    def load(self, candidate: Candidate, users: int) -> None:
        """A load begins."""

    def best(self, candidate: Candidate, trial: Trial) -> None:
        """The best so far."""


def run(plan: Plan, watcher: Watcher, check: Check) -> Found:
    """Find the best settings for what is asked."""
    served = {"models": str(plan.models)} if plan.models is not None and plan.models.is_dir() else {}
    settings = resolve(served, plan.config).settings
    with tempfile.TemporaryDirectory(prefix="turnpike-tune-") as folder:
        scratch = Path(folder)
        meant = subject(plan.models or settings.models, plan.model, settings.versions, scratch)
        files, notes = _lower(plan, meant, scratch, watcher, check)
        base = now(settings)

        room, most_rows, users = max(1, int(available_cpus())), max(plan.users) * plan.rows, len(plan.users)
        trials = planned(base, room, most_rows) + COMPARED * len(files)
        each = seconds(plan.minutes, trials, users)
        watcher.begin(trials * users, expected(trials, users, each))
        bench = Bench(plan, settings, meant, scratch, each, check, watcher.load)
        search = Search(base, room, most_rows, bench.measure, watcher.best)
        decision = search.run()
        lower = [compare(bench, decision, precision, file) for precision, file in files.items()]
    return Found(
        plan=plan,
        subject=meant,
        base=base,
        decision=decision,
        lines=lines(search, decision),
        lower=tuple(lower),
        notes=(*notes, *told(search, decision)),
        machine=describe_machine(settings.device),
        versions=versions(),
        ended=datetime.now(UTC),
        seconds=each,
    )


def now(settings: Settings) -> Candidate:
    """What these settings come to: the base that others have to beat."""
    return Candidate(
        settings.workers, threads_per_worker(settings), settings.max_batch, settings.max_delay_ms
    )


def compare(bench: Bench, decision: Decision, precision: str, file: Path) -> Lower:
    """The best settings with a file of another precision, between two trials of the file that is served."""
    best = decision.best
    before = bench.measure(best)
    trial = bench.measure(best, file)
    turn = Round(before, {best: trial}, after=bench.measure(best))
    return Lower(precision, turn.gain(best), max(decision.noise, turn.drift), trial)


def lines(search: Search, decision: Decision) -> tuple[Line, ...]:
    """Every candidate that was measured, the best first, then by what they did."""
    gains = {**search.standing, **decision.gains}
    order = sorted(search.trials, key=lambda candidate: (candidate != decision.best, -gains[candidate]))
    return tuple(
        Line(candidate, middle(search.trials[candidate]), gains[candidate], len(search.trials[candidate]))
        for candidate in order
    )


def told(search: Search, decision: Decision) -> list[str]:
    """What the reader should know of the figures, each sentence once."""
    loud = [UNQUIET] if decision.noise > LOUD else []
    failed = [f"{candidate.name} did not start: {why}" for candidate, why in search.failed.items()]
    notes = dict.fromkeys(
        note for trials in search.trials.values() for trial in trials for one in trial for note in one.notes
    )
    return [*loud, *failed, *notes]


def versions() -> dict[str, str]:
    """Of what was measured."""
    found = {"turnpike": VERSION, "python": platform.python_version()}
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _lower(
    plan: Plan, meant: Subject, scratch: Path, watcher: Watcher, check: Check
) -> tuple[dict[str, Path], list[str]]:
    """Files of the lower precisions, and a sentence for each that cannot be made."""
    files, notes = {}, []
    for precision in plan.lower:
        watcher.say(f"making {precision} of {meant.name}, to compare")
        try:
            files[precision] = lowered(meant, plan.source, precision, scratch, check)
        except ExportError as error:
            notes.append(str(error))
            watcher.say(str(error))
    return files, notes
