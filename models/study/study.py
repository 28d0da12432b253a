"""A study of depth: every family at every depth, with every learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from models.checks import expect, expect_choice
from models.data.dataset import Dataset
from models.data.download import DownloadProgress
from models.data.load import load_dataset
from models.networks.feedforward import LayerKind, MlpConfig
from models.training.presets import figure_1_config
from models.training.recipe import Recipe
from models.training.run_plan import RunPlan


@dataclass(frozen=True)
class StudyRun:
    """One run of a study."""

    family: LayerKind
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

    families: tuple[LayerKind, ...]
    depths: tuple[int, ...]
    lrs: tuple[float, ...]
    data: str
    recipe: Recipe
    seed: int = 0
    width: int = 50
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        for family in self.families:
            expect_choice("families", family, get_args(LayerKind))
        for name in ("families", "depths", "lrs"):
            values = getattr(self, name)
            expect(len(values) > 0, f"{name}: expected one or more, got none")
            expect(
                len(set(values)) == len(values),
                f"{name}: expected each once, got {', '.join(map(str, values))}",
            )
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        object.__setattr__(self, "lrs", tuple(map(float, self.lrs)))  # 1 and 1.0 are one folder
        for cell in self.cells:
            self.recipe_of(cell)
            figure_1_config(cell.family, cell.depth, width=self.width)

    @property
    def cells(self) -> list[StudyRun]:
        """All runs, by depth, then family, then rate."""
        return [
            StudyRun(family, depth, lr)
            for depth in self.depths
            for family in self.families
            for lr in self.lrs
        ]

    def read(self, progress: DownloadProgress | None = None) -> Dataset:
        """The rows that all runs share."""
        return load_dataset(
            self.data,
            data_dir=self.data_dir,
            test_fraction=self.recipe.test_fraction,
            seed=self.seed,
            progress=progress,
        )

    def recipe_of(self, cell: StudyRun) -> Recipe:
        return replace(self.recipe, lr=cell.lr)

    def config_of(self, cell: StudyRun, data: Dataset) -> MlpConfig:
        return figure_1_config(cell.family, cell.depth, width=self.width).for_data(data.inputs, data.classes)

    def plan(self, cell: StudyRun, data: Dataset, folder: Path) -> RunPlan:
        """How one run is trained, in a folder of its own within the study's."""
        twin = "" if cell.family == "highway" else f"-{cell.family}"
        return RunPlan(
            preset=f"fig1-{cell.depth}{twin}",
            config=self.config_of(cell, data),
            recipe=self.recipe_of(cell),
            data=data,
            folder=folder / cell.name,
            seed=self.seed,
        )
