"""`turnpike demo`: train and export the default network on embedded data. A second run reuses the first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from export.cli.progress import StepProgress, show_export, stoppable
from export.output.repository import model_path, newest_version
from export.pipeline import export_model
from models.cli.progress import console
from models.cli.train import FIGURE_FILES, config_for_data, read_data, run_training, show_result
from models.errors import ConfigError
from models.training.checkpoint import read_checkpoint
from models.training.presets import DEFAULT_PRESET, find_preset
from models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan

app = typer.Typer(add_completion=False)

# sub-folders of --out
REPOSITORY = "repository"
REPORT = "report"


@app.command()
def command(
    out: Annotated[
        Path, typer.Option(help="Folder for the trained network, the model repository and the report.")
    ] = Path("runs/demo"),
) -> None:
    """Train the default network on the embedded digits in a few seconds, and export it with proved parity."""
    train(out)
    repository = out / REPOSITORY
    version = newest_version(repository, DEFAULT_PRESET)
    if version:
        path = escape(str(model_path(repository, DEFAULT_PRESET, version)))
        console.print(f"already exported: {path}", highlight=False, soft_wrap=True)
        return
    with stoppable() as check, StepProgress(check) as progress:
        result = export_model(out, repository, report=out / REPORT, listener=progress)
    show_export(result)


def train(out: Path) -> None:
    """Train the network, resume its training, or show the result of a finished run."""
    preset = find_preset(DEFAULT_PRESET)
    record = read_checkpoint(out / BEST_CHECKPOINT)[1] if (out / BEST_CHECKPOINT).exists() else None
    if record is not None and record.preset != DEFAULT_PRESET:
        raise ConfigError(f"--out: {out} holds a run of {record.preset}: choose another folder")
    if record is not None and "test_accuracy" in record.metrics:  # recorded at the end of a run
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
