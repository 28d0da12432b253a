"""Training on tables: numbers to predict, imbalanced classes, encoded columns, resumed runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from turnpike.models.cli.training_run import config_for_data
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.load import load_dataset
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import CheckpointError, ConfigError, TrainingError
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.networks.grid_lstm import GridLstmConfig
from turnpike.models.training.checkpoint import load_network, read_checkpoint
from turnpike.models.training.evaluate import evaluate, predict_logits
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan
from turnpike.models.training.train import TrainingOutcome, train

MLP = MlpConfig(inputs=(1,), classes=2, width=16, layers=2)
RECIPE = Recipe(epochs=20, batch=16, lr=0.01, schedule="cosine")


def table(folder: Path, target: str) -> Dataset:
    """200 rows of numbers with blanks, words, dates and booleans.

    `price` is a number that depends on all of them, and a tenth of the rows are `rare`.
    """
    draw = torch.Generator().manual_seed(3)
    lines = ["size,colour,sold,fresh,price,kind"]
    for n in range(200):
        size, coin = torch.rand(2, generator=draw).tolist()
        colour, fresh = ("red", "green", "blue")[n % 3], ("no", "yes")[coin > 0.5]
        day = f"{2020 + n % 4}-{n % 12 + 1:02}-01"
        price = 1000 + 500 * size + 100 * (n % 3) + 200 * (fresh == "yes") + 50 * (n % 12)
        kind = "rare" if size > 0.9 else "usual"
        shown = "" if n % 7 == 0 and size < 0.9 else f"{size:.4f}"
        lines.append(f"{shown},{colour},{day},{fresh},{price:.2f},{kind}")
    path = folder / "goods.csv"
    path.write_text("\n".join(lines))
    drop = ("kind",) if target == "price" else ("price",)
    return load_dataset(str(path), table=TableOptions(target=target, drop=drop))


def plan(folder: Path, data: Dataset, config: MlpConfig | GridLstmConfig = MLP, **recipe: object) -> RunPlan:
    changed = replace(RECIPE, **recipe)  # type: ignore[arg-type]
    return RunPlan("tiny", config_for_data(config, data, []), changed, data, folder, seed=1)


@pytest.mark.parametrize(
    "config", [MLP, GridLstmConfig(inputs=(1,), classes=2, dimensions=1, width=16, depth=2)]
)
def test_a_number_is_predicted(tmp_path: Path, config: MlpConfig | GridLstmConfig) -> None:
    """R2 and the mean absolute error agree with formulas of their own, beside the error of the mean."""
    data = table(tmp_path, "price")
    outcome = train(plan(tmp_path, data, config))
    net, record = load_network(tmp_path / BEST_CHECKPOINT)
    assert outcome.record.metrics == record.metrics
    predicted, true = predict_logits(net, data.test.x)[:, 0].double(), data.test.y.double()
    r2 = 1 - F.mse_loss(predicted, true).item() / true.var(correction=0).item()
    assert record.metrics["test_r2"] == pytest.approx(r2)
    assert record.metrics["test_r2"] > 0.6
    assert record.metrics["test_mae"] == pytest.approx((predicted - true).abs().mean().item())
    mean = data.train.y.double().mean()
    assert record.metrics["baseline_mae"] == pytest.approx((true - mean).abs().mean().item())
    assert record.metrics["test_mae"] < record.metrics["baseline_mae"] / 1.5
    assert record.data["task"] == "number"
    entry = record.history[-1]
    assert {"loss", "r2", "valid_loss", "valid_r2", "valid_mae"} <= entry.keys()
    # the training's loss is in standard deviations, so R2 is about 1 minus it
    assert entry["r2"] == pytest.approx(1 - entry["loss"])


def test_the_scale_of_a_number_does_not_matter(tmp_path: Path) -> None:
    """Numbers in millions, or all near one value, are learned as well."""
    data = table(tmp_path, "price")
    scores = []
    for factor, offset in ((1.0, 0.0), (1e6, 0.0), (1e-3, 100.0)):
        splits = {
            name: replace(getattr(data, name), y=getattr(data, name).y * factor + offset)
            for name in ("train", "valid", "test")
        }
        outcome = train(plan(tmp_path / str(factor), replace(data, **splits)))
        scores.append(outcome.record.metrics["test_r2"])
    assert scores[1:] == pytest.approx([scores[0]] * 2, abs=0.05)


def stopped_after(steps: int, run: RunPlan) -> TrainingOutcome:
    asked = iter(range(steps + 1))
    return train(run, should_stop=lambda: next(asked) == steps)


@pytest.mark.parametrize("target", ["price", "kind"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, target: str) -> None:
    data = table(tmp_path, target)
    whole = train(plan(tmp_path / "whole", data, epochs=4))
    assert not stopped_after(13, plan(tmp_path / "parts", data, epochs=4)).finished
    parts = train(plan(tmp_path / "parts", data, epochs=4), resume=True)
    for name in (BEST_CHECKPOINT, LAST_CHECKPOINT):
        one, other = (read_checkpoint(tmp_path / run / name)[0] for run in ("whole", "parts"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert {**parts.record.metrics, "seconds": 0} == {**whole.record.metrics, "seconds": 0}


def test_a_run_is_not_resumed_with_other_columns(tmp_path: Path) -> None:
    """Another kind of a column is another network, another task other data."""
    data = table(tmp_path, "price")
    stopped_after(3, plan(tmp_path, data))
    path = str(tmp_path / "goods.csv")
    for options in (
        TableOptions(target="price", drop=("kind",), kinds={"fresh": "category"}),
        TableOptions(target="price", drop=("kind", "size")),
    ):
        with pytest.raises(CheckpointError, match="cannot resume"):
            train(plan(tmp_path, load_dataset(path, table=options)), resume=True)


def test_an_exported_row_has_the_answer_of_the_training(tmp_path: Path) -> None:
    """Blanks and words that were never seen have finite answers, alone and in a batch."""
    data = table(tmp_path, "price")
    train(plan(tmp_path, data, epochs=1))
    net, record = load_network(tmp_path / BEST_CHECKPOINT)
    assert [feature.get("kind", "number") for feature in record.data["features"]] == [
        *("number", "category", "date", "boolean")
    ]
    assert record.data["features"][0]["blanks"] is True
    assert record.data["features"][1]["categories"] == ["blue", "green", "red"]
    rows = torch.tensor([[math.nan, 3.0, 19000.0, 1.0], [0.5, 0.0, 19000.0, 0.0]])
    together = net(rows)
    assert torch.isfinite(together).all()
    torch.testing.assert_close(together, torch.cat([net(row[None]) for row in rows]))


def test_imbalanced_classes_have_a_balanced_accuracy(tmp_path: Path) -> None:
    """It agrees with a slower formula; balanced classes have none."""
    data = table(tmp_path, "kind")
    assert data.is_imbalanced
    metrics = train(plan(tmp_path, data, epochs=3)).record.metrics
    net, _ = load_network(tmp_path / BEST_CHECKPOINT)
    answers = predict_logits(net, data.test.x).argmax(1).tolist()
    shares = []
    for label in (0, 1):
        own = [
            answer == label
            for answer, true in zip(answers, data.test.y.tolist(), strict=True)
            if true == label
        ]
        shares.append(sum(own) / len(own))
    assert metrics["test_balanced_accuracy"] == pytest.approx(sum(shares) / 2)
    assert data.labels[int(metrics["rarest_class"])] == "rare"
    assert metrics["test_rarest_recall"] == pytest.approx(shares[0])
    usual = sum(label == 1 for label in data.test.y.tolist()) / len(data.test)
    assert metrics["baseline_accuracy"] == pytest.approx(usual)
    digits = evaluate(net, data.test)
    assert digits.keys() == {"loss", "accuracy"}


def test_weights_of_classes_find_the_rare_ones(tmp_path: Path) -> None:
    """After a few steps, a network without weights answers the commonest class only."""
    data = table(tmp_path, "kind")
    plain = train(plan(tmp_path / "plain", data, epochs=1)).record.metrics
    weighted = train(plan(tmp_path / "weighted", data, epochs=1, class_weights=True)).record
    assert plain["test_rarest_recall"] < weighted.metrics["test_rarest_recall"]
    assert weighted.recipe["class_weights"] is True
    net, _ = load_network(tmp_path / "weighted" / BEST_CHECKPOINT)
    # a row's weight is the number of rows over that of all classes times that of its own
    rows, counts = len(data.train), data.train.y.bincount()
    weights = rows / (2 * counts)
    outputs = predict_logits(net, data.valid.x)
    losses = F.cross_entropy(outputs, data.valid.y, reduction="none")
    expected = sum(weights[y] * loss for y, loss in zip(data.valid.y, losses, strict=True)) / len(losses)
    assert weighted.metrics["valid_loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("target", "recipe", "metric"),
    [
        ("kind", {"class_weights": True}, "balanced_accuracy"),
        ("kind", {"lr": 0.05}, "accuracy"),
        ("price", {"lr": 0.05}, "r2"),
    ],
)
def test_the_network_is_chosen_by_the_mean_score_of_three_epochs(
    tmp_path: Path, target: str, recipe: dict[str, Any], metric: str
) -> None:
    """Balanced accuracy counts if classes are weighted. If means are the same, the lowest loss wins."""
    record = train(plan(tmp_path, table(tmp_path, target), epochs=10, **recipe)).record
    scores = [entry[f"valid_{metric}"] for entry in record.history]
    means = [sum(scores[max(0, n - 2) : n + 1]) / len(scores[max(0, n - 2) : n + 1]) for n in range(10)]
    losses = [entry["valid_loss"] for entry in record.history]
    best = max(range(10), key=lambda n: (round(means[n], 9), -losses[n]))
    assert record.metrics["epoch"] == best + 1


def test_numbers_have_no_weights_of_classes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="class weights: goods has a number to predict, and no classes"):
        plan(tmp_path, table(tmp_path, "price"), class_weights=True)


def test_blanks_are_no_reason_for_divergence(tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as caught:
        train(plan(tmp_path, table(tmp_path, "price"), lr=1e30))
    assert "training rows themselves" not in str(caught.value)
