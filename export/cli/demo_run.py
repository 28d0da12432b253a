"""Trains and exports the default network on embedded data. A second run reuses the first."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from turnpike.export.output.repository import model_path, newest_version
from turnpike.models.choices import DEFAULT_PRESET
from turnpike.models.cli.progress import console, show_next_step
from turnpike.models.cli.training_run import (
    FIGURE_FILES,
    config_for_data,
    read_data,
    run_training,
    show_result,
)
from turnpike.models.errors import ConfigError
from turnpike.models.training.checkpoint import read_checkpoint
from turnpike.models.training.presets import find_preset
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan

# sub-folders of --out
REPOSITORY = "repository"
REPORT = "report"
REPORT_PAGE = "index.html"


def run_demo(out: Path) -> None:
    """Train the network, unless the folder has it already, and export it with a report."""
    train(out)
    export(out)
    show_next_step("serve", out)


def export(out: Path) -> None:
    """Export the trained network, unless the folder has a finished export already."""
    repository = out / REPOSITORY
    path = model_path(repository, DEFAULT_PRESET, newest_version(repository, DEFAULT_PRESET))
    # a run that was killed leaves a folder without a model, or a model without a report
    if path.is_file() and (out / REPORT / REPORT_PAGE).is_file():
        console.print(f"already exported: {escape(str(path))}", soft_wrap=True)
        return
    # imported only now, so that a second run shows the result at once
    from turnpike.export.cli.progress import StepProgress, show_export, stoppable
    from turnpike.export.pipeline import export_model

    with stoppable() as check, StepProgress(check) as progress:
        result = export_model(out, repository, report=out / REPORT, listener=progress)
    show_export(result)


def train(out: Path) -> None:
    """Train the network, resume its training, or show the result of a finished run."""
    preset = find_preset(DEFAULT_PRESET)
    record = read_checkpoint(out / BEST_CHECKPOINT)[1] if (out / BEST_CHECKPOINT).exists() else None
    if record is not None and record.preset != DEFAULT_PRESET:
        raise ConfigError(f"--out: {out} holds a run of {record.preset}: choose another folder")
    if record is not None and "test_loss" in record.metrics:  # recorded at the end of a run
        console.print(
            f"{escape(str(out))} already holds the trained network; remove the folder to train it again"
        )
        show_result(record, out, [out / name for name in FIGURE_FILES if (out / name).exists()])
    else:
        data = read_data(preset.data, None, preset.recipe, seed=0)
        plan = RunPlan(DEFAULT_PRESET, config_for_data(preset.config, data, []), preset.recipe, data, out)
        run_training(
            plan, resume=(out / LAST_CHECKPOINT).exists(), resume_arguments=["demo", "--out", str(out)]
        )
