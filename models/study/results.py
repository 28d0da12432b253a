"""Results of a study's runs, read from and written to the study's folder, so that no run is trained twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import torch

from turnpike.common.durable_files import replacing
from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import NetConfig, parameter_count
from turnpike.models.networks.families import build_network
from turnpike.models.study.study_plan import Study, StudyRun
from turnpike.models.training.checkpoint import read_checkpoint
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan, first_difference

STUDY_FILE = "compare.json"  # in the study's folder
DIVERGED_FILE = "diverged.json"  # in the folder of a run that diverged

RunState = Literal["finished", "diverged", "unfinished"]


@dataclass(frozen=True)
class RunResult:
    """The result of one run so far. Values that do not exist (yet) are None.

    Attributes:
        run: Kind of layers, depth and learning rate.
        state: "finished", "diverged" (its loss became NaN or infinite) or "unfinished".
        parameters: Number of trainable parameters.
        steps: Number of steps of the whole run.
        step: Number of steps taken.
        epoch: The epoch of the best network, or the epoch in which the run diverged.
        loss: Training loss of the last complete epoch.
        valid_accuracy: Validation accuracy of the best network.
        test_accuracy: Test accuracy of the best network.
        seconds: Training time.
        history: Loss and accuracies of every epoch.
    """

    run: StudyRun
    state: RunState
    parameters: int
    steps: int
    step: int = 0
    epoch: int | None = None
    loss: float | None = None
    valid_accuracy: float | None = None
    test_accuracy: float | None = None
    seconds: float | None = None
    history: tuple[dict[str, float], ...] = ()

    @property
    def last_fall(self) -> float:
        """The share of its training loss that the last epoch took away; 0 before the second epoch."""
        if len(self.history) < 2:
            return 0.0
        before, last = (entry["loss"] for entry in self.history[-2:])
        return (before - last) / before

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; NaN and infinity become None, because JSON lacks them."""
        values = asdict(self)
        values["history"] = [
            {name: value if isfinite(value) else None for name, value in entry.items()}
            for entry in self.history
        ]
        return {"name": self.run.name, **values.pop("run"), **values}


def load_result(plan: RunPlan, run: StudyRun, data_digest: str) -> RunResult:
    """Return the result in the folder of a run; raise a ConfigError if it belongs to another plan.

    Args:
        plan: Plan of the run.
        run: Kind of layers, depth and learning rate.
        data_digest: Digest of the data set.
    """
    result = RunResult(run, "unfinished", _parameter_count(plan.config), plan.steps)

    # a run that diverged
    diverged = plan.folder / DIVERGED_FILE
    if diverged.exists():
        values = read_json(diverged)
        _expect_same_plan(plan, values.get("plan", {}), data_digest, diverged)
        return replace(_with_history(result, values["history"]), state="diverged", **values["reached"])

    # a finished run has test results in its best checkpoint, an unfinished one has a last checkpoint
    for path in (plan.folder / BEST_CHECKPOINT, plan.folder / LAST_CHECKPOINT):
        if not path.exists():
            continue
        record = read_checkpoint(path)[1]
        recorded = {"config": record.config, "recipe": record.recipe, "seed": record.seed, **record.data}
        _expect_same_plan(plan, recorded, data_digest, path)
        if "test_accuracy" in record.metrics:
            return replace(
                _with_history(result, record.history),
                state="finished",
                step=plan.steps,
                epoch=int(record.metrics["epoch"]),
                valid_accuracy=record.metrics["valid_accuracy"],
                test_accuracy=record.metrics["test_accuracy"],
            )
        if path.name == LAST_CHECKPOINT:
            result = replace(_with_history(result, record.history), step=record.progress["step"])
    return result


@cache
def _parameter_count(config: NetConfig) -> int:
    # building a network draws weights: restore the caller's generator afterwards
    with torch.random.fork_rng(devices=[]):
        return parameter_count(build_network(config))


def save_divergence(plan: RunPlan, data_digest: str, step: int, history: list[dict[str, float]]) -> None:
    """Record that a run diverged, so that it is not tried again.

    Args:
        plan: Plan of the run.
        data_digest: Digest of the data set.
        step: Number of steps taken before the one that diverged.
        history: Loss and accuracies of the complete epochs.
    """
    values = {
        "plan": {
            "config": plan.config.to_dict(),
            "recipe": plan.recipe.to_dict(),
            "seed": plan.seed,
            "digest": data_digest,
        },
        "reached": {"step": step, "epoch": step // plan.steps_per_epoch + 1},
        "history": history,
    }
    write_json(plan.folder / DIVERGED_FILE, values)


def shared_settings(study: Study, data_digest: str) -> dict[str, Any]:
    """Return the settings that all runs in a folder must share to be comparable."""
    recipe = {name: value for name, value in study.recipe.to_dict().items() if name != "lr"}
    return {"data": study.data, "rows": data_digest, "seed": study.seed, "width": study.width, **recipe}


def expect_same_study(study: Study, data_digest: str, folder: Path) -> None:
    """Raise a ConfigError if the folder has a study with other settings."""
    path = folder / STUDY_FILE
    if path.exists():
        _expect_equal(shared_settings(study, data_digest), read_json(path).get("shared", {}), path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    with replacing(path) as draft:
        draft.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected a JSON file of an earlier study, cannot read it") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a JSON file of an earlier study, got something else")
    return values


def _with_history(result: RunResult, history: list[dict[str, float]]) -> RunResult:
    if not history:
        return result
    last = history[-1]
    return replace(result, history=tuple(history), loss=last["loss"], seconds=last["seconds"])


def _expect_same_plan(plan: RunPlan, recorded: Mapping[str, Any], data_digest: str, path: Path) -> None:
    _expect_equal(plan.config.to_dict(), recorded.get("config", {}), path)
    # a study of an older version lacks newer settings, whose defaults change nothing
    _expect_equal(plan.recipe.to_dict(), Recipe().to_dict() | recorded.get("recipe", {}), path)
    _expect_equal(
        {"seed": plan.seed, "rows": data_digest},
        {"seed": recorded.get("seed"), "rows": recorded.get("digest")},
        path,
    )


def _expect_equal(current: Mapping[str, Any], recorded: Mapping[str, Any], path: Path) -> None:
    if difference := first_difference(current, recorded):
        raise ConfigError(
            f"{path}: belongs to a study with other settings: {difference}; choose another folder"
        )
