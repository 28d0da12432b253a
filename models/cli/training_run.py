"""A training run in the terminal: checks its folder, reads the data, trains with a bar, shows the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import typer
from rich.markup import escape

from turnpike.common.columns import ColumnKind
from turnpike.common.similar_names import similar_name
from turnpike.models.cli.columns import show_data
from turnpike.models.cli.output_folder import expect_writable
from turnpike.models.cli.progress import (
    METRICS,
    console,
    download_bar,
    metric_of,
    print_facts,
    score_text,
    shell_command,
    show_next_step,
    training_bar,
)
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.load import load_dataset
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import ConfigError
from turnpike.models.interrupt import INTERRUPTED_EXIT_STATUS, interruptible
from turnpike.models.networks.base import NetConfig, parameter_count
from turnpike.models.networks.families import build_network, expect_setting_type, lists_to_tuples
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.models.training.checkpoint import load_network as load_checkpoint
from turnpike.models.training.presets import find_preset
from turnpike.models.training.recipe import (
    MAX_TABLE_WEIGHT_DECAY,
    SMALL_TABLE_BATCH,
    SMALL_TABLE_WEIGHT_DECAY,
    TABLE_WEIGHT_DECAY_PER_EPOCH,
    Recipe,
)
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan
from turnpike.models.training.train import TrainingOutcome, train

# decided by the preset or the data, so --set refuses them
FIXED_SETTINGS = ("family", "inputs", "classes", "columns")
FIGURE_FILES = ("history.png", "misclassified.png", "predictions.png", "gates.png")


def train_preset(
    preset: str,
    folder: Path,
    *,
    data: str | None,
    table: TableOptions | None = None,
    features: Path | None = None,
    data_dir: Path | None,
    recipe: Mapping[str, Any],
    settings: Sequence[str],
    seed: int,
    device: str,
    resume: bool,
    fresh: bool,
    pictures: bool,
    interval: float | None = None,
) -> None:
    """Train a preset with the options of `turnpike train`.

    Args:
        preset: Name of the preset.
        folder: Folder of the run.
        data: Data set; None for the preset's own.
        table: For a table, what is decided about its columns.
        features: File with the names of the columns of an .npz file.
        data_dir: Folder with the original files of the data set.
        recipe: Changes of the preset's recipe.
        settings: Changes of the network, as NAME=VALUE.
        seed: Seed of all random numbers.
        device: "cpu" or "cuda".
        resume: Continue the run in the folder.
        fresh: Replace the run in the folder.
        pictures: Draw pictures of the finished run.
        interval: The share of rows whose true number intervals should hold; None for no intervals.
    """
    defaults = find_preset(preset)
    changed_recipe = replace(defaults.recipe, **recipe)
    if resume and fresh:
        raise ConfigError("--resume and --fresh: one continues the run, the other replaces it; choose one")
    expect_usable_folder(folder, resume=resume, fresh=fresh)
    dataset = read_data(data or defaults.data, data_dir, changed_recipe, seed, table, features)
    changed_recipe = recipe_for_data(changed_recipe, dataset, recipe)
    config = config_for_data(defaults.config, dataset, settings)
    plan = RunPlan(preset, config, changed_recipe, dataset, folder, seed, device, interval)
    if fresh:
        clear_folder(folder)
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--fresh")]
    run_training(plan, resume=resume, pictures=pictures, resume_arguments=[*arguments, "--resume"])
    show_next_step("export", folder, "--to", "repository", *own_data_options(data))


def own_data_options(data: str | None) -> list[str]:
    """Options of `turnpike export` for a network that was trained on a user's own file or folder."""
    return [] if data is None or not Path(data).exists() else ["--data", data]


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
    expect_writable(plan.folder)
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
    from turnpike.models.plots.run_figures import (
        draw_run,  # matplotlib is slow to import, and pictures are optional
    )

    with console.status("drawing pictures"):
        net, record = load_checkpoint(plan.folder / BEST_CHECKPOINT)
        return draw_run(plan.folder, net, record, plan.data)


def show_result(record: TrainingRecord, folder: Path, pictures: list[Path]) -> None:
    """Print the results of a run and the paths of its files."""
    metrics, history = record.metrics, record.history
    print_facts(
        [
            *score_facts(record),
            ("test loss", f"{metrics['test_loss']:.4f}"),
            (
                "validation",
                f"{METRICS[metric_of(metrics, 'valid_')]} {score_text(metrics, 'valid_')}, best in epoch "
                f"{metrics['epoch']:.0f}",
            ),
            ("training", f"{history[-1]['seconds']:.1f} s, {len(history)} epochs"),
            ("network", str(folder / BEST_CHECKPOINT)),
            *([("pictures", "\n".join(map(str, pictures)))] if pictures else []),
        ]
    )
    if warning := useless_answers(record):
        console.print(f"[yellow]warning:[/] {escape(warning)}")


def score_facts(record: TrainingRecord) -> list[tuple[str, str]]:
    """How good the answers on test rows are, beside those of the best constant answer."""
    metrics = record.metrics
    score = score_text(metrics, "test_")
    # runs of older versions have none
    if "baseline_accuracy" in metrics:
        score += f"; {metrics['baseline_accuracy']:.2%} if the answer were always the commonest class"
    facts = [(f"test {METRICS[metric_of(metrics, 'test_')]}", score)]
    if "test_mae" in metrics:
        baseline = f"{metrics['baseline_mae']:.5g} if the answer were always the mean"
        facts.append(("test error", f"{metrics['test_mae']:.5g} on average (MAE); {baseline}"))
    if "interval_level" in metrics:
        facts.append(("intervals", interval_text(metrics)))
    if "test_balanced_accuracy" in metrics:
        baseline = f"{1 / len(record.data['labels']):.2%} if the answer were always the same"
        facts.append(("balanced", f"accuracy {metrics['test_balanced_accuracy']:.2%}; {baseline}"))
    if "test_rarest_recall" in metrics:
        rarest = record.data["labels"][int(metrics["rarest_class"])]
        facts.append(("rarest class", f"{metrics['test_rarest_recall']:.2%} of {rarest!r} found"))
    return facts


def interval_text(metrics: Mapping[str, float]) -> str:
    """How wide intervals are, and how many true numbers of the test rows they hold."""
    width, level = metrics["interval_half_width"], metrics["interval_level"]
    return (
        f"± {width:.5g}, to hold {level:.4g} of the true numbers: by {metrics['interval_rows']:,.0f} "
        f"validation rows; {metrics['test_interval_coverage']:.2%} of the test rows"
    )


def useless_answers(record: TrainingRecord) -> str:
    """Says that a constant answer is as good as the network, if so."""
    metrics = record.metrics
    if metrics.get("baseline_accuracy") == 1:
        return "all test rows are of the commonest class, so they say nothing of the others"
    if "baseline_accuracy" in metrics and metrics["test_accuracy"] <= metrics["baseline_accuracy"]:
        return (
            f"answering the commonest class every time is right in {metrics['baseline_accuracy']:.2%} of "
            "the test rows, too: the network has learned nothing of use. More --epochs, another --lr or "
            "--class-weights may help, or the rows do not tell the classes apart."
        )
    if "test_r2" in metrics and metrics["test_r2"] <= 0:
        return (
            "answering the mean every time is as good: the network has learned nothing of use. "
            "More --epochs or another --lr may help, or the columns do not tell the number."
        )
    return ""


def expect_usable_folder(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Raise a ConfigError if a run would be overwritten, there is none to resume, or it is unwritable."""
    expect_writable(folder)
    existing = [name for name in (BEST_CHECKPOINT, LAST_CHECKPOINT) if (folder / name).exists()]
    if existing and not (resume or fresh):
        raise ConfigError(
            f"{folder} already holds a run: --resume continues it, --fresh replaces it, "
            "and --out chooses another folder"
        )
    if resume and LAST_CHECKPOINT not in existing:
        raise ConfigError(
            f"{folder} holds no run to resume (expected {LAST_CHECKPOINT} in it); --fresh starts a new one"
        )


def clear_folder(folder: Path) -> None:
    """Remove the files of a run from its folder, and nothing else."""
    for name in (BEST_CHECKPOINT, LAST_CHECKPOINT, *FIGURE_FILES):
        (folder / name).unlink(missing_ok=True)


def read_data(
    source: str,
    data_dir: Path | None,
    recipe: Recipe,
    seed: int,
    table: TableOptions | None = None,
    features: Path | None = None,
) -> Dataset:
    """Load a data set, with a progress bar if it is downloaded."""
    with download_bar() as progress:
        dataset = load_dataset(
            source,
            table=table,
            features=features,
            data_dir=data_dir,
            test_fraction=recipe.test_fraction,
            seed=seed,
            progress=progress,
        )
    if dataset.columns:
        show_data(dataset, table or TableOptions())
    return dataset


def recipe_for_data(recipe: Recipe, data: Dataset, chosen: Collection[str]) -> Recipe:
    """Return the recipe of a preset for other data.

    Args:
        recipe: The preset's recipe with the user's changes.
        data: The data to train on.
        chosen: Names of the settings that the user changed, which stay as they are.
    """
    changes: dict[str, Any] = {}
    if len(data.inputs) != 3:
        # the preset's own changes of images do not apply; those that the user asks for are an error
        changes |= {"shift": 0, "distort": 0, "thickness": 0}
    if data.is_small_table:
        changes["batch"] = min(recipe.batch, SMALL_TABLE_BATCH)
        changes["weight_decay"] = max(recipe.weight_decay, SMALL_TABLE_WEIGHT_DECAY)
    elif data.is_table:
        per_step = TABLE_WEIGHT_DECAY_PER_EPOCH * recipe.batch / len(data.train)
        changes["weight_decay"] = max(recipe.weight_decay, min(per_step, MAX_TABLE_WEIGHT_DECAY))
    return replace(recipe, **{name: value for name, value in changes.items() if name not in chosen})


def config_for_data(config: NetConfig, data: Dataset, settings: Sequence[str]) -> NetConfig:
    """Return the config of a preset for other data, with settings changed by NAME=VALUE.

    A value that is not valid JSON is taken as a word. The columns of a table are standardized one by one,
    unless `scaling` is set.
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
            similar = similar_name(name, names)
            question = f". Did you mean {similar!r}?" if similar else ""
            raise ConfigError(
                f"--set: expected a setting of {config.family} ({', '.join(names)}), got {name!r}{question}"
            )
        changes[name] = _parse_value(text)
        expect_setting_type(type(config), name, changes[name])
    specs = column_specs(data)
    if data.is_table and (config.scaling != "none" or specs):
        changes.setdefault("scaling", "columns")
        if changes["scaling"] == "columns":
            changes["columns"] = specs
        elif specs:
            raise ConfigError(
                f"--set: scaling={changes['scaling']} needs numbers without blanks in all columns, and "
                f"{data.name} has others: leave it out, or --drop them"
            )
    return config.for_data(data.inputs, data.classes, len(data.alphabet), **changes)


def column_specs(data: Dataset) -> tuple[tuple[ColumnKind, int, bool], ...]:
    """What the network knows of a table's columns; nothing if all are numbers without blanks."""
    used = [(column.form, column.blanks) for column in data.columns if column.form is not None]
    # a blank that only other rows than those of the training have needs its median, too
    if all(form.kind == "number" and not blanks for form, blanks in used):
        return ()
    # only blanks that training has seen say something
    blanks = data.train.x.isnan().any(0).tolist()
    return tuple(
        (form.kind, len(form.categories), blank) for (form, _), blank in zip(used, blanks, strict=True)
    )


def _parse_value(text: str) -> Any:
    try:
        return lists_to_tuples(json.loads(text))
    except ValueError:
        return text


def _without_weights(config: NetConfig) -> torch.nn.Module:
    """Build a network on the meta device, which allocates no weights, to count its parameters."""
    with torch.device("meta"):
        return build_network(config)
