"""Runs a depth study: trains all runs and writes the results, the table and the figure.

A study reproduces Figure 1 of "Training Very Deep Networks". Its folder has one sub-folder per run, and
`compare.json` with all results, `compare.md` with a table and `compare.png`. A study that was stopped
continues when it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from turnpike.common.durable_files import replacing
from turnpike.models.checks import expect
from turnpike.models.data.download import DownloadProgress
from turnpike.models.plots import style
from turnpike.models.study.baseline import MajorityBaseline, majority_baseline
from turnpike.models.study.figure import depth_figure
from turnpike.models.study.results import (
    STUDY_FILE,
    RunResult,
    RunState,
    expect_same_study,
    load_result,
    shared_settings,
    write_json,
)
from turnpike.models.study.study_plan import Study
from turnpike.models.study.table import best_results, study_table
from turnpike.models.study.worker_processes import EndMessage, StepMessage, train_runs

TABLE_FILE = "compare.md"
FIGURE_FILE = "compare.png"


@dataclass(frozen=True)
class RunProgress:
    """The progress of one run, for a display."""

    name: str
    state: RunState
    step: int
    steps: int
    loss: float | None


def run_study(
    study: Study,
    folder: Path,
    *,
    jobs: int = 1,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    on_download: DownloadProgress | None = None,
) -> list[RunResult]:
    """Train the runs that are not trained yet, and write the results, the table and the figure.

    A run whose loss becomes NaN or infinite is recorded as "diverged", which is a result. If the folder
    has a study with other settings, a ConfigError is raised and nothing is changed.

    Args:
        study: What to compare.
        folder: The study's folder.
        jobs: Number of runs to train at the same time, each in a process of its own.
        on_progress: Called for every run at the start, and whenever a run has made progress.
        should_stop: Asked several times per second; if it returns True, the runs in progress are saved as
            "unfinished" and continue when the study is run again.
        on_download: Called while the data set is downloaded.
    """
    expect(jobs > 0, f"jobs: expected 1 or more, got {jobs}")
    data = study.load_data(on_download)
    digest = data.digest
    expect_same_study(study, digest, folder)
    plans = {run: study.plan_for(run, data, folder) for run in study.runs}
    results = {run: load_result(plan, run, digest) for run, plan in plans.items()}
    baseline = majority_baseline(data)

    def on_message(message: StepMessage | EndMessage) -> None:
        if isinstance(message, StepMessage):
            on_progress(
                RunProgress(message.run.name, "unfinished", message.step, message.steps, message.loss)
            )
        else:
            result = results[message.run] = load_result(plans[message.run], message.run, digest)
            on_progress(_to_progress(result))

    # results of earlier calls
    for result in results.values():
        on_progress(_to_progress(result))
    _write_results(study, digest, baseline, list(results.values()), folder)
    unfinished = [run for run, result in results.items() if result.state == "unfinished"]
    try:
        if unfinished:
            train_runs(study, folder, unfinished, jobs=jobs, on_message=on_message, should_stop=should_stop)
    finally:
        # also after an error: everything that was trained is written
        final_results = [load_result(plan, run, digest) for run, plan in plans.items()]
        _write_results(study, digest, baseline, final_results, folder)
        with replacing(folder / TABLE_FILE) as draft:
            draft.write_text(study_table(study, final_results, baseline), encoding="utf-8")
        style.save_figure(depth_figure(study, best_results(final_results), baseline), folder / FIGURE_FILE)
    return final_results


def _to_progress(result: RunResult) -> RunProgress:
    return RunProgress(result.run.name, result.state, result.step, result.steps, result.loss)


def _write_results(
    study: Study,
    data_digest: str,
    baseline: MajorityBaseline,
    results: Sequence[RunResult],
    folder: Path,
) -> None:
    shown = {result.run for result in best_results(results)}
    values = {
        "shared": shared_settings(study, data_digest),
        "families": study.families,
        "depths": study.depths,
        "lrs": study.lrs,
        "chance": asdict(baseline),
        "runs": [
            {
                **result.to_dict(),
                "shown": result.run in shown,
                "at_chance": baseline.accounts_for(result.test_accuracy),
            }
            for result in results
        ],
    }
    write_json(folder / STUDY_FILE, values)
