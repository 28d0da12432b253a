"""The plan of one training run: which network, on which data, by which recipe, into which folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.checks import expect, expect_choice
from models.data.dataset import Dataset
from models.errors import CheckpointError, ConfigError
from models.networks.base import NetConfig
from models.networks.families import FAMILIES
from models.training.checkpoint import TrainingRecord
from models.training.recipe import Recipe

MAX_VALUE_CHARACTERS = 60


def first_difference(
    now: Mapping[str, Any], then: Mapping[str, Any], ignored: Iterable[str] = ()
) -> str | None:
    """'width 8, and 9 is asked for now', or None where all is the same.

    `then` may have been through JSON, which knows lists and no tuples: both are compared as it has them.
    """
    plain = json.loads(json.dumps(dict(now)))
    before = json.loads(json.dumps(dict(then)))
    for name in sorted((plain.keys() | before.keys()) - set(ignored)):
        if plain.get(name) != before.get(name):
            return f"{name} {_short(before.get(name))}, and {_short(plain.get(name))} is asked for now"
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 3] + "..."


BEST_CHECKPOINT = "model.safetensors"
LAST_CHECKPOINT = "last.safetensors"


@dataclass(frozen=True)
class RunPlan:
    """One run: which network, on which data, by which recipe, from which seed, into which folder."""

    preset: str
    config: NetConfig
    recipe: Recipe
    data: Dataset
    folder: Path
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if (self.data.kind == "text") != FAMILIES[type(self.config)].reads_ids:
            reads = "numbers" if self.data.kind == "text" else "ids of characters"
            raise ConfigError(
                f"data: {self.config.family} reads {reads}, and {self.data.name} holds {self.data.kind}"
            )
        expect_choice("device", self.device, ("cpu", "cuda"))
        expect(
            self.device == "cpu" or torch.cuda.is_available(),
            "device: cuda was asked for, and this PyTorch sees no CUDA device; use cpu",
        )
        expect(0 <= self.seed < 2**63, f"seed: expected 0 to 2^63 - 1, got {self.seed}")
        expect(
            not self.recipe.shift or len(self.data.inputs) == 3,
            f"shift: moves images (channels, height, width), and {self.data.name} "
            f"has rows of {self.data.inputs}",
        )
        expect(
            self.recipe.batch > 1 or not getattr(self.config, "batch_norm", False),
            "batch: expected 2 or more, which batch norm needs, got 1",
        )

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches and the rest, unless the rest is one row, which batch norm cannot be trained on."""
        rows = len(self.data.train)
        whole, rest = divmod(rows, self.recipe.batch)
        return max(1, whole + (rest > 1 or (rest == 1 and self.recipe.batch == 1)))

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.recipe.epochs

    def record(
        self,
        metrics: dict[str, float],
        history: list[dict[str, float]],
        progress: dict[str, Any] | None = None,
    ) -> TrainingRecord:
        """What a checkpoint of this run says of itself."""
        return TrainingRecord(
            preset=self.preset,
            config=self.config.to_dict(),
            data={
                "name": self.data.name,
                "digest": self.data.digest,
                "kind": self.data.kind,
                "labels": list(self.data.labels),
                "alphabet": self.data.alphabet,
            },
            recipe=self.recipe.to_dict(),
            seed=self.seed,
            metrics=metrics,
            history=history,
            torch=torch.__version__,
            progress=progress or {},
        )

    def expect_same(self, record: TrainingRecord, path: Path) -> None:
        """Stop with a CheckpointError unless the record is of this very plan, as a resumed run needs."""
        plan = self.record({}, [])
        # more epochs may be asked for where the rate does not depend on how many there are
        stretches = plan.recipe["schedule"] == record.recipe.get("schedule") == "constant"
        ignored = {"epochs"} if stretches else set()
        if plan.recipe["epochs"] < record.recipe.get("epochs", 0):
            raise CheckpointError(
                f"{path}: cannot resume: the run began with {record.recipe['epochs']} epochs, of which none "
                f"can be taken back, and {plan.recipe['epochs']} are asked for now"
            )
        for what, now, then in (
            ("seed", {"seed": plan.seed}, {"seed": record.seed}),
            ("network", plan.config, record.config),
            ("recipe", plan.recipe, record.recipe),
            ("data", plan.data, record.data),
        ):
            if said := first_difference(now, then, ignored):
                raise CheckpointError(f"{path}: cannot resume: {what}: the run began with {said}")
