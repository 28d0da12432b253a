"""Continues the training of a network in which some units are shut for good: these carry their input.

This is the training that follows a cut of `turnpike compress`. A shut unit has T = 0 and C = 1 whatever its
input is, since its gates read nothing and have a bias of -1000 and 1000. No gradient reaches such a gate, so
it stays shut, and the result is an ordinary checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from turnpike.models.data.dataset import Dataset
from turnpike.models.errors import ConfigError
from turnpike.models.layers.gate import GatedJoin
from turnpike.models.networks.base import Net
from turnpike.models.networks.families import config_from_dict
from turnpike.models.training.checkpoint import load_network
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, RunPlan
from turnpike.models.training.train import StepReport, train

# bias of a shut gate: sigmoid(-1000) is 0 and sigmoid(1000) is 1 in float64, too
SHUT_BIAS = 1000.0


def finetune(
    checkpoint: Path,
    kept: Mapping[str, Sequence[int]],
    data: Dataset,
    epochs: int,
    folder: Path,
    *,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> Path:
    """Shut the other units of a trained network, continue its training, and return the best checkpoint.

    The recipe is that of the first training without its gate budget; the learning rate falls from its highest
    value to 0.

    Args:
        checkpoint: The network.
        kept: The units that each gated layer keeps, by the name of its module. Layers that are not in it keep
            all.
        data: The data that the network was trained on, split in the same way.
        epochs: Passes over the training rows.
        folder: Where the checkpoints are written.
        on_step: Called after each step; it may raise to stop.
    """
    net, record = load_network(checkpoint)
    shut_units(net, kept)
    recipe = Recipe(**(Recipe().to_dict() | record.recipe))
    plan = RunPlan(
        record.preset,
        config_from_dict(record.config),
        replace(recipe, epochs=epochs, schedule="cosine", gate_budget=0.0),
        data,
        folder,
        seed=record.seed,
    )
    train(plan, weights=net.state_dict(), on_step=on_step)
    return folder / BEST_CHECKPOINT


def shut_units(net: Net, kept: Mapping[str, Sequence[int]]) -> None:
    """Make the units of gated layers that are not kept carry their input, whatever it is."""
    modules = dict(net.named_modules())
    for name, units in kept.items():
        layer = modules.get(name)
        if not isinstance(layer, GatedJoin):
            raise ConfigError(f"{name}: expected a gated layer of the network, there is none")
        for gate, bias in ((layer.gate, -SHUT_BIAS), (layer.carry_gate, SHUT_BIAS)):
            if gate is None:
                continue
            if gate.bias is None:
                raise ConfigError(f"{name}: expected gates with biases, by which units can be shut")
            shut = torch.ones(len(gate.bias), dtype=torch.bool)
            shut[list(units)] = False
            with torch.no_grad():
                gate.weight[shut] = 0
                gate.bias[shut] = bias
