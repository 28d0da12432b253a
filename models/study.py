"""A study of depth: which nets it trains, and what the folder of a study says of each of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from models import checkpoint
from models.atomic import replacing
from models.data import Dataset
from models.data import load as load_data
from models.download import Progress as DownloadProgress
from models.errors import ConfigError
from models.families import build
from models.net import expect, expect_choice, parameter_count
from models.networks import Kind, MlpConfig
from models.presets import figure_1
from models.recipe import Recipe
from models.train import BEST, LAST, Plan, digest

DIVERGED = "diverged.json"

State = Literal["finished", "diverged", "unfinished"]


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    family: Kind
    depth: int
    lr: float

    @property
    def name(self) -> str:
        """What its folder is called."""
        return f"{self.family}-{self.depth}-lr{self.lr}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Every family at every depth, with every learning rate: Figure 1 of "Training Very Deep Networks".

    `recipe` is the same for all, but for its rate, which gives way to each of `lrs`. `width` is that of
    the highway nets; their twins are made as large as they.
    """

    families: tuple[Kind, ...]
    depths: tuple[int, ...]
    lrs: tuple[float, ...]
    data: str
    recipe: Recipe
    seed: int = 0
    width: int = 50
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        for family in self.families:
            expect_choice("families", family, get_args(Kind))
        for name in ("families", "depths", "lrs"):
            values = getattr(self, name)
            expect(len(values) > 0, f"{name}: expected one or more, got none")
            expect(len(set(values)) == len(values), f"{name}: expected each once, got {_listed(values)}")
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        object.__setattr__(self, "lrs", tuple(map(float, self.lrs)))  # 1 and 1.0 are one folder
        for cell in self.cells:
            self.recipe_of(cell)
            figure_1(cell.family, cell.depth, width=self.width)

    @property
    def cells(self) -> list[Cell]:
        """All runs, by depth, then family, then rate."""
        return [
            Cell(family, depth, lr) for depth in self.depths for family in self.families for lr in self.lrs
        ]

    def read(self, progress: DownloadProgress | None = None) -> Dataset:
        """The rows that all runs share."""
        return load_data(
            self.data,
            data_dir=self.data_dir,
            test_fraction=self.recipe.test_fraction,
            seed=self.seed,
            progress=progress,
        )

    def recipe_of(self, cell: Cell) -> Recipe:
        return replace(self.recipe, lr=cell.lr)

    def config_of(self, cell: Cell, data: Dataset) -> MlpConfig:
        return figure_1(cell.family, cell.depth, width=self.width).fitted(data.inputs, data.classes)

    def plan(self, cell: Cell, data: Dataset, folder: Path) -> Plan:
        """How one run is trained, in a folder of its own within the study's."""
        twin = "" if cell.family == "highway" else f"-{cell.family}"
        return Plan(
            preset=f"fig1-{cell.depth}{twin}",
            config=self.config_of(cell, data),
            recipe=self.recipe_of(cell),
            data=data,
            folder=folder / cell.name,
            seed=self.seed,
        )

    def shared(self, rows: str) -> dict[str, Any]:
        """What makes runs comparable, and must not change within a folder; `rows` is the data's digest."""
        recipe = {name: value for name, value in self.recipe.to_dict().items() if name != "lr"}
        return {"data": self.data, "rows": rows, "seed": self.seed, "width": self.width, **recipe}


@dataclass(frozen=True)
class Result:
    """What came of one run so far. `epoch` is that of the best network, or the one it diverged in.

    `loss` is the training loss of the last whole epoch; the accuracies are of the best network by
    validation. What there is not yet, or will never be, is None.
    """

    cell: Cell
    state: State
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
        """Plain values."""
        return {"name": self.cell.name, **asdict(self.cell), **_without(asdict(self), "cell")}


def recall(plan: Plan, cell: Cell, rows: str) -> Result:
    """What the folder of a run holds; a ConfigError where it holds another run than this one."""
    with torch.device("meta"):
        parameters = parameter_count(build(plan.config))
    result = Result(cell, "unfinished", parameters, plan.steps)
    diverged = plan.folder / DIVERGED
    if diverged.exists():
        note = read_json(diverged)
        _expect_same(plan, note.get("plan", {}), rows, diverged)
        return replace(_with_history(result, note["history"]), state="diverged", **note["reached"])
    for path in (plan.folder / BEST, plan.folder / LAST):
        if not path.exists():
            continue
        record = checkpoint.read(path)[1]
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
        if path.name == LAST:
            result = replace(_with_history(result, record.history), step=record.progress["step"])
    return result


def note_divergence(plan: Plan, rows: str, step: int, history: list[dict[str, float]]) -> None:
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
    write_json(plan.folder / DIVERGED, note)


def expect_same_study(study: Study, rows: str, path: Path) -> None:
    """Stop with a ConfigError where a study with other settings was begun in this folder."""
    if path.exists():
        before = read_json(path).get("shared", {})
        _expect_equal(study.shared(rows), before, path)


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


def digest_of(data: Dataset) -> str:
    return digest(data)


def _with_history(result: Result, history: list[dict[str, float]]) -> Result:
    if not history:
        return result
    last = history[-1]
    return replace(result, history=tuple(history), loss=last["loss"], seconds=last["seconds"])


def _expect_same(plan: Plan, came: Mapping[str, Any], rows: str, path: Path) -> None:
    for name, now in (("config", plan.config.to_dict()), ("recipe", plan.recipe.to_dict())):
        _expect_equal(now, came.get(name, {}), path)
    _expect_equal(
        {"seed": plan.seed, "rows": rows}, {"seed": came.get("seed"), "rows": came.get("digest")}, path
    )


def _expect_equal(now: Mapping[str, Any], then: Mapping[str, Any], path: Path) -> None:
    plain = json.loads(json.dumps(now))
    for name in sorted(plain.keys() | then.keys()):
        if plain.get(name) != then.get(name):
            raise ConfigError(
                f"{path}: belongs to a study with {name} {_brief(then.get(name))}, and "
                f"{_brief(plain.get(name))} is asked for now: give the new study another folder"
            )


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}
