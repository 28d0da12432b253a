"""Training after a cut: shut units carry their input exactly, stay shut, and the others learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import NetConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import ConvConfig, MlpConfig
from turnpike.models.training.checkpoint import load_network
from turnpike.models.training.finetune import finetune, shut_units
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, RunPlan
from turnpike.models.training.train import train

MLP = MlpConfig(inputs=(6,), classes=3, width=8, layers=3)
CONV = ConvConfig(inputs=(1, 8, 8), classes=3, stages=((8, 2),))


def rows(count: int, seed: int) -> Split:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return Split(x, x[:, :3].argmax(1))


@pytest.mark.parametrize("config", [MLP, replace(MLP, carry="independent"), CONV])
def test_shut_units_carry_their_input(config: NetConfig) -> None:
    """Bit for bit, whatever the input is; the other units are as before."""
    torch.manual_seed(1)
    net = build_network(config).eval()
    name = next(name for name, module in net.named_modules() if hasattr(module, "carry_gate"))
    layer = net.get_submodule(name)
    x = 100 * torch.randn(5, 8, *((4, 4) if config is CONV else ()))
    with torch.no_grad():
        before = layer(x)
        shut_units(net, {name: [1, 4]})
        after = layer(x)
    kept = torch.tensor([1, 4])
    others = torch.tensor([0, 2, 3, 5, 6, 7])
    assert torch.equal(after[:, kept], before[:, kept])
    assert torch.equal(after[:, others], x[:, others])


def test_shut_units_stay_shut_while_the_others_learn(tmp_path: Path) -> None:
    """Weight decay and the optimizer's moments change nothing either; the first checkpoint stays."""
    data = Dataset("blobs", rows(96, 1), rows(80, 2), rows(80, 3), ("a", "b", "c"), "numbers")
    recipe = Recipe(epochs=3, batch=16, lr=0.02, weight_decay=0.1, gate_budget=0.1)
    train(RunPlan("tiny", MLP, recipe, data, tmp_path / "whole", seed=5))
    whole = tmp_path / "whole" / BEST_CHECKPOINT
    content = whole.read_bytes()
    kept = {"layers.0": [0, 3], "layers.1": [], "layers.2": list(range(8))}
    progress = []
    path = finetune(
        whole, kept, data, 3, tmp_path / "cut", on_step=lambda report: progress.append(report.step)
    )
    assert progress[-1] == 18  # 6 steps of 16 rows in each epoch
    assert whole.read_bytes() == content
    net, record = load_network(path)
    before, _ = load_network(whole)
    assert record.recipe["epochs"] == 3
    for name, units in kept.items():
        gate, old = net.get_submodule(name).gate, before.get_submodule(name).gate
        shut = [unit for unit in range(8) if unit not in units]
        assert (gate.bias[shut] == -1000).all()
        assert (gate.weight[shut] == 0).all()
        assert (gate.weight[units] != old.weight[units]).all()


def test_other_modules_cannot_be_shut() -> None:
    """The message names the module."""
    with pytest.raises(ConfigError, match=r"output: expected a gated layer of the network, there is none"):
        shut_units(build_network(MLP), {"output": [0]})
