"""Figure 1 of "Training Very Deep Networks": what depth does to plain, residual and highway nets.

A study is a folder: one of its own for each run, and beside them `compare.json` with all the figures,
`compare.md` with a table and `compare.png`. Run again, it goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from models.atomic import replacing
from models.checks import expect
from models.data.download import DownloadProgress
from models.plots import style
from models.study.baseline import MajorityBaseline, majority_baseline
from models.study.figure import depth_figure
from models.study.results import (
    STUDY_FILE,
    RunResult,
    RunState,
    expect_same_study,
    load_result,
    shared_settings,
    write_json,
)
from models.study.study import Study
from models.study.table import best_results, study_table
from models.study.worker_processes import EndMessage, StepMessage, train_runs

TABLE_FILE = "compare.md"
FIGURE_FILE = "compare.png"


@dataclass(frozen=True)
class RunProgress:
    """What a display is told of one run, whenever there is something new."""

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
    tell: Callable[[RunProgress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    download: DownloadProgress | None = None,
) -> list[RunResult]:
    """Train what is not trained yet, `jobs` runs at a time, and write the table and the picture.

    Asked to stop, or interrupted, it saves what it is at; runs that are not done are "unfinished" then,
    and go on when the study is run again. A run whose loss is no number any more has "diverged", which
    is a result. A folder that holds a study with other settings is left as it is, with a ConfigError.
    """
    expect(jobs > 0, f"jobs: expected 1 or more, got {jobs}")
    data = study.read(download)
    rows = data.digest
    expect_same_study(study, rows, folder)
    plans = {cell: study.plan(cell, data, folder) for cell in study.cells}
    results = {cell: load_result(plan, cell, rows) for cell, plan in plans.items()}
    chance = majority_baseline(data)

    def hear(word: StepMessage | EndMessage) -> None:
        if isinstance(word, StepMessage):
            tell(RunProgress(word.cell.name, "unfinished", word.step, word.steps, word.loss))
        else:
            result = results[word.cell] = load_result(plans[word.cell], word.cell, rows)
            tell(_progress(result))

    for result in results.values():
        tell(_progress(result))
    _write_study(study, rows, chance, list(results.values()), folder)
    waiting = [cell for cell, result in results.items() if result.state == "unfinished"]
    try:
        if waiting:
            train_runs(study, folder, waiting, jobs=jobs, hear=hear, stop=stop)
    finally:
        found = [load_result(plan, cell, rows) for cell, plan in plans.items()]
        _write_study(study, rows, chance, found, folder)
        with replacing(folder / TABLE_FILE) as draft:
            draft.write_text(study_table(study, found, chance), encoding="utf-8")
        picture = depth_figure(study, best_results(found), chance)
        style.save_figure(picture, folder / FIGURE_FILE)
    return found


def _progress(result: RunResult) -> RunProgress:
    return RunProgress(result.cell.name, result.state, result.step, result.steps, result.loss)


def _write_study(
    study: Study, rows: str, chance: MajorityBaseline, results: Sequence[RunResult], folder: Path
) -> None:
    shown = {result.cell for result in best_results(results)}
    values = {
        "shared": shared_settings(study, rows),
        "families": study.families,
        "depths": study.depths,
        "lrs": study.lrs,
        "chance": asdict(chance),
        "runs": [
            {
                **result.to_dict(),
                "shown": result.cell in shown,
                "at_chance": chance.explains(result.test_accuracy),
            }
            for result in results
        ],
    }
    write_json(folder / STUDY_FILE, values)
