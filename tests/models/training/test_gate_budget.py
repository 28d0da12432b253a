"""The gate budget: its penalty by hand, what it does to gates, and runs that are stopped and resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.errors import ConfigError
from turnpike.models.layers.gate import record_gates
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.networks.recurrent import RhnConfig
from turnpike.models.plots.run_figures import history_figure
from turnpike.models.training.checkpoint import load_network, read_checkpoint, save_checkpoint
from turnpike.models.training.gate_budget import GatePenalty
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan
from turnpike.models.training.train import StepReport, train

MLP = MlpConfig(inputs=(6,), classes=3, width=8, layers=3)
RECIPE = Recipe(epochs=8, batch=16, lr=0.02, gate_budget=0.5)


def rows(count: int, seed: int) -> Split:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return Split(x, x[:, :3].argmax(1))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset("blobs", rows(120, 1), rows(40, 2), rows(40, 3), ("a", "b", "c"), "numbers")


def plan(folder: Path, data: Dataset, config: NetConfig = MLP, recipe: Recipe = RECIPE) -> RunPlan:
    return RunPlan("tiny", config, recipe, data, folder, seed=5)


def sum_of_mean_gates(net: Net, x: Tensor) -> float:
    """A second formulation: from the recordings that pictures are drawn from."""
    with record_gates(net) as recordings, torch.no_grad():
        net(x)
    return sum(float(torch.stack(recording.transform_gates).mean()) for recording in recordings.values())


@pytest.mark.parametrize(
    "config", [MLP, replace(MLP, carry="independent"), RhnConfig(inputs=(5, 6), classes=3, width=4, depth=2)]
)
def test_the_penalty_is_the_sum_of_mean_gates(config: NetConfig) -> None:
    """The calls of a recurrent layer count as one layer, and each pass by itself."""
    torch.manual_seed(3)
    net = build_network(config).train()
    penalty = GatePenalty(net)
    for seed in range(2):
        x = torch.randn(7, *config.inputs, generator=torch.Generator().manual_seed(seed))
        net(x)
        assert penalty.take().item() == pytest.approx(sum_of_mean_gates(net.eval(), x), rel=1e-5)
        net.train()


def test_passes_without_training_cost_nothing() -> None:
    net = build_network(MLP)
    penalty = GatePenalty(net.train())
    net.eval()(torch.randn(500, 6))
    net.train()(torch.zeros(1, 6))
    assert penalty.take().item() == pytest.approx(sum_of_mean_gates(net.eval(), torch.zeros(1, 6)), rel=1e-5)


def test_a_budget_keeps_gates_closed(tmp_path: Path, data: Dataset) -> None:
    """The history has the penalty of each epoch, and the picture draws it."""
    penalties: list[float | None] = []

    def on_step(report: StepReport) -> None:
        penalties.append(report.gate_penalty)

    outcome = train(plan(tmp_path / "budget", data), on_step=on_step)
    free = train(plan(tmp_path / "free", data, recipe=replace(RECIPE, gate_budget=0.0)))
    history = outcome.record.history
    assert history[-1]["gate_penalty"] < 0.5 * history[0]["gate_penalty"]
    assert penalties[-1] == pytest.approx(history[-1]["gate_penalty"])
    assert not any("gate_penalty" in entry for entry in free.record.history)
    sums = [
        sum_of_mean_gates(load_network(tmp_path / name / BEST_CHECKPOINT)[0], data.test.x)
        for name in ("budget", "free")
    ]
    assert sums[0] < 0.5 * sums[1]
    drawn = [line.get_label() for line in history_figure(outcome.record).axes[0].lines]
    assert "penalty of open gates" in drawn
    assert "penalty of open gates" not in [
        line.get_label() for line in history_figure(free.record).axes[0].lines
    ]


def test_a_resumed_run_has_the_same_bits_and_penalties(tmp_path: Path, data: Dataset) -> None:
    whole = train(plan(tmp_path / "whole", data))
    steps = 0

    def on_step(report: StepReport) -> None:
        nonlocal steps
        steps = report.step

    train(plan(tmp_path / "parts", data), on_step=on_step, should_stop=lambda: steps >= 11)
    parts = train(plan(tmp_path / "parts", data), resume=True)
    assert [entry["gate_penalty"] for entry in parts.record.history] == [
        entry["gate_penalty"] for entry in whole.record.history
    ]
    one, other = (read_checkpoint(tmp_path / name / LAST_CHECKPOINT)[0] for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_of_an_older_version_is_resumed(tmp_path: Path, data: Dataset) -> None:
    """Its record knows no gate budget, and its totals no penalty."""
    recipe = replace(RECIPE, gate_budget=0.0)
    steps = 0

    def on_step(report: StepReport) -> None:
        nonlocal steps
        steps = report.step

    train(plan(tmp_path, data, recipe=recipe), on_step=on_step, should_stop=lambda: steps >= 3)
    tensors, record = read_checkpoint(tmp_path / LAST_CHECKPOINT)
    del record.recipe["gate_budget"]
    del record.progress["tally"]["gate_penalty"]
    save_checkpoint(tmp_path / LAST_CHECKPOINT, tensors, record)
    assert train(plan(tmp_path, data, recipe=recipe), resume=True).finished


def test_a_network_without_gates_is_refused(tmp_path: Path, data: Dataset) -> None:
    with pytest.raises(ConfigError, match="^gate budget: expected a network with gates, and this one has"):
        train(plan(tmp_path, data, replace(MLP, kind="plain")))


@pytest.mark.parametrize("budget", [-0.1, float("nan"), float("inf")])
def test_an_invalid_budget_is_refused(budget: float) -> None:
    with pytest.raises(ConfigError, match="^gate budget: expected 0 or more, got "):
        Recipe(gate_budget=budget)
