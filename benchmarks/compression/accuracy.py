"""Compares ways to make a highway network smaller: by its gates, by magnitude, and trained small at once.

    python -m benchmarks.compression.accuracy --data mnist --runs runs/compression

The networks have 20 highway layers of 128 units. For each seed it trains one plainly, one with a gate budget,
and two narrow ones with about a fifth and a tenth of the multiplications; runs that are in the folder already
are used again. Then it removes units in three ways, trains each result for two epochs, and prints the test
accuracy: mean and standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from turnpike.export.compress.graph.cut_graph import Kept
from turnpike.export.compress.graph.removable_layers import find_removable_layers
from turnpike.export.compress.selection import most_important
from turnpike.export.compress.unit_changes import measure_changes
from turnpike.export.compress.whole_network import read_whole_network
from turnpike.export.network import Array
from turnpike.export.options import SourceOptions
from turnpike.export.sources.data.rows import read_split_rows
from turnpike.export.steps import Steps
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.load import load_dataset
from turnpike.models.layers.gate import GatedJoin
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.checkpoint import load_network, read_checkpoint
from turnpike.models.training.finetune import finetune
from turnpike.models.training.presets import find_preset
from turnpike.models.training.run_plan import BEST_CHECKPOINT, RunPlan
from turnpike.models.training.train import train

SEEDS = (0, 1, 2)
LAYERS, WIDTH = 20, 128
# a width with about the share of the multiplications of the layers: (57 / 128)^2 is a fifth
NARROW_WIDTHS = {0.2: 57, 0.1: 40}
SHARES = (0.2, 0.1, 0.05)
EPOCHS, BUDGET_EPOCHS, FINETUNE_EPOCHS = 8, 6, 2
GATE_BUDGET = 0.05


@dataclass(frozen=True)
class Run:
    """A training run: the name of its folder, its width, its epochs and its gate budget."""

    name: str
    width: int
    epochs: int
    gate_budget: float = 0.0


PLAIN, BUDGETED = Run("p128", WIDTH, EPOCHS), Run("b128", WIDTH, BUDGET_EPOCHS, GATE_BUDGET)
NARROW = {share: Run(f"s{width}", width, EPOCHS) for share, width in NARROW_WIDTHS.items()}


def main() -> None:
    """Train what is missing, measure all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="mnist", help="mnist or fashion-mnist")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("TURNPIKE_DATA"))
    parser.add_argument("--runs", type=Path, required=True, help="folder of the training runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    accuracies: defaultdict[str, list[float]] = defaultdict(list)
    for seed in SEEDS:
        data = load_dataset(arguments.data, data_dir=arguments.data_dir, seed=seed)
        for name, accuracy in measure(data, arguments.data_dir, arguments.runs, seed):
            accuracies[name].append(100 * accuracy)
            print(f"seed {seed}: {name}: {accuracy:.2%}", flush=True)
    print("\n| network | accuracy, % | standard deviation |\n| --- | ---: | ---: |")
    for name, values in accuracies.items():
        print(f"| {name} | {statistics.mean(values):.2f} | {statistics.stdev(values):.2f} |")


def measure(data: Dataset, data_dir: Path | None, runs: Path, seed: int) -> Iterator[tuple[str, float]]:
    """The test accuracy of each network, for one seed."""
    plain, budgeted = (trained(run, data, runs, seed) for run in (PLAIN, BUDGETED))
    yield f"whole, {EPOCHS} epochs", tested(plain)
    yield f"whole, {EPOCHS} + {FINETUNE_EPOCHS} epochs", tested_after_cut(plain, {}, data)
    yield f"whole, {BUDGET_EPOCHS} epochs with gate budget", tested(budgeted)
    importances = {path: gate_importance(path, data.name, data_dir) for path in (plain, budgeted)}
    for share in SHARES:
        kept = most_important(importances[budgeted], share)
        name = f"{BUDGET_EPOCHS} epochs with gate budget, cut by gates, {FINETUNE_EPOCHS} epochs"
        yield f"{share:.0%} of the units: {name}", tested_after_cut(budgeted, kept, data)
        for measure_name, importance in (
            ("gates", importances[plain]),
            ("magnitude", magnitudes(plain)),
        ):
            kept = most_important(importance, share)
            name = f"{EPOCHS} epochs, cut by {measure_name}, {FINETUNE_EPOCHS} epochs"
            yield f"{share:.0%} of the units: {name}", tested_after_cut(plain, kept, data)
        if share in NARROW:
            yield (
                f"{share:.0%} of the multiplications: {NARROW_WIDTHS[share]} units, {EPOCHS} epochs",
                tested(trained(NARROW[share], data, runs, seed)),
            )


def trained(run: Run, data: Dataset, runs: Path, seed: int) -> Path:
    """The checkpoint of a run, which is trained unless it is there."""
    folder = runs / f"{run.name}-{data.name}-{seed}"
    if not (folder / BEST_CHECKPOINT).exists():
        preset = find_preset("fig1-20")
        if not isinstance(preset.config, MlpConfig):
            raise TypeError(f"fig1-20: expected an MLP, got {preset.config.family}")
        config = replace(preset.config, width=run.width, layers=LAYERS)
        recipe = replace(preset.recipe, epochs=run.epochs, gate_budget=run.gate_budget)
        train(RunPlan("fig1-20", config, recipe, data, folder, seed=seed))
    return folder / BEST_CHECKPOINT


def tested(checkpoint: Path) -> float:
    """The test accuracy that a run has recorded."""
    return read_checkpoint(checkpoint)[1].metrics["test_accuracy"]


def tested_after_cut(checkpoint: Path, kept: Kept, data: Dataset) -> float:
    """The test accuracy after the other units were shut and the rest was trained."""
    with tempfile.TemporaryDirectory() as folder:
        return tested(finetune(checkpoint, kept, data, FINETUNE_EPOCHS, Path(folder)))


def gate_importance(checkpoint: Path, data: str, data_dir: Path | None) -> dict[str, Array]:
    """The root mean square of y - x of each unit, by the name of the module.

    `turnpike compress` weighs it by layer as well, which changes little where all layers have one width.
    """
    whole = read_whole_network(checkpoint, SourceOptions(), 0, Steps())
    layers = find_removable_layers(whole.graph.model, whole.graph.gates.gates).layers
    network = whole.network
    rows = read_split_rows(data, network.inputs, network.labels, data_dir=data_dir, record=network.training)
    importance = measure_changes(whole.graph.model, layers, rows.calibration)
    return {
        layer.gate.levers[0].tensor.removesuffix(".gate.bias"): importance[layer.gate.name]
        for layer in layers
    }


def magnitudes(checkpoint: Path) -> dict[str, Array]:
    """The norm of the weights of each unit in H and T, by the name of the module."""
    net, _ = load_network(checkpoint)
    return {
        name: np.sqrt(
            sum(
                np.square(parameter.detach().numpy().reshape(len(parameter), -1)).sum(1)
                for parameter in module.parameters()
            )
        )
        for name, module in net.named_modules()
        if isinstance(module, GatedJoin)
    }


if __name__ == "__main__":
    main()
