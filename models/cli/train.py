"""`turnpike train`: from a preset's name to a trained network, its figures and its pictures."""

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

FIXED_SETTINGS = ("family", "inputs", "classes")
FIGURE_FILES = ("history.png", "misclassified.png", "gates.png")


def _complete_preset(incomplete: str) -> list[tuple[str, str]]:
    return [(name, preset.about) for name, preset in PRESETS.items() if name.startswith(incomplete)]


def _complete_data(incomplete: str) -> list[str]:
    return [name for name in known_datasets() if name.startswith(incomplete)]


Preset = Annotated[
    str | None,
    typer.Argument(metavar="PRESET", help="Which network; see --list.", autocompletion=_complete_preset),
]
Listing = Annotated[bool, typer.Option("--list", help="List the presets with their sizes, and exit.")]
Data = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(known_datasets())}, parity-K, or a path to your .npz or folder of images.",
        autocompletion=_complete_data,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="TURNPIKE_DATA", help="Read the original files from here; nothing is downloaded."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one setting of the network; may be repeated."),
]
Threads = Annotated[int | None, typer.Option(help="Threads to compute with; 0 for one a core.")]


@app.command()
def command(
    preset: Preset = None,
    listing: Listing = False,
    data: Data = None,
    data_dir: DataDir = None,
    epochs: Annotated[int | None, typer.Option(help="How often to go through the data.")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows in a step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate, the highest where it changes.")] = None,
    schedule: Annotated[str | None, typer.Option(help="constant, cosine or onecycle.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled decay of the weights.")] = None,
    clip: Annotated[float | None, typer.Option(help="Bound on the gradient's norm; 0 for none.")] = None,
    shift: Annotated[int | None, typer.Option(help="Move training images by up to so many pixels.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or bf16.")] = None,
    test_fraction: Annotated[
        float | None, typer.Option(help="Split all rows anew at random, so many for the test.")
    ] = None,
    settings: Set = None,
    seed: Annotated[int, typer.Option(help="Everything random comes from it.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Threads = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. [default: runs/PRESET]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the run in the folder.")] = False,
    pictures: Annotated[bool, typer.Option(help="Draw history, misclassified rows and gates.")] = True,
) -> None:
    """Train PRESET and keep the best network in a folder, with pictures of how it went.

    Ctrl-C saves the run; the same command with --resume goes on, to the same weights as without a stop.
    """
    if listing:
        list_presets()
        return
    if preset is None:
        raise ConfigError(f"PRESET: expected one of {', '.join(PRESETS)}; turnpike train --list shows them")
    chosen = find_preset(preset)
    given: dict[str, Any] = {
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
    recipe = replace(chosen.recipe, **{name: value for name, value in given.items() if value is not None})
    if resume and fresh:
        raise ConfigError("--resume and --fresh: one continues the run, the other replaces it; choose one")
    folder = out or RUNS_FOLDER / preset
    expect_usable_folder(folder, resume=resume, fresh=fresh)
    rows = read_data(data or chosen.data, data_dir, recipe, seed)
    config = config_for_data(chosen.config, rows, settings or [])
    plan = RunPlan(preset, config, recipe, rows, folder, seed=seed, device=device)
    if fresh:
        clear_folder(folder)
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--fresh")]
    run_training(plan, resume=resume, pictures=pictures, again=[*words, "--resume"])


def run_training(
    plan: RunPlan, *, again: list[str], resume: bool = False, pictures: bool = True
) -> TrainingOutcome:
    """Train with a live bar, draw the pictures, and say what was reached and where it lies.

    `again` are the words after `turnpike` that go on with the run, should it be stopped.
    """
    if plan.folder.is_file():
        raise ConfigError(f"--out: expected a folder, and {plan.folder} is a file")
    plan.folder.mkdir(parents=True, exist_ok=True)
    size = parameter_count(_without_weights(plan.config))
    console.print(
        f"{plan.preset} on {escape(plan.data.name)}: {size:,} parameters, {len(plan.data.train):,} rows"
    )
    with interruptible() as stop, training_bar(plan.preset) as tell:
        outcome = train(plan, resume=resume, tell=tell, stop=stop)
    if not outcome.finished:
        console.print(
            f"Stopped after step {outcome.place.step:,} of {plan.steps:,}, and saved in "
            f"{escape(str(plan.folder))}. To go on: [bold]{escape(shell_command(['turnpike', *again]))}[/]",
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED_EXIT_STATUS)
    show_result(outcome.record, plan.folder, draw_figures(plan) if pictures else [])
    return outcome


def draw_figures(plan: RunPlan) -> list[Path]:
    """Draw the best network of a run, which is not the one that training ended with."""
    from models.plots.run import draw_run  # matplotlib takes its time, and not every run wants pictures

    with console.status("drawing"):
        net, record = load_checkpoint(plan.folder / BEST_CHECKPOINT)
        return draw_run(plan.folder, net, record, plan.data)


def show_result(record: TrainingRecord, folder: Path, pictures: list[Path]) -> None:
    """What a run reached, and where it lies."""
    metrics, history = record.metrics, record.history
    print_facts(
        [
            ("test accuracy", f"{metrics['test_accuracy']:.2%}"),
            ("test loss", f"{metrics['test_loss']:.4f}"),
            ("validation", f"{metrics['valid_accuracy']:.2%}, the best, in epoch {metrics['epoch']:.0f}"),
            ("training", f"{history[-1]['seconds']:.1f} s, {len(history)} epochs"),
            ("network", str(folder / BEST_CHECKPOINT)),
            *([("pictures", "\n".join(map(str, pictures)))] if pictures else []),
        ]
    )


def list_presets() -> None:
    """Every preset with its parameters, as a table."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("preset", "parameters", "data", "about"):
        table.add_column(
            title, justify="right" if title == "parameters" else "left", no_wrap=title == "preset"
        )
    for name, preset in PRESETS.items():
        size = parameter_count(_without_weights(preset.config))
        label = f"[bold]{name}[/]" if name == DEFAULT_PRESET else name
        table.add_row(label, f"{size:,}", preset.data, preset.about)
    console.print(table)


def expect_usable_folder(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Nothing is overwritten unasked, and nothing is resumed that is not there."""
    held = [name for name in (BEST_CHECKPOINT, LAST_CHECKPOINT) if (folder / name).exists()]
    if held and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds a run already: --resume goes on with it, --fresh replaces it, "
            "and --out takes another folder"
        )
    if resume and LAST_CHECKPOINT not in held:
        raise ConfigError(f"{folder} holds no run to resume (expected {LAST_CHECKPOINT} in it)")


def clear_folder(folder: Path) -> None:
    """Remove what a run left in its folder, and nothing else."""
    for name in (BEST_CHECKPOINT, LAST_CHECKPOINT, *FIGURE_FILES):
        (folder / name).unlink(missing_ok=True)


def read_data(source: str, data_dir: Path | None, recipe: Recipe, seed: int) -> Dataset:
    """The rows, with a bar while they are downloaded."""
    with download_bar() as progress:
        return load_dataset(
            source, data_dir=data_dir, test_fraction=recipe.test_fraction, seed=seed, progress=progress
        )


def config_for_data(config: NetConfig, data: Dataset, settings: list[str]) -> NetConfig:
    """The preset's network for the data at hand, with some settings given as NAME=VALUE.

    A value is JSON where it is some, and a word otherwise.
    """
    names = [name for name in config.to_dict() if name not in FIXED_SETTINGS]
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set: expected NAME=VALUE, got {setting!r}")
        if name in FIXED_SETTINGS:
            raise ConfigError(f"--set: {name} is not for setting: the preset or the data decide it")
        if name not in names:
            raise ConfigError(f"--set: {config.family} has {', '.join(names)}; got {name!r}")
        changes[name] = _parse_value(text)
        expect_setting_type(type(config), name, changes[name])
    return config.for_data(data.inputs, data.classes, len(data.alphabet), **changes)


def _parse_value(text: str) -> Any:
    try:
        return lists_to_tuples(json.loads(text))
    except ValueError:
        return text


def _without_weights(config: NetConfig) -> torch.nn.Module:
    """The network without its numbers: enough to count them."""
    with torch.device("meta"):
        return build_network(config)
