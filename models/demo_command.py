"""`turnpike demo`: the main job from nothing, on embedded data; a second run reuses the first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from models.checkpoint import read
from models.display import console
from models.plan import BEST, LAST, Plan
from models.presets import DEFAULT, find
from models.train_command import fitted, read_data, run, show_result

app = typer.Typer(add_completion=False)


@app.command()
def command(
    out: Annotated[Path, typer.Option(help="Where the trained network is kept.")] = Path("runs/demo"),
) -> None:
    """Train the default network on the embedded digits in some seconds, and say what it reached."""
    preset = find(DEFAULT)
    if is_finished(out):
        _, record = read(out / BEST)
        console.print(f"{out} holds the trained network already; remove the folder to train it anew")
        show_result(record, out)
    else:
        data = read_data(preset.data, None, preset.recipe, seed=0)
        plan = Plan(DEFAULT, fitted(preset.config, data), preset.recipe, data, out)
        run(plan, resume=(out / LAST).exists())


def is_finished(folder: Path) -> bool:
    """Whether a run in the folder went to its end, which is when its test result is noted."""
    return (folder / BEST).exists() and "test_accuracy" in read(folder / BEST)[1].metrics
