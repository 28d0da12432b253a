"""The plan of one training run: network, data, recipe, seed and folder; and how two plans differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from turnpike.models.checks import expect, expect_choice
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.features import describe_features
from turnpike.models.errors import CheckpointError, ConfigError
from turnpike.models.networks.base import NetConfig
from turnpike.models.networks.families import FAMILIES
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.models.training.interval import expect_interval
from turnpike.models.training.recipe import Recipe

# files in a run's folder
BEST_CHECKPOINT = "model.safetensors"  # the best network by validation accuracy
LAST_CHECKPOINT = "last.safetensors"  # the state that a resumed run continues from

MAX_VALUE_CHARACTERS = 60  # longer values are cut in messages


@dataclass(frozen=True)
class RunPlan:
    """Everything that decides a training run.

    Attributes:
        preset: Name of the preset, for the record.
        config: The network.
        recipe: How it is trained.
        data: What it is trained on.
        folder: Where the checkpoints are written.
        seed: All random numbers of the run depend on it.
        device: "cpu" or "cuda".
        interval: The share of rows whose true number intervals should hold; None for no intervals.
    """

    preset: str
    config: NetConfig
    recipe: Recipe
    data: Dataset
    folder: Path
    seed: int = 0
    device: str = "cpu"
    interval: float | None = None

    def __post_init__(self) -> None:
        if (self.data.kind == "text") != FAMILIES[type(self.config)].reads_ids:
            reads = "numbers" if self.data.kind == "text" else "ids of characters"
            raise ConfigError(
                f"data: {self.config.family} reads {reads}, and {self.data.name} holds {self.data.kind}"
            )
        expect_choice("device", self.device, ("cpu", "cuda"))
        expect(
            self.device == "cpu" or torch.cuda.is_available(),
            "device: got cuda, and PyTorch finds no CUDA device; use cpu",
        )
        expect(0 <= self.seed < 2**63, f"seed: expected 0 to 2^63 - 1, got {self.seed}")
        for name, verb in (("shift", "moves"), ("distort", "distorts"), ("thickness", "thickens")):
            expect(
                not getattr(self.recipe, name) or len(self.data.inputs) == 3,
                f"{name}: {verb} images (channels, height, width), and {self.data.name} "
                f"has rows of {self.data.inputs}",
            )
        expect(
            not self.recipe.class_weights or self.data.task == "classes",
            f"class weights: {self.data.name} has a number to predict, and no classes",
        )
        expect(
            self.recipe.batch > 1 or not getattr(self.config, "batch_norm", False),
            "batch: expected 2 or more, which batch norm needs, got 1",
        )
        if self.interval is not None:
            expect_interval(self.interval, self.data)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch.

        A last batch of a single row is left out (unless all batches have one row), because batch
        normalization cannot train on it.
        """
        rows = len(self.data.train)
        full_batches, remainder = divmod(rows, self.recipe.batch)
        return max(1, full_batches + (remainder > 1 or (remainder == 1 and self.recipe.batch == 1)))

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.recipe.epochs

    def record(
        self,
        metrics: dict[str, float],
        history: list[dict[str, float]],
        progress: dict[str, Any] | None = None,
    ) -> TrainingRecord:
        """Return the record for a checkpoint of this run."""
        return TrainingRecord(
            preset=self.preset,
            config=self.config.to_dict(),
            data={
                "name": self.data.name,
                "digest": self.data.digest,
                "kind": self.data.kind,
                "labels": list(self.data.labels),
                "alphabet": self.data.alphabet,
                **({} if self.data.white is None else {"white": self.data.white}),
                **self._table_record(),
            },
            recipe=self.recipe.to_dict(),
            seed=self.seed,
            metrics=metrics,
            history=history,
            torch=torch.__version__,
            progress=progress or {},
        )

    def _table_record(self) -> dict[str, Any]:
        """What a table's columns are; other data has no such entries."""
        if not self.data.features:
            return {}
        forms = [column.form for column in self.data.columns if column.form is not None]
        may_be_blank = [column.blanks > 0 for column in self.data.columns if column.form is not None]
        return {
            "features": describe_features(self.data.features, self.data.train.x, forms, may_be_blank),
            "target": self.data.target,
            # a run of an older version lacks what follows, which would stop --resume
            **({} if self.data.task == "classes" else {"task": self.data.task}),
            **({"time_column": self.data.time_column} if self.data.time_column else {}),
        }

    def expect_same_run(self, record: TrainingRecord, path: Path) -> None:
        """Raise a CheckpointError unless the record belongs to a run with this plan, so it can be resumed."""
        current = self.record({}, [])
        # more epochs are allowed if the learning rate does not depend on their number
        can_extend = current.recipe["schedule"] == record.recipe.get("schedule") == "constant"
        # the value of white is that of the rows, and a run of an older version lacks it
        ignored = {"white", *(["epochs"] if can_extend else [])}
        if current.recipe["epochs"] < record.recipe.get("epochs", 0):
            raise CheckpointError(
                f"{path}: cannot resume with fewer epochs: expected {record.recipe['epochs']} or more, "
                f"got {current.recipe['epochs']}"
            )
        for name, values, recorded in (
            ("seed", {"seed": current.seed}, {"seed": record.seed}),
            ("network", current.config, record.config),
            # a run of an older version lacks newer settings, whose defaults change nothing
            ("recipe", current.recipe, Recipe().to_dict() | record.recipe),
            ("data", current.data, record.data),
        ):
            if difference := first_difference(values, recorded, ignored):
                raise CheckpointError(f"{path}: cannot resume: {name} of the run: {difference}")


def first_difference(
    current: Mapping[str, Any], recorded: Mapping[str, Any], ignored: Iterable[str] = ()
) -> str | None:
    """Return "expected NAME RECORDED, got CURRENT" for the first setting that differs, or None.

    Both are compared as JSON has them, since recorded settings may have lists in place of tuples.
    """
    current = json.loads(json.dumps(dict(current)))
    recorded = json.loads(json.dumps(dict(recorded)))
    for name in sorted((current.keys() | recorded.keys()) - set(ignored)):
        if current.get(name) != recorded.get(name):
            return f"expected {name} {_short_json(recorded.get(name))}, got {_short_json(current.get(name))}"
    return None


def _short_json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."
