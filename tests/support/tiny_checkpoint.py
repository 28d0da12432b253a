"""A record for the checkpoint of a tiny network that is not trained."""

from __future__ import annotations

import torch

from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.checkpoint import TrainingRecord

CONFIG = MlpConfig(inputs=(4,), classes=2, width=5, layers=1)


def tiny_record() -> TrainingRecord:
    return TrainingRecord(
        preset="tiny",
        config=CONFIG.to_dict(),
        data={"name": "rows", "labels": ["no", "yes"]},
        recipe={"epochs": 1},
        seed=3,
        metrics={"valid_accuracy": 0.5},
        history=[{"epoch": 1, "loss": 0.7}],
        torch=torch.__version__,
    )
