"""Intervals of a predicted number: their width, how many true numbers they hold, and what they need."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from turnpike.models.cli.training_run import config_for_data
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.load import load_dataset
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import ConfigError
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.checkpoint import load_network
from turnpike.models.training.evaluate import predict_logits
from turnpike.models.training.interval import half_width
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, RunPlan
from turnpike.models.training.train import train

MLP = MlpConfig(inputs=(1,), classes=2, width=8, layers=2)


def noisy_table(folder: Path, rows: int = 300) -> Dataset:
    """Rows with a number `y` that is twice `x`, give or take some noise."""
    draw = np.random.default_rng(5)
    x = draw.uniform(0, 10, rows)
    y = 2 * x + draw.normal(0, 0.5, rows)
    path = folder / "noisy.csv"
    path.write_text("\n".join(["x,y", *(f"{a:.6f},{b:.6f}" for a, b in zip(x, y, strict=True))]))
    return load_dataset(str(path), table=TableOptions(task="number"))


def plan(folder: Path, data: Dataset, interval: float | None) -> RunPlan:
    recipe = Recipe(epochs=10, batch=16, lr=0.01)
    return RunPlan("tiny", config_for_data(MLP, data, []), recipe, data, folder, interval=interval)


@pytest.mark.parametrize(
    ("rows", "level"), [(9, 0.9), (10, 0.9), (19, 0.55), (19, 0.95), (40, 0.8), (99, 0.99)]
)
def test_a_further_row_is_held_by_the_share(rows: int, level: float) -> None:
    """If each of n + 1 rows is the further one in turn, its interval holds it in at least the share of turns.

    One rank less would hold too few of them.
    """
    errors = np.random.default_rng(rows).exponential(1, rows + 1).tolist()
    turns = [(error, errors[:n] + errors[n + 1 :]) for n, error in enumerate(errors)]
    held = sum(error <= half_width(others, level) for error, others in turns)
    assert held == math.ceil(round(level * (rows + 1), 9))
    assert (held - 1) / (rows + 1) < level


def test_the_record_has_the_interval_of_the_best_network(tmp_path: Path) -> None:
    """It is that of validation rows; the share is that of test rows. The weights are those without it."""
    data = noisy_table(tmp_path)
    outcome = train(plan(tmp_path, data, 0.9))
    net, record = load_network(tmp_path / BEST_CHECKPOINT)
    errors = [
        np.abs(predict_logits(net, split.x)[:, 0].numpy() - split.y.numpy().astype(np.float64))
        for split in (data.valid, data.test)
    ]
    rank = math.ceil(0.9 * (len(data.valid) + 1))
    width = np.partition(errors[0], rank - 1)[rank - 1]
    assert record.metrics == outcome.record.metrics
    assert record.metrics["interval_level"] == 0.9
    assert record.metrics["interval_half_width"] == width > 0
    assert record.metrics["interval_rows"] == len(data.valid)
    assert record.metrics["test_interval_coverage"] == np.mean(errors[1] <= width)

    other = tmp_path / "other"
    other.mkdir()
    metrics = train(plan(other, data, None)).record.metrics
    assert not any("interval" in name for name in metrics)
    assert metrics["test_mae"] == record.metrics["test_mae"]


def test_a_finished_run_gets_an_interval(tmp_path: Path) -> None:
    """--resume with an interval needs no further training."""
    data = noisy_table(tmp_path)
    without = train(plan(tmp_path, data, None)).record
    resumed = train(plan(tmp_path, data, 0.8), resume=True).record
    assert resumed.metrics["interval_level"] == 0.8
    assert resumed.history == without.history


def test_intervals_are_refused(tmp_path: Path) -> None:
    data = noisy_table(tmp_path, 56)
    assert len(data.valid) == 9
    plan(tmp_path, data, 0.9)
    with pytest.raises(ConfigError, match=r"10 validation rows or more for a share of 0\.901, got 9"):
        plan(tmp_path, data, 0.901)
    with pytest.raises(ConfigError, match=r"interval: expected a share .* got 90$"):
        plan(tmp_path, data, 90)
    with pytest.raises(ConfigError, match=r"interval: expected a number to predict, and digits has classes"):
        plan(tmp_path, load_dataset("digits"), 0.9)
