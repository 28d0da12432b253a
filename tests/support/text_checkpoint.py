"""A checkpoint of a small network, not trained, that reads the texts of the data set `names`."""

from __future__ import annotations

from pathlib import Path

import torch

from turnpike.models.data.load import load_dataset
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.families import build_network
from turnpike.models.training import checkpoint
from turnpike.models.training.checkpoint import TrainingRecord


def save_names_checkpoint(path: Path) -> Path:
    """Write it as `turnpike train` does."""
    dataset = load_dataset("names", seed=0)
    config = CharacterCnnConfig(
        inputs=dataset.inputs,
        classes=dataset.classes,
        alphabet=len(dataset.alphabet),
        projection=4,
        filter_counts=(4, 4, 4, 4),
    )
    record = TrainingRecord(
        preset="charcnn",
        config=config.to_dict(),
        data={
            "name": "names",
            "digest": dataset.digest,
            "labels": list(dataset.labels),
            "alphabet": dataset.alphabet,
        },
        recipe={"test_fraction": None},
        seed=0,
        metrics={},
        history=[],
        torch=torch.__version__,
    )
    torch.manual_seed(0)
    checkpoint.save_checkpoint(path, build_network(config).state_dict(), record)
    return path
