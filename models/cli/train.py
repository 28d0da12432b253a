"""`turnpike train`: trains the network of a preset and writes checkpoints and pictures to a folder."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape
from rich.table import Table

from models.cli.progress import console, download_bar, print_facts, shell_command, training_bar
from models.data.dataset import Dataset
from models.data.load import known_datasets, load_dataset
from models.errors import ConfigError
from models.interrupt import INTERRUPTED_EXIT_STATUS, interruptible
from models.networks.base import NetConfig, parameter_count
from models.networks.families import build_network, expect_setting_type, lists_to_tuples
from models.training.checkpoint import TrainingRecord
from models.training.checkpoint import load_network as load_checkpoint
from models.training.presets import DEFAULT_PRESET, PRESETS, find_preset
from models.training.recipe import Recipe
from models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan
from models.training.train import TrainingOutcome, train

app = typer.Typer(add_completion=False)

RUNS_FOLDER = Path("runs")

FIXED_SETTINGS = ("family", "inputs", "classes")  # decided by the preset or the data, so --set refuses them
FIGURE_FILES = ("history.png", "misclassified.png", "gates.png")


def _complete_preset(incomplete: str) -> list[tuple[str, str]]:
    return [(name, preset.description) for name, preset in PRESETS.items() if name.startswith(incomplete)]


def _complete_data(incomplete: str) -> list[str]:
    return [name for name in known_datasets() if name.startswith(incomplete)]


PresetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PRESET", help="The network to train; --list shows all.", autocompletion=_complete_preset
    ),
]
Listing = Annotated[bool, typer.Option("--list", help="List all presets with their sizes, and exit.")]
Data = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(known_datasets())}, or the path of an .npz file or a folder of images.",
        autocompletion=_complete_data,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="TURNPIKE_DATA", help="Folder with the original files; nothing is downloaded."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the network; can be repeated."),
]
Threads = Annotated[int | None, typer.Option(help="Number of threads; 0 for one per core.")]


@app.command()
def command(
    preset: PresetArgument = None,
    listing: Listing = False,
    data: Data = None,
    data_dir: DataDir = None,
    epochs: Annotated[int | None, typer.Option(help="Number of passes over the training rows.")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; with a schedule, the highest one.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Schedule of the learning rate: constant, cosine or onecycle.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled weight decay.")] = None,
    clip: Annotated[
        float | None, typer.Option(help="Upper bound of the gradient's norm; 0 for none.")
    ] = None,
    shift: Annotated[int | None, typer.Option(help="Move training images by up to this many pixels.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.")] = None,
    test_fraction: Annotated[
        float | None, typer.Option(help="Split all rows at random, with this share for the test.")
    ] = None,
    settings: Set = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Threads = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/PRESET")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the run in the folder.")] = False,
    pictures: Annotated[bool, typer.Option(help="Draw the history, misclassified rows and gates.")] = True,
) -> None:
    """Train PRESET and write the best network to a folder, with pictures of the run.

    Ctrl-C saves the run. The same command with --resume continues it, and ends
    with the same weights as a run that was never stopped.
    """
    if listing:
        list_presets()
        return
    if preset is None:
        raise ConfigError(f"PRESET: expected one of {', '.join(PRESETS)}; turnpike train --list shows them")
    defaults = find_preset(preset)
    options: dict[str, Any] = {
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "clip": clip,
        "shift": shift,
        "precision": precision,
        "test_fraction": test_fraction,
        "threads": threads,
    }
    recipe = replace(defaults.recipe, **{name: value for name, value in options.items() if value is not None})
    if resume and fresh:
        raise ConfigError("--resume and --fresh: one continues the run, the other replaces it; choose one")
    folder = out or RUNS_FOLDER / preset
    expect_usable_folder(folder, resume=resume, fresh=fresh)
    dataset = read_data(data or defaults.data, data_dir, recipe, seed)
    config = config_for_data(defaults.config, dataset, settings or [])
    plan = RunPlan(preset, config, recipe, dataset, folder, seed=seed, device=device)
    if fresh:
        clear_folder(folder)
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--fresh")]
    run_training(plan, resume=resume, pictures=pictures, resume_arguments=[*arguments, "--resume"])


def run_training(
    plan: RunPlan, *, resume_arguments: list[str], resume: bool = False, pictures: bool = True
) -> TrainingOutcome:
    """Train with a progress bar, draw the pictures, and print the result.

    Args:
        plan: What to train.
        resume_arguments: The arguments of `turnpike` that continue this run, printed if it is stopped.
        resume: Continue the run in the plan's folder.
        pictures: Draw pictures of the finished run.
    """
    if plan.folder.is_file():
        raise ConfigError(f"--out: expected a folder, got the file {plan.folder}")
    plan.folder.mkdir(parents=True, exist_ok=True)
    size = parameter_count(_without_weights(plan.config))
    console.print(
        f"{plan.preset} on {escape(plan.data.name)}: {size:,} parameters, "
        f"{len(plan.data.train):,} training rows"
    )
    with interruptible() as should_stop, training_bar(plan.preset) as on_step:
        outcome = train(plan, resume=resume, on_step=on_step, should_stop=should_stop)
    if not outcome.finished:
        continue_command = shell_command(["turnpike", *resume_arguments])
        console.print(
            f"Stopped after step {outcome.state.step:,} of {plan.steps:,} and saved in "
            f"{escape(str(plan.folder))}. To continue: [bold]{escape(continue_command)}[/]",
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED_EXIT_STATUS)
    show_result(outcome.record, plan.folder, draw_figures(plan) if pictures else [])
    return outcome


def draw_figures(plan: RunPlan) -> list[Path]:
    """Draw the pictures of a run, with its best network, which is not always the last one."""
    from models.plots.run import draw_run  # matplotlib is slow to import, and pictures are optional

    with console.status("drawing pictures"):
        net, record = load_checkpoint(plan.folder / BEST_CHECKPOINT)
        return draw_run(plan.folder, net, record, plan.data)


def show_result(record: TrainingRecord, folder: Path, pictures: list[Path]) -> None:
    """Print the results of a run and the paths of its files."""
    metrics, history = record.metrics, record.history
    print_facts(
        [
            ("test accuracy", f"{metrics['test_accuracy']:.2%}"),
            ("test loss", f"{metrics['test_loss']:.4f}"),
            ("validation", f"{metrics['valid_accuracy']:.2%} accuracy, best in epoch {metrics['epoch']:.0f}"),
            ("training", f"{history[-1]['seconds']:.1f} s, {len(history)} epochs"),
            ("network", str(folder / BEST_CHECKPOINT)),
            *([("pictures", "\n".join(map(str, pictures)))] if pictures else []),
        ]
    )


def list_presets() -> None:
    """Print a table of all presets."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("preset", "parameters", "data", "description"):
        table.add_column(
            title, justify="right" if title == "parameters" else "left", no_wrap=title == "preset"
        )
    for name, preset in PRESETS.items():
        size = parameter_count(_without_weights(preset.config))
        label = f"[bold]{name}[/]" if name == DEFAULT_PRESET else name
        table.add_row(label, f"{size:,}", preset.data, preset.description)
    console.print(table)


def expect_usable_folder(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Raise a ConfigError if a run would be overwritten, or if there is no run to resume."""
    existing = [name for name in (BEST_CHECKPOINT, LAST_CHECKPOINT) if (folder / name).exists()]
    if existing and not (resume or fresh):
        raise ConfigError(
            f"{folder} already holds a run: --resume continues it, --fresh replaces it, "
            "and --out chooses another folder"
        )
    if resume and LAST_CHECKPOINT not in existing:
        raise ConfigError(f"{folder} holds no run to resume (expected {LAST_CHECKPOINT} in it)")


def clear_folder(folder: Path) -> None:
    """Remove the files of a run from its folder, and nothing else."""
    for name in (BEST_CHECKPOINT, LAST_CHECKPOINT, *FIGURE_FILES):
        (folder / name).unlink(missing_ok=True)


def read_data(source: str, data_dir: Path | None, recipe: Recipe, seed: int) -> Dataset:
    """Load a data set, with a progress bar if it is downloaded."""
    with download_bar() as progress:
        return load_dataset(
            source, data_dir=data_dir, test_fraction=recipe.test_fraction, seed=seed, progress=progress
        )


def config_for_data(config: NetConfig, data: Dataset, settings: list[str]) -> NetConfig:
    """Return the config of a preset for other data, with settings changed by NAME=VALUE.

    A value that is not valid JSON is taken as a word.
    """
    names = [name for name in config.to_dict() if name not in FIXED_SETTINGS]
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set: expected NAME=VALUE, got {setting!r}")
        if name in FIXED_SETTINGS:
            raise ConfigError(f"--set: {name} cannot be set: the preset or the data decide it")
        if name not in names:
            raise ConfigError(
                f"--set: expected a setting of {config.family} ({', '.join(names)}), got {name!r}"
            )
        changes[name] = _parse_value(text)
        expect_setting_type(type(config), name, changes[name])
    return config.for_data(data.inputs, data.classes, len(data.alphabet), **changes)


def _parse_value(text: str) -> Any:
    try:
        return lists_to_tuples(json.loads(text))
    except ValueError:
        return text


def _without_weights(config: NetConfig) -> torch.nn.Module:
    """Build a network on the meta device, which allocates no weights, to count its parameters."""
    with torch.device("meta"):
        return build_network(config)
