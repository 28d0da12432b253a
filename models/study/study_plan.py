"""The definition of a depth study: one run per kind of layer, depth and learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from turnpike.models.checks import expect, expect_choice
from turnpike.models.choices import LayerKind
from turnpike.models.data.dataset import Dataset
from turnpike.models.data.download import DownloadProgress
from turnpike.models.data.load import load_dataset
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.presets import figure_1_config
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import RunPlan


@dataclass(frozen=True)
class StudyRun:
    """One run of a study; `family` is the kind of its layers."""

    family: LayerKind
    depth: int
    lr: float

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return f"{self.family}-{self.depth}-lr{self.lr}"


@dataclass(frozen=True, kw_only=True)
class Study:
    """A depth study, as in Figure 1 of "Training Very Deep Networks".

    Attributes:
        families: Kinds of layers to compare.
        depths: Numbers of layers.
        lrs: Learning rates to try for each kind and depth.
        data: Name or path of the data set.
        recipe: Training settings of all runs; its learning rate is replaced by each of `lrs`.
        seed: The seed of all runs.
        width: Units of a highway layer; the other kinds are wider, to have as many parameters.
        data_dir: Folder with the files of a public data set; then nothing is downloaded.
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
                f"{name}: expected each value once, got {', '.join(map(str, values))}",
            )
        expect(self.width > 0, f"width: expected 1 or more, got {self.width}")
        # so that learning rates 1 and 1.0 share a folder
        object.__setattr__(self, "lrs", tuple(map(float, self.lrs)))
        # raises if a depth or a learning rate is invalid
        for run in self.runs:
            self.recipe_for(run)
            figure_1_config(run.family, run.depth, width=self.width)

    @property
    def runs(self) -> list[StudyRun]:
        """All runs, sorted by depth, then family, then learning rate."""
        return [
            StudyRun(family, depth, lr)
            for depth in self.depths
            for family in self.families
            for lr in self.lrs
        ]

    def load_data(self, progress: DownloadProgress | None = None) -> Dataset:
        """Load the data set that all runs share."""
        return load_dataset(
            self.data,
            data_dir=self.data_dir,
            test_fraction=self.recipe.test_fraction,
            seed=self.seed,
            progress=progress,
        )

    def recipe_for(self, run: StudyRun) -> Recipe:
        return replace(self.recipe, lr=run.lr)

    def config_for(self, run: StudyRun, data: Dataset) -> MlpConfig:
        return figure_1_config(run.family, run.depth, width=self.width).for_data(data.inputs, data.classes)

    def plan_for(self, run: StudyRun, data: Dataset, folder: Path) -> RunPlan:
        """Return the plan of a run, which has a folder of its own within the study's `folder`."""
        suffix = "" if run.family == "highway" else f"-{run.family}"
        return RunPlan(
            preset=f"fig1-{run.depth}{suffix}",
            config=self.config_for(run, data),
            recipe=self.recipe_for(run),
            data=data,
            folder=folder / run.name,
            seed=self.seed,
        )
