"""What the folder of a study says of its runs, so that none is trained twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import torch

from models.atomic import replacing
from models.errors import ConfigError
from models.networks.base import NetConfig, parameter_count
from models.networks.families import build_network
from models.study.study import Study, StudyRun
from models.training import checkpoint
from models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan, first_difference

STUDY_FILE = "compare.json"
DIVERGED_FILE = "diverged.json"

RunState = Literal["finished", "diverged", "unfinished"]


@dataclass(frozen=True)
class RunResult:
    """What came of one run so far. `epoch` is that of the best network, or the one it diverged in.

    `loss` is the training loss of the last whole epoch; the accuracies are of the best network by
    validation. What there is not yet, or will never be, is None.
    """

    cell: StudyRun
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values; JSON has none for what is no number, or infinite."""
        values = asdict(self)
        values["history"] = [
            {name: value if isfinite(value) else None for name, value in entry.items()}
            for entry in self.history
        ]
        return {"name": self.cell.name, **values.pop("cell"), **values}


def load_result(plan: RunPlan, cell: StudyRun, rows: str) -> RunResult:
    """What the folder of a run holds; a ConfigError where it holds another run than this one."""
    result = RunResult(cell, "unfinished", _parameter_count(plan.config), plan.steps)
    diverged = plan.folder / DIVERGED_FILE
    if diverged.exists():
        note = read_json(diverged)
        _expect_same(plan, note.get("plan", {}), rows, diverged)
        return replace(_with_history(result, note["history"]), state="diverged", **note["reached"])
    for path in (plan.folder / BEST_CHECKPOINT, plan.folder / LAST_CHECKPOINT):
        if not path.exists():
            continue
        record = checkpoint.read_checkpoint(path)[1]
        of = {"config": record.config, "recipe": record.recipe, "seed": record.seed, **record.data}
        _expect_same(plan, of, rows, path)
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
    with torch.random.fork_rng(devices=[]):  # counting draws nothing from the caller's generator
        return parameter_count(build_network(config))


def save_divergence(plan: RunPlan, rows: str, step: int, history: list[dict[str, float]]) -> None:
    """Write down that a run diverged in the step after so many, so that it is not tried again."""
    note = {
        "plan": {
            "config": plan.config.to_dict(),
            "recipe": plan.recipe.to_dict(),
            "seed": plan.seed,
            "digest": rows,
        },
        "reached": {"step": step, "epoch": step // plan.steps_per_epoch + 1},
        "history": history,
    }
    write_json(plan.folder / DIVERGED_FILE, note)


def shared_settings(study: Study, rows: str) -> dict[str, Any]:
    """What makes runs comparable, and must not change within a folder; `rows` is the data's digest."""
    recipe = {name: value for name, value in study.recipe.to_dict().items() if name != "lr"}
    return {"data": study.data, "rows": rows, "seed": study.seed, "width": study.width, **recipe}


def expect_same_study(study: Study, rows: str, folder: Path) -> None:
    """Stop with a ConfigError where a study with other settings was begun in this folder."""
    path = folder / STUDY_FILE
    if path.exists():
        _expect_equal(shared_settings(study, rows), read_json(path).get("shared", {}), path)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    with replacing(path) as draft:
        draft.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected what an earlier study wrote, cannot read it") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected what an earlier study wrote, got something else")
    return values


def _with_history(result: RunResult, history: list[dict[str, float]]) -> RunResult:
    if not history:
        return result
    last = history[-1]
    return replace(result, history=tuple(history), loss=last["loss"], seconds=last["seconds"])


def _expect_same(plan: RunPlan, came: Mapping[str, Any], rows: str, path: Path) -> None:
    for name, now in (("config", plan.config.to_dict()), ("recipe", plan.recipe.to_dict())):
        _expect_equal(now, came.get(name, {}), path)
    _expect_equal(
        {"seed": plan.seed, "rows": rows}, {"seed": came.get("seed"), "rows": came.get("digest")}, path
    )


def _expect_equal(now: Mapping[str, Any], then: Mapping[str, Any], path: Path) -> None:
    if said := first_difference(now, then):
        raise ConfigError(f"{path}: belongs to a study with {said}: give the new study another folder")
