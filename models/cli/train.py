"""`turnpike train`: trains the network of a preset and writes checkpoints and pictures to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from turnpike.models.choices import DATASETS, DEFAULT_PRESET, PRESET_SUMMARIES
from turnpike.models.cli.progress import console, quiet_console
from turnpike.models.errors import ConfigError
from turnpike.models.imports import collector_paused

app = typer.Typer(add_completion=False)

RUNS_FOLDER = Path("runs")
PRESETS_OWN = "the preset's"  # shown as the default of options that change the recipe


def _complete_preset(incomplete: str) -> list[tuple[str, str]]:
    return [
        (name, preset.description) for name, preset in PRESET_SUMMARIES.items() if name.startswith(incomplete)
    ]


def _complete_data(incomplete: str) -> list[str]:
    return [name for name in DATASETS if name.startswith(incomplete)]


PresetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PRESET",
        help="The network to train; --list shows all.",
        show_default=f"{DEFAULT_PRESET} with --data",
        autocompletion=_complete_preset,
    ),
]
Listing = Annotated[bool, typer.Option("--list", help="List all presets with their sizes, and exit.")]
Data = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(DATASETS)}, or the path of a .csv, .parquet or .npz file or a folder of images.",
        autocompletion=_complete_data,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of a table to predict.", show_default="the last column"),
]
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="What the column to predict is: classes or number.",
        show_default="by its values",
    ),
]
Interval = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Add intervals to a predicted number that hold the true one in this share of rows, such as 0.9.",
        show_default="none",
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="COLUMN", help="Leave out a column; can be repeated.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="COLUMN", help="Use a column that seems to say nothing; can be repeated."),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COLUMN=KIND",
        help="Kind of a column: number, boolean, category, date or date:FORMAT; can be repeated.",
    ),
]
Columns = Annotated[
    bool, typer.Option("--columns", help="Show what the columns of the table hold, and exit.")
]
TimeColumn = Annotated[
    str | None,
    typer.Option(
        "--time-column",
        metavar="COLUMN",
        help="Split a table by these dates or numbers: the last rows are the test rows.",
        show_default="split at random",
    ),
]
Features = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Names of the columns of an .npz file, one per line."),
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="TURNPIKE_DATA", help="Folder with the original files; nothing is downloaded."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the network; can be repeated."),
]
Threads = Annotated[
    int | None, typer.Option(help="Number of threads; 0 for one per core.", show_default=PRESETS_OWN)
]


@app.command()
def command(
    preset: PresetArgument = None,
    listing: Listing = False,
    data: Data = None,
    target: Target = None,
    task: TaskOption = None,
    interval: Interval = None,
    drop: Drop = None,
    keep: Keep = None,
    kinds: Kinds = None,
    columns: Columns = False,
    time_column: TimeColumn = None,
    features: Features = None,
    data_dir: DataDir = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs", "-n", help="Number of passes over the training rows.", show_default=PRESETS_OWN
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Rows per step.", show_default=PRESETS_OWN)] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate; with a schedule, the highest one.", show_default=PRESETS_OWN),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Schedule of the learning rate: constant, cosine or onecycle.", show_default=PRESETS_OWN
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Decoupled weight decay.", show_default=PRESETS_OWN)
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Upper bound of the gradient's norm; 0 for none.", show_default=PRESETS_OWN),
    ] = None,
    gate_budget: Annotated[
        float | None,
        typer.Option(
            help="Add this many times the mean gate of each layer to the loss, so that gates stay closed.",
            show_default=PRESETS_OWN,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(help="Move training images by up to this many pixels.", show_default=PRESETS_OWN),
    ] = None,
    distort: Annotated[
        float | None,
        typer.Option(
            help="Rotate, shear and scale training images by up to this share.", show_default=PRESETS_OWN
        ),
    ] = None,
    thickness: Annotated[
        float | None,
        typer.Option(
            help="Thicken and thin lines of training images; 0.5 is a lot.", show_default=PRESETS_OWN
        ),
    ] = None,
    class_weights: Annotated[
        bool | None,
        typer.Option(
            "--class-weights", help="Count all classes the same, however rare.", show_default=PRESETS_OWN
        ),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.", show_default=PRESETS_OWN)] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option(
            help="Split all rows at random, with this share for the test.",
            show_default="the data's own split",
        ),
    ] = None,
    settings: Set = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Threads = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run.", show_default="runs/PRESET")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the run in the folder.")] = False,
    pictures: Annotated[bool, typer.Option(help="Draw the history, misclassified rows and gates.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train PRESET and write the best network to a folder, with pictures of the run.

    Ctrl-C saves the run. The same command with --resume continues it, and ends
    with the same weights as a run that was never stopped.
    """
    if listing:
        list_presets()
        return
    table_choices: dict[str, Any] = {
        "target": target,
        "task": task,
        "drop": drop or (),
        "keep": keep or (),
        "kinds": kinds or (),
        "time_column": time_column,
    }
    if columns:
        with collector_paused():
            from turnpike.models.cli.columns import show_table
            from turnpike.models.data.table.options import table_options
        show_table(data, table_options(**table_choices))
        return
    if preset is None:
        if data is None:
            raise ConfigError(
                f"PRESET: expected a network, such as {DEFAULT_PRESET}; turnpike train --list shows all"
            )
        preset = DEFAULT_PRESET
        if not quiet:
            console.print(f"No PRESET: training {preset}; turnpike train --list shows others.")
    with collector_paused():
        from turnpike.models.cli.training_run import train_preset
        from turnpike.models.data.table.options import table_options
    recipe: dict[str, Any] = {
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "clip": clip,
        "gate_budget": gate_budget,
        "shift": shift,
        "distort": distort,
        "thickness": thickness,
        "class_weights": class_weights,
        "precision": precision,
        "test_fraction": test_fraction,
        "threads": threads,
    }
    with quiet_console(quiet=quiet):
        train_preset(
            preset,
            out or RUNS_FOLDER / preset,
            data=data,
            table=table_options(**table_choices),
            features=features,
            data_dir=data_dir,
            recipe={name: value for name, value in recipe.items() if value is not None},
            settings=settings or [],
            seed=seed,
            device=device,
            resume=resume,
            fresh=fresh,
            pictures=pictures,
            interval=interval,
        )


def list_presets() -> None:
    """Print a table of all presets."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("preset", "parameters", "data", "description"):
        table.add_column(
            title, justify="right" if title == "parameters" else "left", no_wrap=title == "preset"
        )
    for name, preset in PRESET_SUMMARIES.items():
        label = f"[bold]{name}[/]" if name == DEFAULT_PRESET else name
        table.add_row(label, f"{preset.parameters:,}", preset.data, preset.description)
    console.print(table)
