"""Runs one search from start to end: find the model, lower its precision, search, make the result."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from turnpike.common.cpus import whole_cpus
from turnpike.common.distribution import VERSION
from turnpike.service.artifact.devices import OPENVINO_PACKAGE
from turnpike.service.config.auto_workers import describe_machine
from turnpike.service.config.cpus import threads_per_worker
from turnpike.service.config.resolve import resolve
from turnpike.service.config.settings import Settings
from turnpike.tune.errors import LowerPrecisionError, ServeError, UsageError
from turnpike.tune.plan import TunePlan
from turnpike.tune.result import Alternative, CandidateResult, TuneResult
from turnpike.tune.search.candidates import OPENVINO_PRECISIONS, Candidate, openvino_splits
from turnpike.tune.search.measurements import Trial, median_trial, missed_users
from turnpike.tune.search.settings_search import (
    BEFORE_AND_AFTER,
    HIGH_NOISE,
    ComparisonRound,
    Decision,
    SettingsSearch,
    count_trials,
)
from turnpike.tune.trial.bench import Bench, estimate_seconds, lower_precision, seconds_per_load
from turnpike.tune.trial.child_process import StopRequested
from turnpike.tune.trial.trial_log import LOG_FILE, LoggedBench, TrialBench, TrialLog
from turnpike.tune.trial.tuned_model import TunedModel, find_model

NOISY_MACHINE = (
    "Measurements of the same settings differ a lot: other processes use this machine, or the loads are too "
    "short. Use more --minutes, or run the search when the machine is idle."
)


class TuneListener(Protocol):
    """Is informed about the progress of a search."""

    def message(self, text: str) -> None:
        """A message for the user."""

    def started(self, loads: int, seconds: float) -> None:
        """The search starts; it takes this many loads, and about this many seconds."""

    def load_started(self, candidate: Candidate, users: int) -> None:
        """A load starts."""

    def best_changed(self, candidate: Candidate, trial: Trial) -> None:
        """A trial has ended; this is the best candidate so far."""


def run_search(plan: TunePlan, listener: TuneListener, stop_requested: StopRequested) -> TuneResult:
    """Find the best settings for the plan."""
    repository = plan.models if plan.models is not None and plan.models.is_dir() else None
    settings = resolve({"models": str(repository)} if repository else {}, plan.config).settings
    with tempfile.TemporaryDirectory(prefix="turnpike-tune-") as folder:
        # find the model, and make its lower precisions
        scratch = Path(folder)
        model = find_model(plan.models or _local_models(settings), plan.model, settings.versions)
        repositories, notes = _lower_precisions(plan, model, scratch, listener, stop_requested)
        base = base_candidate(settings)

        # plan the time
        cpu_count = whole_cpus()
        max_rows, loads_per_trial = max(plan.users) * plan.rows, len(plan.users)
        has_openvino = settings.device == "cpu" and OPENVINO_PACKAGE in versions()
        trials = count_trials(base, cpu_count, max_rows) + (1 + BEFORE_AND_AFTER) * len(repositories)
        if has_openvino:
            trials += len(openvino_splits(base, base, cpu_count)) + BEFORE_AND_AFTER
        load_seconds = seconds_per_load(plan.minutes, trials, loads_per_trial)
        seconds = estimate_seconds(trials, loads_per_trial, load_seconds)
        listener.started(trials * loads_per_trial, seconds)

        # search, then compare the alternatives with the best settings
        log = TrialLog(plan.output_folder, _subject(plan, settings, model, load_seconds))
        if log.known_trials:
            listener.message(f"continues: {log.known_trials} of the trials are those of {LOG_FILE}")
        bench = LoggedBench(
            Bench(plan, settings, model, scratch, load_seconds, stop_requested, listener.load_started), log
        )
        search = SettingsSearch(base, cpu_count, max_rows, bench.measure, listener.best_changed)
        decision = search.run()
        alternatives = []
        for precision, path in repositories.items():
            try:
                alternatives.append(compare_precision(bench, decision, precision, path))
            except ServeError as error:
                notes.append(f"{precision} was left out: {error}")
        if has_openvino:
            candidates = openvino_splits(base, decision.best, cpu_count)
            results, more_notes = compare_openvino(bench, decision, candidates)
            alternatives += results
            notes += more_notes
    return TuneResult(
        plan=plan,
        model=model,
        base=base,
        decision=decision,
        candidates=candidate_results(search, decision),
        alternatives=tuple(alternatives),
        notes=(*notes, *result_notes(search, decision)),
        machine=describe_machine(settings),
        versions=versions(),
        ended=datetime.now(UTC),
        load_seconds=load_seconds,
    )


def _subject(plan: TunePlan, settings: Settings, model: TunedModel, load_seconds: int) -> dict[str, str]:
    """What a search measures: only trials of the same may take the place of its own."""
    return {
        "plan": repr(plan),
        "settings": repr(settings),
        "file": hashlib.sha256(model.file.read_bytes()).hexdigest(),
        "machine": repr(describe_machine(settings)),
        "versions": repr(versions()),
        "seconds": str(load_seconds),
    }


def base_candidate(settings: Settings) -> Candidate:
    """The settings that serve has now, which the others have to beat."""
    return Candidate(
        settings.workers, threads_per_worker(settings), settings.max_batch, settings.max_delay_ms
    )


def compare_precision(bench: TrialBench, decision: Decision, precision: str, repository: Path) -> Alternative:
    """Measure the best settings with a lower precision, between two trials of the served file.

    Raises:
        ServeError: The file of lower precision cannot be served or loaded.
    """
    best = decision.best
    before = bench.measure(best)
    trial = bench.measure(best, repository)
    comparison = ComparisonRound(before, {best: trial}, after=bench.measure(best))
    noise = max(decision.noise, comparison.base_difference)
    return Alternative(precision, comparison.gain(best), noise, trial)


def compare_openvino(
    bench: TrialBench, decision: Decision, candidates: Sequence[Candidate]
) -> tuple[list[Alternative], list[str]]:
    """Measure candidates on OpenVINO, between two trials of the best settings.

    Returns:
        The best of each precision, and notes on those that did not start.
    """
    trials: dict[Candidate, Trial] = {}
    notes = []
    before = bench.measure(decision.best)
    for precision in OPENVINO_PRECISIONS:
        splits = [candidate for candidate in candidates if candidate.openvino == precision]
        served, start_errors = _measure_splits(bench, splits)
        trials |= served
        if served:
            notes += _start_error_notes(start_errors)
        else:
            notes.append(f"OpenVINO in {precision} was left out: {next(iter(start_errors.values()))}")
    comparison = ComparisonRound(before, trials, after=bench.measure(decision.best))
    noise = max(decision.noise, comparison.base_difference)
    results = []
    for precision in OPENVINO_PRECISIONS:
        splits = [candidate for candidate in trials if candidate.openvino == precision]
        if splits:
            # the SLO comes before speed, as in the search
            best = min(splits, key=lambda split: (len(missed_users(trials[split])), -comparison.gain(split)))
            results.append(Alternative(precision, comparison.gain(best), noise, trials[best], best))
    return results, notes


def _measure_splits(
    bench: TrialBench, splits: Sequence[Candidate]
) -> tuple[dict[Candidate, Trial], dict[Candidate, str]]:
    """Trials of the candidates that start, and why the others do not."""
    trials: dict[Candidate, Trial] = {}
    start_errors: dict[Candidate, str] = {}
    for candidate in splits:
        try:
            trials[candidate] = bench.measure(candidate)
        except ServeError as error:
            start_errors[candidate] = str(error)
            if candidate.workers == 1 and not trials:
                # a single worker needs the least memory, so more of them would not start either
                break
    return trials, start_errors


def candidate_results(search: SettingsSearch, decision: Decision) -> tuple[CandidateResult, ...]:
    """Every candidate that was measured: the best first, then by gain."""
    gains = {**search.gains, **decision.gains}
    ranking = sorted(search.trials, key=lambda candidate: (candidate != decision.best, -gains[candidate]))
    return tuple(
        CandidateResult(candidate, median_trial(trials), gains[candidate], len(trials))
        for candidate, trials in ((candidate, search.trials[candidate]) for candidate in ranking)
    )


def result_notes(search: SettingsSearch, decision: Decision) -> list[str]:
    """Notes for the reader of the results, each once."""
    noisy = [NOISY_MACHINE] if decision.noise > HIGH_NOISE else []
    figures = [load for trials in search.trials.values() for trial in trials for load in trial]
    failed = _start_error_notes(search.start_errors)
    return [*noisy, *failed, *dict.fromkeys(note for load in figures for note in load.notes)]


def _start_error_notes(start_errors: Mapping[Candidate, str]) -> list[str]:
    return [f"{candidate.name} did not start: {error}" for candidate, error in start_errors.items()]


def versions() -> dict[str, str]:
    """Versions of the software that was measured."""
    result = {"turnpike": VERSION, "python": platform.python_version()}
    for name in ("onnxruntime", "onnxruntime-gpu", OPENVINO_PACKAGE):
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


def _lower_precisions(
    plan: TunePlan,
    model: TunedModel,
    scratch: Path,
    listener: TuneListener,
    stop_requested: StopRequested,
) -> tuple[dict[str, Path], list[str]]:
    """Repositories with the model in lower precisions, and a note for each that cannot be made."""
    repositories, notes = {}, []
    for precision in plan.lower_precisions:
        if plan.source is None and model.is_export:
            hint = "name the checkpoint or module of the export with --source"
            notes.append(f"{precision} was left out: {hint}")
            listener.message(notes[-1])
            continue
        listener.message(f"exporting {model.name} in {precision}, for comparison")
        try:
            repositories[precision] = lower_precision(model, plan.source, precision, scratch, stop_requested)
        except LowerPrecisionError as error:
            notes.append(str(error))
            listener.message(str(error))
    return repositories, notes


def _local_models(settings: Settings) -> Path | None:
    if isinstance(settings.models, str):
        raise UsageError(f"models: expected a folder or file on this machine, got {settings.models!r}")
    return settings.models
