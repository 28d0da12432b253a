"""`turnpike demo`: the main job from nothing, on embedded data; a second run reuses what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from export.cli.export import show_export, stoppable
from export.cli.progress import StepProgress
from export.output.repository import model_path, newest_version
from export.pipeline import export_model
from models.cli.progress import console
from models.cli.train import PICTURES, fitted, read_data, run, show_result
from models.errors import ConfigError
from models.training.checkpoint import read
from models.training.presets import DEFAULT, find
from models.training.run_plan import BEST, LAST, Plan

app = typer.Typer(add_completion=False)

# within the demo's folder
REPOSITORY = "repository"
REPORT = "report"


@app.command()
def command(
    out: Annotated[Path, typer.Option(help="Where the trained network is kept.")] = Path("runs/demo"),
) -> None:
    """Train the default network on the embedded digits in some seconds, and export it with proved parity."""
    train(out)
    repository = out / REPOSITORY
    version = newest_version(repository, DEFAULT)
    if version:
        path = escape(str(model_path(repository, DEFAULT, version)))
        console.print(f"exported already: {path}", highlight=False, soft_wrap=True)
        return
    with stoppable() as check, StepProgress(check) as display:
        done = export_model(out, repository, report=out / REPORT, watcher=display)
    show_export(done)


def train(out: Path) -> None:
    """Train the network, or go on with it, or show what it reached."""
    preset = find(DEFAULT)
    record = read(out / BEST)[1] if (out / BEST).exists() else None
    if record is not None and record.preset != DEFAULT:
        raise ConfigError(f"{out} holds a run of {record.preset}: --out takes another folder")
    if record is not None and "test_accuracy" in record.metrics:  # noted when a run has gone to its end
        console.print(
            f"{escape(str(out))} holds the trained network already; remove the folder to train it anew"
        )
        show_result(record, out, [out / name for name in PICTURES if (out / name).exists()])
    else:
        data = read_data(preset.data, None, preset.recipe, seed=0)
        plan = Plan(DEFAULT, fitted(preset.config, data, []), preset.recipe, data, out)
        run(plan, resume=(out / LAST).exists(), again=["demo", "--out", str(out)])
