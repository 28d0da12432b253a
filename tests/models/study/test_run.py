"""The depth study: training, resuming, errors, and the files it writes."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.errors import ConfigError, TrainingError
from turnpike.models.study.baseline import MajorityBaseline, majority_baseline
from turnpike.models.study.figure import depth_figure
from turnpike.models.study.results import RunResult, RunState
from turnpike.models.study.run import RunProgress, run_study
from turnpike.models.study.study_plan import Study, StudyRun
from turnpike.models.study.table import best_results, study_table
from turnpike.models.training import checkpoint
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan
from turnpike.models.training.train import train

STUDY = Study(
    families=("highway", "plain"),
    depths=(2, 3),
    lrs=(1e-2, 1e30),
    data="digits",
    recipe=Recipe(epochs=2, batch=200, clip=1.0),
    width=8,
)


@pytest.fixture(scope="module")
def long_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of one run of a few hundred steps, on small data that loads quickly."""
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    x = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32)
    np.savez(path, x=x, y=(x[:, 0] > 0).astype(np.int64))
    return Study(
        families=("highway",),
        depths=(2,),
        lrs=(1e-3,),
        data=str(path),
        recipe=Recipe(epochs=4, batch=2),
        seed=3,
        width=4,
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished_study(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[RunResult], list[RunProgress]]:
    """A study that was trained once, in two processes."""
    folder = tmp_path_factory.mktemp("study")
    progress_reports: list[RunProgress] = []
    return (
        folder,
        run_study(STUDY, folder, jobs=2, on_progress=progress_reports.append),
        progress_reports,
    )


FinishedStudy = tuple[Path, list[RunResult], list[RunProgress]]


@pytest.mark.slow
def test_each_cell_is_trained_or_diverges(finished_study: FinishedStudy) -> None:
    """Each family, depth and learning rate is a run; a huge learning rate diverges, and its epoch is
    recorded.
    """
    folder, results, _ = finished_study
    assert [result.run for result in results] == [
        StudyRun(family, depth, lr)
        for depth in (2, 3)
        for family in ("highway", "plain")
        for lr in (1e-2, 1e30)
    ]
    for result in results:
        assert result.state == ("finished" if result.run.lr == 1e-2 else "diverged")
        if result.state == "finished":
            _, record = checkpoint.load_network(folder / result.run.name / BEST_CHECKPOINT)
            assert record.metrics["test_accuracy"] == result.test_accuracy
            assert record.config["kind"] == result.run.family
            assert record.config["layers"] == result.run.depth - 1
            assert result.loss == record.history[-1]["loss"]
            assert len(result.history) == 2
        else:
            assert (result.epoch, result.step, result.test_accuracy) == (1, 1, None)


@pytest.mark.slow
def test_networks_of_one_depth_have_similar_size(finished_study: FinishedStudy) -> None:
    """The networks of all families have about the same number of parameters at each depth."""
    _, results, _ = finished_study
    for depth in STUDY.depths:
        sizes = [result.parameters for result in results if result.run.depth == depth]
        assert max(sizes) / min(sizes) < 1.5  # so narrow, the input's map weighs most
    assert results[0].parameters == 64 * 8 + 8 + 2 * (8 * 8 + 8) + 8 * 10 + 10


@pytest.mark.slow
def test_progress_is_reported_for_every_run(finished_study: FinishedStudy) -> None:
    """Each run reports its start, progress during training, and its end."""
    _, results, progress_reports = finished_study
    names = [result.run.name for result in results]
    assert [(progress.name, progress.step) for progress in progress_reports[:8]] == [
        (name, 0) for name in names
    ]
    for result in results:
        last = [progress for progress in progress_reports if progress.name == result.run.name][-1]
        assert (last.state, last.step, last.steps) == (result.state, result.step, result.steps)
    begun = [progress.name for progress in progress_reports[8:]]
    assert all("-3-" in name for name in begun[:2])  # the deepest first


@pytest.mark.slow
def test_study_writes_table_figures_and_picture(finished_study: FinishedStudy) -> None:
    """The table has the best run of each family and depth; the JSON has all runs; the PNG is valid."""
    folder, results, _ = finished_study
    text = (folder / "compare.md").read_text()
    best, every = (part.splitlines() for part in text.split("All runs:"))
    assert len([line for line in best if line.startswith(("| 2 ", "| 3 "))]) == 4
    assert len([line for line in every if line.startswith(("| 2 ", "| 3 "))]) == 8
    first = results[0]
    assert (
        f"| 2 | highway | 0.01 | {first.loss:.3g} | {first.valid_accuracy:.2%} | {first.test_accuracy:.2%} | "
        in text
    )
    assert text.count("diverged in epoch 1") == 4
    values = json.loads((folder / "compare.json").read_text(), parse_constant=pytest.fail)
    assert [run["name"] for run in values["runs"]] == [result.run.name for result in results]
    assert [run["shown"] for run in values["runs"]] == [True, False] * 4
    assert values["runs"][0]["history"] == list(first.history)
    with Image.open(folder / "compare.png") as image:
        assert min(image.size) > 300


@pytest.mark.slow
def test_a_finished_study_trains_nothing(finished_study: FinishedStudy) -> None:
    """The results of a finished study, also of diverged runs, are read back, and no file changes."""
    folder, results, _ = finished_study
    before = contents(folder)
    progress_reports: list[RunProgress] = []
    assert run_study(STUDY, folder, on_progress=progress_reports.append) == results
    assert contents(folder) == before
    assert [progress.state for progress in progress_reports] == ["finished", "diverged"] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (replace(STUDY, recipe=replace(STUDY.recipe, epochs=3)), "expected epochs 2, got 3"),
        (replace(STUDY, width=9), "expected width 8, got 9"),
        (replace(STUDY, seed=1), "rows|seed"),
    ],
)
def test_changed_study_is_refused(finished_study: FinishedStudy, changed: Study, named: str) -> None:
    """Other settings in the same folder are an error that names them, and no file changes."""
    folder, _, _ = finished_study
    before = contents(folder)
    with pytest.raises(ConfigError, match=named):
        run_study(changed, folder)
    assert contents(folder) == before


@pytest.mark.slow
def test_changed_study_is_recognized_by_its_runs(finished_study: FinishedStudy, tmp_path: Path) -> None:
    """Without the study's own file, its runs are compared."""
    name = StudyRun("highway", 2, 1e-2).name
    (tmp_path / name).mkdir()
    (tmp_path / name / BEST_CHECKPOINT).write_bytes((finished_study[0] / name / BEST_CHECKPOINT).read_bytes())
    with pytest.raises(ConfigError, match="expected epochs 2, got 3"):
        run_study(replace(STUDY, recipe=replace(STUDY.recipe, epochs=3)), tmp_path)
    assert not (tmp_path / "compare.json").exists()


def test_damaged_study_is_an_error_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text("[1")
    with pytest.raises(ConfigError, match=r"compare\.json"):
        run_study(STUDY, tmp_path)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_resumed_study_ends_with_the_same_weights(long_study: Study, tmp_path: Path) -> None:
    """Stopped once and interrupted once, a study ends with the same bits as an undisturbed one."""
    name = long_study.runs[0].name
    seen: list[RunProgress] = []
    (result,) = run_study(
        long_study, tmp_path, on_progress=seen.append, should_stop=lambda: any(p.step for p in seen)
    )
    assert result.state == "unfinished"
    assert 0 < result.step < result.steps
    assert (tmp_path / name / LAST_CHECKPOINT).exists()
    assert f"unfinished: {result.step / result.steps:.0%}" in (tmp_path / "compare.md").read_text()

    def interrupt(progress: RunProgress) -> None:
        if progress.step > result.step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(long_study, tmp_path, on_progress=interrupt)
    assert not multiprocessing.active_children()
    again = checkpoint.read_checkpoint(tmp_path / name / LAST_CHECKPOINT)[1].progress["step"]
    assert result.step < again < result.steps

    (result,) = run_study(long_study, tmp_path)
    assert result.state == "finished"
    data = long_study.load_data()
    alone = RunPlan(
        "",
        long_study.config_for(result.run, data),
        long_study.recipe_for(result.run),
        data,
        tmp_path / "alone",
        3,
    )
    train(alone)
    expected, record = checkpoint.read_checkpoint(tmp_path / "alone" / BEST_CHECKPOINT)
    tensors, _ = checkpoint.read_checkpoint(tmp_path / name / BEST_CHECKPOINT)
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[key], expected[key]) for key in expected)
    assert result.test_accuracy == record.metrics["test_accuracy"]


@pytest.mark.slow
def test_failing_run_stops_the_study_and_keeps_the_rest(long_study: Study, tmp_path: Path) -> None:
    """A run that cannot be trained is a one-line error that names it; results of other runs stay."""
    study = replace(long_study, depths=(2, 3), recipe=Recipe(epochs=1, batch=200))
    bad = study.runs[0].name
    (tmp_path / bad).write_text("in the way of the run's folder")
    with pytest.raises(TrainingError, match=f"{bad}: .*cannot be written") as caught:
        run_study(study, tmp_path)
    assert "\n" not in str(caught.value)
    values = json.loads((tmp_path / "compare.json").read_text())
    assert [run["state"] for run in values["runs"]] == ["unfinished", "finished"]


@pytest.mark.slow
def test_killed_process_is_reported(long_study: Study, tmp_path: Path) -> None:
    """A killed process, as when memory runs out, is an error and not a hang."""

    def kill(progress: RunProgress) -> None:
        if progress.step:
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(TrainingError, match="highway-2-lr0.001: its process was ended by SIGKILL"):
        run_study(long_study, tmp_path, on_progress=kill)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"families": ("wide",)}, "families: expected one of plain, residual, highway"),
        ({"families": ()}, "families: expected one or more"),
        ({"depths": (2, 2)}, "depths: expected each value once"),
        ({"depths": (1,)}, "depths: expected 2 or more"),
        ({"lrs": (0.0,)}, "lr: expected a positive number"),
        ({"width": 0}, "width: expected 1 or more"),
    ],
)
def test_an_invalid_study_is_refused(change: dict[str, object], named: str) -> None:
    """A bad setting is named before anything is read or trained."""
    with pytest.raises(ConfigError, match=named):
        replace(STUDY, **change)  # type: ignore[arg-type]


def test_jobs_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jobs: expected 1 or more, got 0"):
        run_study(STUDY, tmp_path, jobs=0)


def test_majority_baseline_worked_out_by_hand() -> None:
    """Accuracy of the most frequent class of the test rows; entropy of the training rows' classes."""
    train_rows = Split(torch.zeros(4, 2), torch.tensor([0, 0, 1, 3]))
    test_rows = Split(torch.zeros(10, 2), torch.tensor([1, 1, 1, 1, 0, 0, 0, 3, 3, 3]))
    data = Dataset("classes", train_rows, test_rows, test_rows, ("a", "b", "c", "d"), "numbers")
    baseline = majority_baseline(data)
    assert baseline.accuracy == pytest.approx(0.4)
    assert baseline.loss == pytest.approx(0.5 * 0.6931472 + 2 * 0.25 * 1.3862944)
    # two standard errors are 2 * sqrt(0.4 * 0.6 / 10) = 0.31
    assert baseline.accounts_for(0.70)
    assert not baseline.accounts_for(0.72)
    assert not baseline.accounts_for(None)


def run_result(lr: float, *, loss: float | None, state: RunState = "finished", **values: object) -> RunResult:
    history = ({"epoch": 1, "loss": loss},) if loss is not None else ()
    return RunResult(StudyRun("plain", 9, lr), state, 10, 4, loss=loss, history=history, **values)  # type: ignore[arg-type]


def test_the_best_run_has_the_lowest_training_loss() -> None:
    """It need not have the best test accuracy. A diverged run is shown only if all diverged."""
    low, high = run_result(1.0, loss=0.1, test_accuracy=0.2), run_result(2.0, loss=0.5, test_accuracy=0.9)
    lost = run_result(3.0, loss=0.01, state="diverged", epoch=2)
    assert best_results([lost, high, low]) == [low]
    assert best_results([lost]) == [lost]


def test_networks_no_better_than_chance_are_marked() -> None:
    baseline = MajorityBaseline(0.1, 2.3, 1000)
    study = replace(STUDY, depths=(9,), families=("plain",), lrs=(1.0,))
    stuck = study_table(study, [run_result(1.0, loss=2.3, test_accuracy=0.11)], baseline)
    assert "no better than chance" in stuck
    assert "no better" not in study_table(study, [run_result(1.0, loss=2.3, test_accuracy=0.2)], baseline)


def test_networks_that_are_still_learning_are_too_early_to_judge() -> None:
    """Their last epoch still lowered a loss that is far from 0."""
    baseline = MajorityBaseline(0.1, 2.3, 1000)
    study = replace(STUDY, depths=(9,), families=("plain",), lrs=(1.0,))

    def table(before: float, last: float) -> str:
        history = ({"epoch": 1, "loss": before}, {"epoch": 2, "loss": last})
        return study_table(study, [replace(run_result(1.0, loss=last), history=history)], baseline)

    learning = table(1.0, 0.8)
    assert "still learning: 20% less loss in the last epoch" in learning
    assert "Too short to judge: 1 of 1 networks" in learning
    for settled in (table(0.8, 0.79), table(0.8, 0.9), table(0.2, 0.1)):
        assert "still learning" not in settled
        assert "Too short" not in settled


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 9])
def test_picture_has_a_panel_for_each_depth_and_one_for_accuracy(
    count: int, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Each panel has the curves of its depth; a diverged run is marked by a cross."""
    depths = tuple(range(2, 2 + count))
    study = replace(STUDY, depths=depths, lrs=(1.0,))
    history = ({"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 0.5})
    results = [
        RunResult(
            StudyRun("highway", depth, 1.0), "finished", 1, 4, test_accuracy=depth / 100, history=history
        )
        for depth in depths
    ]
    results.append(
        RunResult(StudyRun("plain", depths[-1], 1.0), "diverged", 1, 4, epoch=2, history=history[:1])
    )
    figure = depth_figure(study, results, MajorityBaseline(0.1, 2.3, 1000))
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in panels] == [
        *(f"{d} layers" for d in depths),
        "test accuracy",
    ]
    drawn = [line.get_xydata().tolist() for line in panels[0].lines]
    assert [[1, 2.0], [2, 0.5]] in drawn
    assert [[place, depth / 100] for place, depth in enumerate(depths)] in [
        line.get_xydata().tolist() for line in panels[-1].lines
    ]
    for axes in panels[-2:]:
        assert "X" in [line.get_marker() for line in axes.lines]
    figure.savefig(tmp_path / "figure.png")
